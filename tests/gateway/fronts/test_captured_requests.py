"""The captured requests of agents are refused at no door, whatever the servers behind it speak.

`python -m tests.support.agents.captured` writes the files; a new release is one more of them.
"""

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.registry import Address, make
from tests.support.agents import matrix
from tests.support.agents.sent import CONTENTS, Sent, readable
from tests.support.agents.wires import CHATS, MESSAGES, RESPONSE, RESPONSES, Wires
from tests.support.doors import Before, door_of
from tests.support.gateways import Rig, config
from tests.support.providers.abilities import stage

FILES = sorted((Path(__file__).parent / "captured").glob("*.json"))
POOLS: dict[str, tuple[Any, frozenset[str]]] = {
    "chats": ("openai", frozenset({CHATS})),
    "messages": ("anthropic", frozenset({MESSAGES})),
    "responses": ({"name": "openai", "responses": True}, frozenset({CHATS, RESPONSES})),
}
"""Pools: their protocol, and the paths whose bodies they forward unchanged."""
OWN = {
    CHATS: {"openai", "vllm"},
    MESSAGES: {"anthropic", "claude-vertex"},
    CONTENTS: {"gemini-api", "gemini-vertex"},
}
"""The providers that receive the bytes of a protocol's clients."""


def captured() -> Iterator[Any]:
    """All captured requests."""
    for file in FILES:
        for number, written in enumerate(json.loads(file.read_text())["requests"]):
            request = Sent.of(written)
            yield pytest.param(request, id=f"{file.stem}-{number}-{request.model}")


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("request_", list(captured()))
async def test_a_captured_request_is_answered(request_: Sent, pool: str) -> None:
    """Whole and streamed. What is translated has only fields that the official client's types have."""
    protocol, native = POOLS[pool]
    own = request_.protocol if request_.protocol in native else ""
    made = config(
        pools=[{"name": "main", "protocol": protocol, "endpoints": ["http://127.0.0.1:9"]}],
        models=[{"name": "*", "routes": [{"to": "main"}]}],
    )
    async with AsyncExitStack() as stack:
        wires = Wires(own)
        behind = Server(wires)
        host, port = await behind.listen_tcp("127.0.0.1", 0)
        stack.push_async_callback(behind.aclose)
        adapter = make(made.pools[0], Address(f"http://{host}:{port}"))
        stack.push_async_callback(adapter.aclose)
        door = await stack.enter_async_context(door_of(Rig(made, {"main": [Before(adapter)]}), max_body=1 << 20))
        for stream in (True, False):
            path, body = request_.again(stream=stream)
            response = await door.send("POST", path, body, **request_.headers)
            text = readable(await response.read())
            answered = '"totalTokens":' in text if request_.is_count else '"ok"' in text
            assert (response.status, answered, '"error":{' in text) == (200, True, False), text
        assert not wires.mistakes


@pytest.mark.parametrize("column", matrix.COLUMNS)
@pytest.mark.parametrize("request_", list(captured()))
async def test_a_captured_request_is_answered_by_a_provider(request_: Sent, column: str) -> None:
    """Every request of another protocol than its server's, by stubs that refuse what their provider refuses."""
    if column in OWN.get(request_.protocol, ()):
        pytest.skip("one protocol: the bytes are the client's own, shortened")
    async with stage(matrix.provider(column), max_body=1 << 20) as on:
        for stream in (True, False):
            path, body = request_.again("chat", stream=stream)
            answer = await on.door.send("POST", path, body, **request_.headers)
            text = readable(await answer.read())
            assert (answer.status, on.script.refused, '"error":{' in text) == (200, [], False), text
        assert request_.is_count or len(on.script.received) == 2


async def test_a_server_of_responses_receives_no_thought_of_the_gateways_own() -> None:
    """It has neither stored nor encrypted them."""
    own = {"type": "reasoning", "id": "rs_" + "0" * 36, "summary": [], "content": []}
    foreign = {"type": "reasoning", "id": "rs_" + "0" * 50, "summary": [], "encrypted_content": "gAAA"}
    question = {"role": "user", "content": "q"}
    received: list[Any] = []

    async def answer(http: Request) -> Response:
        received.append(json.loads(await http.read())["input"])
        return Response(200, [("content-type", "application/json")], json.dumps(RESPONSE).encode())

    protocol = POOLS["responses"][0]
    made = config(pools=[{"name": "main", "protocol": protocol, "endpoints": ["http://127.0.0.1:9"]}])
    async with AsyncExitStack() as stack:
        behind = Server(answer)
        host, port = await behind.listen_tcp("127.0.0.1", 0)
        stack.push_async_callback(behind.aclose)
        adapter = make(made.pools[0], Address(f"http://{host}:{port}"))
        stack.push_async_callback(adapter.aclose)
        door = await stack.enter_async_context(door_of(Rig(made, {"main": [Before(adapter)]})))
        response = await door.send("POST", RESPONSES, {"model": "chat", "input": [own, foreign, question]})
        assert response.status == 200, await response.text()
    assert received == [[foreign, question]]
