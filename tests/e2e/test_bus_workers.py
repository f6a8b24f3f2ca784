"""A gateway whose workers are another gateway behind a message broker."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from adapters.http1.message import Response
from tests.support.brokers.broker import RealBroker
from tests.support.brokers.kafka import KafkaBroker
from tests.support.brokers.mqtt import MqttBroker
from tests.support.brokers.nats import NatsBroker
from tests.support.brokers.rabbitmq import RabbitBroker
from tests.support.brokers.redis import RedisBroker
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Events, Upstream, upstream, whole

pytestmark = pytest.mark.servers
KINDS: Mapping[str, type[RealBroker]] = {
    "kafka": KafkaBroker,
    "mqtt": MqttBroker,
    "nats": NatsBroker,
    "rabbitmq": RabbitBroker,
    "redis": RedisBroker,
}
MODELS = {"models": [{"name": "chat", "routes": [{"to": "main"}]}], "tenants": [{"name": "acme", "models": ["*"]}]}


class Site:
    """The gateway of the clients, the gateway of the workers, and the server behind it."""

    def __init__(self, front: GatewayProcess, key: str, up: Upstream) -> None:
        self.front = front
        self.key = key
        self.up = up

    def sdk(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.front.url}/v1", api_key=self.key, max_retries=0)


def workers(broker: RealBroker, up: Upstream) -> dict[str, Any]:
    bus = {
        "name": "work",
        "broker": broker.url,
        "topic": "work",
        "tenant": "acme",
        "paths": ["/v1/completions", "/v1/embeddings"],
        "reply": {"topic": "answers", "allowed": ["answers.*"]},
        "dead_letters": "dead",
        "cancels": "cancels",
        "stream": True,
        "attempts": 1,
    }
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "bus": [bus]}
    return {"listen": listen, "pools": [{"name": "main", "endpoints": [up.url]}], **MODELS}


def clients(broker: RealBroker) -> dict[str, Any]:
    protocol = {"name": "bus", "topic": "work", "reply": "answers.one", "cancels": "cancels"}
    pool = {"name": "main", "protocol": protocol, "endpoints": [broker.url], "probe": {"interval": "200ms"}}
    routes = [{"to": "main", "timeout": {"first_byte": "60s"}}]
    return {"pools": [pool], **MODELS, "models": [{"name": "chat", "routes": routes}]}


@asynccontextmanager
async def site(kind: str, folder: Path) -> AsyncIterator[Site]:
    broker = KINDS[kind](folder)
    try:
        await broker.start()
        await broker.topics("work", "answers", "answers.one", "cancels", "dead")
        (folder / "front").mkdir()
        (folder / "workers").mkdir()
        async with (
            upstream("hello from far away") as up,
            gateway(folder / "workers", workers(broker, up)),
            gateway(folder / "front", clients(broker)) as front,
        ):
            key = await front.key()
            await front.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
            yield Site(front, key, up)
            await front.until_idle()
    finally:
        await broker.close()


async def chat(sdk: openai.AsyncOpenAI, text: str = "hi") -> str:
    made = await sdk.chat.completions.create(model="chat", messages=[{"role": "user", "content": text}])
    return made.choices[0].message.content or ""


@pytest.mark.parametrize("kind", KINDS)
async def test_requests_are_answered_by_workers_behind_a_broker(kind: str, tmp_path: Path) -> None:
    async with site(kind, tmp_path) as made, made.sdk() as sdk:

        async def echo(body: dict[str, Any]) -> Response:
            return whole(body["messages"][0]["content"])

        made.up.behaviour = echo
        texts = [f"text {number}" for number in range(20)]
        assert await asyncio.gather(*(chat(sdk, text) for text in texts)) == texts
        await _streams(made, sdk)
        await _failures(made, sdk)
        await _cancels(made)


async def _streams(made: Site, sdk: openai.AsyncOpenAI) -> None:
    made.up.behaviour = None
    stream = await sdk.chat.completions.create(model="chat", messages=[{"role": "user", "content": "hi"}], stream=True)
    words = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(words).split() == ["hello", "from", "far", "away"]
    assert len(words) >= 4


async def _failures(made: Site, sdk: openai.AsyncOpenAI) -> None:
    """A failure of the worker has the status of a failed upstream, a mistake of the client its own."""

    async def fail(body: dict[str, Any]) -> Response:
        error = {"error": {"message": "no such field", "type": "invalid_request_error", "code": "x", "param": None}}
        return Response(400, [("content-type", "application/json")], json.dumps(error).encode())

    made.up.behaviour = fail
    with pytest.raises(openai.BadRequestError):
        await chat(sdk)

    async def broken(body: dict[str, Any]) -> Response:
        return Response(500)

    made.up.behaviour = broken
    with pytest.raises(openai.InternalServerError) as raised:
        await chat(sdk)
    assert raised.value.status_code == 502


async def _cancels(made: Site) -> None:
    """A client that leaves a stream ends it at the server of the workers."""
    events = Events([f"word{number}" for number in range(10_000)], 0.05)

    async def endless(body: dict[str, Any]) -> Response:
        return Response(200, [("content-type", "text/event-stream")], events)

    made.up.behaviour = endless
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    headers = {"authorization": f"Bearer {made.key}"}
    url = f"{made.front.url}/v1/chat/completions"
    async with aiohttp.ClientSession(headers=headers) as http, http.post(url, json=body) as response:
        assert response.status == 200
        await response.content.readany()
        response.close()
    async with asyncio.timeout(300):
        while not events.closed:
            await asyncio.sleep(0.05)
