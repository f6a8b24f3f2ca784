"""Fields that nobody has invented yet, in requests that are no chats: they change no status."""

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.registry import Address, make
from tests.support.agents.matrix import provider
from tests.support.doors import Before, door_of
from tests.support.gateways import Rig, config
from tests.support.newer_clients import NEW, newer
from tests.support.providers.abilities import stage
from tests.support.providers.bedrock import TITAN_V2
from tests.support.providers.script import Provider

Object = dict[str, Any]
VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5]}
ANSWER = {
    "id": "1", "object": "list", "created": 1, "model": "m", "data": [VECTOR], "results": [], "text": "t",
    "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip
REQUESTS: dict[str, Object] = {
    "/v1/completions": {"prompt": "a", "max_tokens": 9},
    "/v1/embeddings": {"input": ["a"]},
    "/v1/rerank": {"query": "a", "documents": [{"text": "b"}]},
    "/v2/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": ["b"]},
    "/v1/classify": {"input": ["a"]},
    "/v1/moderations": {"input": [{"type": "text", "text": "a"}]},
    "/v1/images/generations": {"prompt": "a"},
    "/v1/audio/speech": {"input": "a", "voice": "b"},
}
FORMS = {"/v1/audio/transcriptions": "file", "/v1/images/edits": "image"}
"""Requests in forms, and the file of each."""
PASSES = ["rerank", "score", "classify", "moderations", "images", "audio"]


async def answers(path: str, bodies: list[Any]) -> tuple[list[int], list[bytes]]:
    """The statuses of requests to a server of OpenAI's API, and the bodies that it has received."""
    received: list[bytes] = []

    async def answer(http: Request) -> Response:
        received.append(bytes(await http.read()))
        return Response(200, [("content-type", "application/json")], json.dumps(ANSWER).encode())

    protocol = {"name": "openai", "passes": PASSES}
    made = config(pools=[{"name": "main", "protocol": protocol, "endpoints": ["http://127.0.0.1:9"]}])
    async with AsyncExitStack() as stack:
        behind = Server(answer)
        host, port = await behind.listen_tcp("127.0.0.1", 0)
        stack.push_async_callback(behind.aclose)
        adapter = make(made.pools[0], Address(f"http://{host}:{port}"))
        stack.push_async_callback(adapter.aclose)
        door = await stack.enter_async_context(door_of(Rig(made, {"main": [Before(adapter)]})))
        return [(await door.send("POST", path, body)).status for body in bodies], received


@pytest.mark.parametrize("path", REQUESTS)
async def test_invented_fields_reach_a_server_of_the_same_protocol(path: str) -> None:
    body = {"model": "chat", **REQUESTS[path]}
    statuses, received = await answers(path, [body, newer(body)])
    assert statuses == [200, 200]
    plain, extended = map(json.loads, received)
    assert extended == newer(plain)


@pytest.mark.parametrize("path", FORMS)
async def test_invented_fields_of_a_form_reach_the_server(path: str) -> None:
    form = aiohttp.FormData()
    form.add_field("model", "chat")
    form.add_field(FORMS[path], b"\0\1", filename="a.bin")
    for name in NEW:
        form.add_field(name, "x")
    statuses, (received,) = await answers(path, [form])
    assert statuses == [200]
    assert all(f'name="{name}"'.encode() in received for name in NEW)


def embedding(name: str) -> Provider:
    """A provider of another protocol, with a model of embeddings."""
    made = provider(name)
    return replace(made, pool=lambda url: {**made.pool(url), "model": TITAN_V2}) if name == "converse" else made


@pytest.mark.parametrize("name", ["converse", "gemini-api", "gemini-vertex"])
async def test_invented_fields_of_embeddings_change_nothing_and_are_reported(name: str) -> None:
    body = {"model": "chat", "input": ["a b", "c"]}
    async with stage(embedding(name)) as on:
        plain, extended = [await on.door.send("POST", "/v1/embeddings", sent) for sent in (body, newer(body))]
        assert (plain.status, extended.status) == (200, 200), await extended.text()
        assert await plain.json() == await extended.json()
        assert "x-headrace-ignored" not in plain.headers
        assert "new_field_0" in extended.headers["x-headrace-ignored"]
