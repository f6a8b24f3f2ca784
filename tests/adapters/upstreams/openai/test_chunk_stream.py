"""Pieces that are forwarded as they were read have the effect of pieces whose events are examined one by one."""

import json
from itertools import pairwise
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import InferenceError
from adapters.http1.client import ClientResponse
from adapters.http1.exchange import Forward
from adapters.upstreams.openai import chunk_stream
from adapters.upstreams.openai.chunk_stream import ChunkStream
from adapters.wire import sse
from adapters.wire.openai import chat as wire

REQUEST = wire.decode_chat(b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}')


class Response:
    """A response whose pieces have all arrived."""

    max_answer = 1024
    status = 200

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [*pieces, b""]

    def take(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def piece(self, patience: float | None = None) -> bytes:
        return self.take()

    def close(self) -> None: ...


class Arriving(Response):
    """A response whose pieces arrive while the stream waits."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(pieces)
        self._arrived: list[bytes] = []

    def take(self) -> bytes | None:  # type: ignore[override]
        return self._arrived.pop(0) if self._arrived else None

    async def more(self, patience: float | None = None, forward: Forward | None = None) -> None:
        while not self._arrived:
            piece = self._pieces.pop(0)
            if not piece or forward is None or not forward(piece):
                self._arrived.append(piece)


def chunk(**fields: Any) -> bytes:
    return sse.encode(json.dumps(fields, separators=(",", ":")).encode())


TEXTS = st.sampled_from(['"usage"', '"error"', "a", "\u00e9 ", "\\n\\ndata: {", "}", "[DONE]", "data: {}"])
PLAIN = st.one_of(
    TEXTS.map(lambda text: chunk(choices=[{"delta": {"content": text}, "finish_reason": None}])),
    TEXTS.map(lambda text: chunk(choices=[{"delta": {"content": text}}], usage=None)),
)
OTHER = st.one_of(
    st.just(chunk(choices=[{"delta": {}, "finish_reason": "stop"}])),
    st.just(chunk(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2})),
    st.just(chunk(error={"message": "out of memory"})),
    st.sampled_from([
        b"data: [DONE]\n\n", b": ping\n\n", b"\n\n", b"\n", b"\r\n", b"\r", b"data: {}\n\n", b"data: {\n\ndata: }\n\n",
        b"event: error\ndata: {}\n\n", b"data: 1\n\n", b"data:{}\n\n", b"error: {}\n\n", b"id: 1\ndata: {}\n\n",
    ]),
)  # fmt: skip
WRITES = st.one_of(
    st.lists(PLAIN, min_size=1, max_size=4), st.lists(PLAIN, min_size=1, max_size=4), st.lists(OTHER, max_size=2)
)
"""Events that a server writes together."""


async def outcome(pieces: list[bytes], *, plain: bool) -> list[object]:
    stream = ChunkStream(cast(ClientResponse, Response(pieces)), REQUEST)
    seen: list[object] = []
    with patch.object(chunk_stream, "_count_plain", chunk_stream._count_plain if plain else lambda _: 0):
        try:
            await stream.begun()
            async for piece in stream:
                seen += [piece, stream.excerpts]
        except InferenceError as error:
            seen += [type(error), error.message]
    return [*seen, stream.usage, stream.excerpts, stream.ended]


@given(st.data(), st.lists(WRITES, max_size=8))
async def test_a_forwarded_piece_counts_like_its_events(data: st.DataObject, writes: list[list[bytes]]) -> None:
    pieces = [b"".join(events) for events in writes if events]
    body = b"".join(pieces)
    if cuts := data.draw(st.lists(st.integers(0, len(body)), max_size=3)):
        pieces = [body[a:b] for a, b in pairwise([0, *sorted(cuts), len(body)]) if a < b]
    assert await outcome(pieces, plain=True) == await outcome(pieces, plain=False)


async def test_an_event_that_began_earlier_is_not_forwarded_alone() -> None:
    first = chunk(choices=[{"delta": {"content": "a"}}])
    pieces = [first, b"id: 1\n", b"data: {}\n\n", b"data: [DONE]\n\n"]
    seen = await outcome(pieces, plain=True)
    assert seen[::2][:3] == [first, b"id: 1\ndata: {}\n\n", b"data: [DONE]\n\n"]


async def written(pieces: list[bytes], refusals: list[bool]) -> list[object]:
    """What a connection writes whose writer refuses some pieces."""
    stream = ChunkStream(cast(ClientResponse, Arriving(pieces)), REQUEST)
    seen: list[object] = []
    body: list[bytes] = []

    def write(piece: bytes) -> bool:
        if refusals and refusals.pop():
            return False
        body.append(piece)
        return True

    try:
        await stream.begun()
        async for piece in stream:
            body.append(piece)
            stream.write_to(write)
    except InferenceError as error:
        seen += [type(error), error.message]
    assert stream._forward is None
    return [*seen, b"".join(body), stream.usage, stream.excerpts, stream.ended]


@given(st.lists(WRITES, max_size=8), st.lists(st.booleans()))
async def test_a_writer_receives_the_pieces_of_the_stream(writes: list[list[bytes]], refusals: list[bool]) -> None:
    pieces = [b"".join(events) for events in writes if events]
    expected = await outcome(pieces, plain=False)
    body = b"".join(piece for piece in expected[:-3:2] if isinstance(piece, bytes))
    error = [part for part in expected[:-3] if not isinstance(part, bytes | tuple)]
    assert await written(pieces, refusals) == [*error, body, *expected[-3:]]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_whole_chunks_are_counted(count: int) -> None:
    piece = chunk(choices=[{"delta": {"content": "a"}}]) * count
    assert chunk_stream._count_plain(piece) == count
    for changed in (piece[1:], piece[:-1], piece + b"\n", piece.replace(b"\n\n", b"\r\n\r\n"), b": c\n\n" + piece):
        assert chunk_stream._count_plain(changed) == 0
