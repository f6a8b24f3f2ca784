"""Guards before real adapters: the bytes of a server's stream are cut anywhere."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.answer import Answer
from adapters.base import Adapter
from adapters.call import Call
from adapters.fake import FakeAdapter, Script
from adapters.registry import Address, make
from adapters.requests import ModelRequest
from tests.support.cut_streams import PARTS, event
from tests.support.gateways import Rig, config
from tests.support.guarding import WORDS, guarded, received
from tests.support.native_streams import NATIVE, stream_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
TEXT = 'see "the Ｚｅ\u200bｂｒａ" \\u007aebra, \U0001f600 secret plan'
MASKED = 'see "the […]" […], \U0001f600 […]'


class Forwarding(FakeAdapter):
    """A real adapter in the place of a fake one."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self._adapter = adapter

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._adapter.call(request, call)


@asynccontextmanager
async def serving(pieces: Sequence[bytes]) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that answers every request with these pieces; its address, and the first lines of its requests."""
    lines: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines.append(head.split(b"\r\n", 1)[0].decode())
        size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(size)
        for piece in (HEAD, *pieces):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}", lines


@asynccontextmanager
async def guarding(pieces: Sequence[bytes], protocol: Any, **guard: Any) -> AsyncIterator[tuple[Rig, list[str]]]:
    """A gateway with a guard, which masks by default, before such a server."""
    async with serving(pieces) as (url, lines):
        configuration = config(
            guards=[{**WORDS, "action": "mask", **guard}],
            pools=[{"name": "main", "endpoints": [url], "protocol": protocol}],
            models=[{"name": "chat", "guards": ["words"], "routes": [{"to": "main"}]}],
        )
        adapter = make(configuration.pools[0], Address(url))
        yield Rig(configuration, {"main": [Forwarding(adapter)]}), lines
        await adapter.aclose()


def cut(data: bytes, seed: int) -> list[bytes]:
    """Bytes, cut at random places; the first way has one byte in each piece."""
    rng = random.Random(seed)
    places = range(1, len(data)) if not seed else sorted(rng.sample(range(1, len(data)), 40))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def events_of(part: str, seed: int) -> bytes:
    """The events of a chat whose text is cut too, with comments and other ends of lines between them."""
    rng = random.Random(seed)
    text = json.dumps({"q": TEXT}) if part == "arguments" else TEXT
    places = sorted(rng.sample(range(1, len(text)), 9))
    named = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]}
    first = [event(named)] if part == "arguments" else []
    deltas = [event(PARTS[part](text[a:b])) for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    end = event({}, finish="tool_calls" if part == "arguments" else "stop")
    ends = b"\r\n" if seed % 2 else b"\n"
    return b": ping\n\n".join([*first, *deltas, end, b"data: [DONE]\n\n"]).replace(b"\n", ends)


def grown(body: str) -> str:
    """The deltas of the content, or of the arguments, of a stream of any API."""
    out = ""
    for line in body.splitlines():
        if line.startswith("data: {"):
            data = json.loads(line[6:])
            for choice in data.get("choices", ()):
                delta = choice["delta"]
                out += delta.get("content") or ""
                out += "".join(call["function"].get("arguments", "") for call in delta.get("tool_calls", ()))
            delta = data.get("delta", "") if data.get("type", "").endswith("delta") else ""
            out += delta if isinstance(delta, str) else delta.get("text", "") + delta.get("partial_json", "")
    return out


@pytest.mark.parametrize("part", ["content", "arguments"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_no_cut_of_the_bytes_of_a_stream_lets_a_letter_leave(path: str, part: str) -> None:
    for seed in range(8):
        async with guarding(cut(events_of(part, seed), seed), "openai") as (one, _):
            ((status, body, _),) = await received(one, path, stream=True)
            assert status == 200
            left = grown(body)
            assert (json.loads(left)["q"] if part == "arguments" else left) == MASKED


async def test_a_server_of_responses_receives_a_chat() -> None:
    async with guarding([events_of("content", 1)], {"name": "openai", "responses": True}) as (one, lines):
        ((_, body, _),) = await received(one, "/v1/responses", stream=True)
        assert grown(body) == MASKED
        assert lines == ["POST /v1/chat/completions HTTP/1.1"]


@pytest.mark.parametrize("name", NATIVE)
async def test_a_guard_that_monitors_counts_the_streams_of_every_server(name: str) -> None:
    native = NATIVE[name]
    sent = b"".join(stream_of(native, "content", ["a ze", "bra and ", "the sec", "ret plan"]))
    for seed in range(8):
        async with guarding(cut(sent, seed), native.protocol, mode="monitor") as (one, _):
            ((status, body, _),) = await received(one, native.path, **native.fields)
            assert (status, body) == (200, sent.decode())
            assert one.log.records[0].guards == {("words", "mask", "monitor", "answer"): 2}


async def test_a_server_of_messages_streams_through_the_events_of_a_chat() -> None:
    def made(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()

    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "stop_reason": None,
    }
    deltas = [{"type": "text_delta", "text": each} for each in ("a ze", "bra", "!")]
    pieces = [
        made("message_start", message={**message, "usage": {"input_tokens": 1, "output_tokens": 1}}),
        made("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(made("content_block_delta", index=0, delta=delta) for delta in deltas),
        made("content_block_stop", index=0),
        made("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        made("message_stop"),
    ]
    async with guarding(pieces, "anthropic") as (one, lines):
        ((_, body, _),) = await received(one, "/v1/messages", stream=True)
        assert grown(body) == "a […]!"
        assert lines == ["POST /v1/messages HTTP/1.1"]


@pytest.mark.parametrize("name", ["logprobs", "prompt_token_ids"])
async def test_an_answer_that_spells_a_word_in_tokens_loses_them(name: str) -> None:
    """Its text has no word, and its encoded form has none either: the tokens are parts of one."""
    message = {"role": "assistant", "content": "a horse"}
    tokens = {"content": [{"token": "ze"}, {"token": "bra"}]} if name == "logprobs" else [7, 8]
    choice = {"index": 0, "message": message, "finish_reason": "stop", name: tokens}
    one = guarded(Script(chunks=(json.dumps({"choices": [choice]}).encode(),)))
    ((status, body, _),) = await received(one, "/v1/chat/completions")
    assert status == 200
    choice = json.loads(body)["choices"][0]
    assert (choice["message"], choice[name]) == (message, None)
    one.assert_idle()
