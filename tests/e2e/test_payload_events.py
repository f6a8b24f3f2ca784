"""Payload events of a gateway process: to a server and to Redis, without the personal data that a guard masks."""

import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.wire.cloudevents import decode
from tests.support.brokers.redis import RedisBroker
from tests.support.personal import PERSONAL
from tests.support.processes import gateway
from tests.support.upstreams import stream, upstream, whole
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)
KINDS = [f"org.kubeflow.serving.inference.{kind}" for kind in ("request", "response")]
SECRET = "bob@example.com"


async def echo(body: dict[str, Any]) -> Response:
    """Answer with the last message."""
    text = body["messages"][-1]["content"]
    return stream(text) if body.get("stream") else whole(text)


async def test_events_have_the_placeholders_of_the_model_and_clients_their_own_values(tmp_path: Path) -> None:
    events: list[Any] = []

    async def receive(http: Request) -> Response:
        events.append(from_http_event(HTTPMessage(dict(http.headers), await http.read())))
        return Response(204)

    server = Server(receive)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    redis = RedisBroker(tmp_path)
    await redis.start()
    try:
        async with upstream() as up:
            up.behaviour = echo
            sinks: dict[str, dict[str, Any]] = {
                "chat": {"to": f"http://{host}:{port}/events"},
                "bus": {"broker": redis.url, "topic": "payloads"},
            }
            models = [{"name": n, "routes": [{"to": "main"}], "payload_events": sink} for n, sink in sinks.items()]
            pools = [{"name": "main", "endpoints": [up.url], "probe": None}]
            tenants = [{"name": "acme", "models": ["*"], "guards": ["people"]}]
            written = {"guards": [PERSONAL], "pools": pools, "models": models, "tenants": tenants}
            async with gateway(tmp_path, written) as g:
                headers = {"authorization": f"Bearer {await g.key()}"}
                async with aiohttp.ClientSession(headers=headers) as http:
                    for model in sinks:
                        for is_stream in (False, True):
                            messages = [{"role": "user", "content": f"write to {SECRET} now"}]
                            body = {"model": model, "messages": messages, "stream": is_stream}
                            async with http.post(f"{g.url}/v1/chat/completions", json=body) as response:
                                assert "example.com" in await response.text()
                    await until(lambda: len(events) == 4)
                    async with http.get(f"{g.admin}/metrics") as response:
                        page = await response.text()
                assert await g.stop(signal.SIGTERM) == 0
        published = [decode(one.headers, one.body) for one in await redis.messages("payloads")]
    finally:
        await server.aclose()
        await redis.close()
    assert sorted(event.get_type() for event in events) == sorted(2 * KINDS)
    assert sorted(event.type for event in published if event is not None) == sorted(2 * KINDS)
    assert len({event.get_id() for event in events}) == 2
    texts = [json.dumps(event.get_data()) for event in events]
    texts += [event.data.decode() for event in published if event is not None]
    assert all("write to <" in text and SECRET not in text for text in texts)
    assert 'headrace_payload_events_total{kind="request",model="chat"} 2.0' in page
    assert 'headrace_payload_events_lost_total{model="chat",reason="receiver"} 0.0' in page
