"""Signs of life lengthen the wait for an answer, silence ends it, and the answer begins with the model's output."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.base import Adapter
from adapters.errors import DeadlineError, InferenceError, UpstreamSilent
from adapters.http1.client import Client
from adapters.requests import ModelRequest
from adapters.upstreams.anthropic.client import AnthropicAdapter
from adapters.upstreams.openai.chunk_stream import is_opening
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.anthropic import requests as messages
from adapters.wire.openai import chat as chats
from adapters.wire.responses import requests as responses
from tests.adapters.http1.scripted import Peer, scripted
from tests.support.openai_answers import HEAD, piece, within

PATIENCE, TOTAL = 30.0, 300.0
COMMENTS = (b": ping", b": OPENROUTER PROCESSING", b": queue position 7")


def event(type_: str, **fields: Any) -> bytes:
    return f"event: {type_}\ndata: {json.dumps({'type': type_, **fields})}".encode()


def chunk(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode()


def delta(**fields: Any) -> bytes:
    return chunk(choices=[{"index": 0, "delta": fields, "finish_reason": None}])


class Case(NamedTuple):
    """A door over an upstream. `first` opens a stream, `signs` precede its output."""

    adapter: Callable[[Client], Adapter]
    request: ModelRequest
    first: bytes
    signs: tuple[bytes, ...]
    output: bytes
    shown: bytes
    """A part of the output in the client's wire."""


FIELDS = {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
CHAT = json.dumps(FIELDS).encode()
START = event("message_start", message={"id": "m", "usage": {"input_tokens": 3}})
BLOCK = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
TEXT = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "out"})
ROLE = delta(role="assistant", content="")
PINGS = (event("ping"), BLOCK)
CASES = {
    "chat": Case(
        OpenAIAdapter, chats.decode_chat(CHAT), b": wait", (ROLE, delta(role="assistant"), chunk(choices=[])),
        delta(reasoning_content="out"), b"out",
    ),
    "responses": Case(
        OpenAIAdapter, responses.decode_native(b'{"model":"m","input":"hi","stream":true}'),
        event("response.created", response={"id": "r", "output": []}),
        (event("response.in_progress"), event("response.queued"), event("keepalive"),
         event("response.output_item.added", item={"type": "reasoning"})),
        event("response.output_text.delta", delta="out"), b"out",
    ),
    "messages": Case(AnthropicAdapter, messages.decode_message(CHAT), START, PINGS, TEXT, b"out"),
    "chat of messages": Case(AnthropicAdapter, chats.decode_chat(CHAT), START, PINGS, TEXT, b"out"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
async def test_each_sign_of_life_begins_the_wait_again(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    pauses = st.one_of(st.floats(0, 20), st.floats(0, 20), st.floats(40, 200))
    story = data.draw(st.lists(st.tuples(st.sampled_from((*case.signs, *COMMENTS)), pauses), max_size=25))

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + piece(case.first))
        for sign, pause in story:
            await asyncio.sleep(pause)
            peer.send(piece(sign))
        peer.send(piece(case.output))
        await peer.left()

    silent = next((i for i, (_, pause) in enumerate(story) if pause > PATIENCE), None)
    lasted = sum(pause for _, pause in story[:silent])
    expected: type[InferenceError] | None = None if silent is None else UpstreamSilent
    if lasted + (0 if silent is None else PATIENCE) >= TOTAL:
        expected = DeadlineError
    async with scripted(play) as upstream:
        adapter = case.adapter(Client(upstream.url))
        call = adapter.call(case.request, within(total=TOTAL, first_byte=PATIENCE, idle=1.0))
        if expected is None:
            answer = await call
            assert case.shown in await anext(answer)
            await answer.aclose()
        else:
            with pytest.raises(expected) as caught:
                await call
            assert type(caught.value) is expected
        await adapter.aclose()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"choices": [{"delta": {"role": "assistant", "content": "", "tool_calls": []}, "finish_reason": None}]}, True),
        ({"choices": [{"delta": {}}], "usage": {"prompt_tokens": 3}}, True),
        ({"choices": None, "prompt_filter_results": []}, True),
        ({"choices": [{"text": "", "finish_reason": None}]}, True),
        ({"choices": [], "usage": {"prompt_tokens": 3}}, False),
        ({"choices": [{"text": "a", "finish_reason": None}]}, False),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, False),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}, False),
        ({"choices": 7}, False),
    ],
)  # fmt: skip
def test_a_chunk_without_output_is_an_opening(fields: dict[str, Any], expected: bool) -> None:
    assert is_opening(json.dumps(fields).encode()) is expected


async def test_held_events_come_first_and_are_bounded() -> None:
    """A stream that ends or floods before its output is forwarded whole."""
    done, flood = b"data: [DONE]", [ROLE] * 2000
    for events in ([ROLE, done], [*flood, delta(content="out"), done]):

        async def play(peer: Peer, events: list[bytes] = events) -> None:
            await peer.request()
            peer.send(HEAD + b"".join(map(piece, events)) + b"0\r\n\r\n")

        async with scripted(play) as upstream:
            adapter = OpenAIAdapter(Client(upstream.url))
            answer = await adapter.call(CASES["chat"].request, within())
            assert b"".join([part async for part in answer]) == b"".join([event + b"\n\n" for event in events])
            await adapter.aclose()
