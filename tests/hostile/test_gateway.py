"""Hostile servers behind a real gateway process: what its clients see of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio

from tests.hostile.attacks import ATTACKS, Right
from tests.hostile.sample import EVENTS, JSON
from tests.hostile.server import Hostile, Play, http, listening
from tests.hostile.tensor_samples import ANSWERED, INFERENCE
from tests.hostile.text_samples import CHAT, PIECES, STREAM
from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

GROWTH = 100 * 1024 * 1024
"""Bytes by which the gateway may be larger after endless answers than after the first of them."""
PLAYS = {attack.name: attack.play for attack in ATTACKS}
REUSABLE = {attack.name: attack.reusable for attack in ATTACKS}


class Behind:
    """A gateway whose only server is scripted by the test."""

    def __init__(self, process: GatewayProcess, key: str, hostile: Hostile, client: aiohttp.ClientSession) -> None:
        self.process = process
        self.hostile = hostile
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._client = client

    async def post(
        self, path: str, body: dict[str, Any], play: Play | None, *, reusable: bool = True
    ) -> tuple[int, str]:
        self.hostile.play, self.hostile.reusable = play, reusable
        data = json.dumps(body).encode()
        async with self._client.post(self.process.url + path, data=data, headers=self._headers) as response:
            return response.status, await response.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Behind]:
    well = Hostile(lambda path: http(200, JSON, b"{}") if "health" in path else None)
    async with listening(well) as hostile, aiohttp.ClientSession() as client:
        once: dict[str, Any] = {"retry": {"attempts": 1}}
        late = {**once, "timeout": {"first_byte": "1s", "whole": "1s"}}
        patient = {"interval": "200ms", "timeout": "30s", "unhealthy_after": 100}
        breaker = {"failures": 100_000}
        configuration = {
            "pools": [
                {"name": name, "endpoints": [hostile.url], "probe": patient, "breaker": breaker, "protocol": protocol}
                for name, protocol in (("texts", "openai"), ("tensors", "oip-http"))
            ],
            "models": [
                {"name": name + end, "routes": [{"to": pool, **how}]}
                for name, pool in (("chat", "texts"), ("m", "tensors"))
                for end, how in (("", once), ("-late", late))
            ],
            "tenants": [{"name": "acme", "models": ["*"]}],
        }
        async with gateway(tmp_path_factory.mktemp("hostile"), configuration) as process:
            yield Behind(process, await process.key(), hostile, client)
            await process.until_idle()


FAILURES = [
    ("closes_at_once", 502, "upstream_unreachable"),
    ("resets_in_the_body", 502, "upstream_unreachable"),
    ("chunk_sizes_are_garbage", 502, "upstream_error"),
    ("endless_fields", 502, "upstream_error"),
    ("an_endless_body", 502, "upstream_error"),
    ("sends_nothing", 504, "upstream_timeout"),
    ("a_page_for_a_failure", 502, "upstream_error"),
    ("a_page_for_an_answer", 502, "upstream_bad_response"),
    ("json_with_nan", 502, "upstream_bad_response"),
]


@pytest.mark.parametrize(("name", "status", "code"), FAILURES)
async def test_a_client_sees_one_error_in_its_door_s_shape(behind: Behind, name: str, status: int, code: str) -> None:
    async def play(peer: Any) -> None:
        await PLAYS[name](peer, Right(CHAT, JSON))

    end = "-late" if name == "sends_nothing" else ""
    body_of_client: dict[str, Any] = {"model": "chat" + end, "messages": [{"role": "user", "content": "hi"}]}
    for path, body in (
        ("/v1/chat/completions", body_of_client),
        ("/v1/responses", {"model": "chat" + end, "input": "hi"}),
    ):
        actual, text = await behind.post(path, body, play, reusable=REUSABLE[name])
        error = json.loads(text)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (actual, error["code"], error["type"]) == (status, code, "server_error")
    actual, text = await behind.post(f"/v2/models/m{end}/infer", json.loads(INFERENCE), play, reusable=REUSABLE[name])
    if not (name == "json_with_nan" and actual == 200):  # forwarded unchanged: only the client parses it
        assert (actual, set(json.loads(text))) == (status, {"error"})
    behind.hostile.well = http(200, JSON, CHAT)
    body_of_client["model"] = "chat"
    assert await behind.post("/v1/chat/completions", body_of_client, None) == (200, CHAT.decode())
    behind.hostile.well = http(200, JSON, ANSWERED)
    assert (await behind.post("/v2/models/m/infer", json.loads(INFERENCE), None))[0] == 200


async def test_a_client_of_a_broken_stream_receives_an_error(behind: Behind) -> None:
    body: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    right = Right(STREAM, EVENTS)
    begun = right.head("transfer-encoding: chunked")
    first = b"data: %b\n\n" % PIECES[0]
    chunk = b"%x\r\n%b\r\n" % (len(first), first)

    async def broken(peer: Any) -> None:
        await peer.send(begun + chunk)
        await asyncio.sleep(0.1)
        peer.reset()

    async def garbage(peer: Any) -> None:
        await peer.send(begun + chunk)
        await asyncio.sleep(0.1)
        await peer.send(b"zz\r\n")
        await peer.left()

    async def line(peer: Any) -> None:
        await peer.send(begun + chunk)
        await peer.endless(b"10000\r\n" + b"a" * 65536 + b"\r\n")

    for play in (broken, garbage, line):
        status, text = await behind.post("/v1/chat/completions", body, play, reusable=False)
        *_, last = text.strip().split("\n\n")
        assert status == 200
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
        assert "[DONE]" not in text
        body_of_client = {"model": "chat", "input": "hi", "stream": True}
        status, text = await behind.post("/v1/responses", body_of_client, play, reusable=False)
        assert status == 200
        assert "event: response.failed" in text
        assert "event: response.completed" not in text


async def test_the_gateway_does_not_grow(behind: Behind) -> None:
    """Several endless answers at a time do not grow it."""
    gateway_ = psutil.Process(behind.process.process.pid)
    body: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}

    async def play(peer: Any) -> None:
        await PLAYS["an_endless_body"](peer, Right(CHAT, JSON))

    sizes = []
    for _ in range(5):
        pending = [behind.post("/v1/chat/completions", body, play, reusable=False) for _ in range(2)]
        assert [status for status, _ in await asyncio.gather(*pending)] == [502, 502]
        sizes.append(gateway_.memory_info().rss)
    assert sizes[-1] - sizes[0] < GROWTH
    assert behind.hostile.wrong == []
