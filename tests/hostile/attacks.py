"""Faults of an HTTP/1.1 server, and their allowed outcomes. Each attack receives the correct answer."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from adapters.errors import (
    BackendError,
    CapacityError,
    DeadlineError,
    InferenceError,
    TransportError,
    UpstreamTimeout,
)
from adapters.wire import sse
from adapters.wire.bedrock import event_stream
from tests.hostile.server import Peer, http

EVENTS, FRAMES = "text/event-stream", event_stream.CONTENT_TYPE
_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    EVENTS: sse.encode,
    FRAMES: partial(event_stream.encode_event, "contentBlockDelta"),
}
"""How the streams of a type have an event."""
_COMMENTS = {EVENTS: b": \n\n", FRAMES: event_stream.encode_event("unknown", b"{}")}
"""Parts of a stream that clients skip."""
Kinds = tuple[type[InferenceError], ...]
BROKEN: Kinds = (TransportError, BackendError)
GARBAGE: Kinds = (BackendError,)
LATE: Kinds = (DeadlineError, UpstreamTimeout)


@dataclass(frozen=True)
class Right:
    """The answer that would be right."""

    body: bytes
    content_type: str

    @property
    def streams(self) -> bool:
        return self.content_type in _ENCODERS

    @property
    def answer(self) -> bytes:
        return http(200, self.content_type, self.body)

    def other(self, body: bytes, *fields: str) -> bytes:
        """Something else, framed and typed as that is."""
        encode = _ENCODERS.get(self.content_type, bytes)
        return http(200, self.content_type, encode(body), *fields)

    def head(self, framing: str) -> bytes:
        return f"HTTP/1.1 200 OK\r\ncontent-type: {self.content_type}\r\n{framing}\r\n\r\n".encode()


@dataclass(frozen=True)
class Attack:
    """`ends` are the classes of error it may end with.

    `may_pass`: with the right answer too. `content`: with any, for a protocol to which all bytes are right.
    """

    name: str
    play: Callable[[Peer, Right], Awaitable[None]]
    ends: Kinds
    may_pass: bool = False
    content: bool = False
    reusable: bool = False
    floods: bool = False
    """It sends more than a test of the plain shelf should read."""
    only: str = ""
    """`streams`, or `whole` for answers that are no streams."""


ATTACKS: list[Attack] = []


def attack(ends: Kinds, **more: object) -> Callable[[Callable[[Peer, Right], Awaitable[None]]], None]:
    """Add a function to the list."""

    def add(play: Callable[[Peer, Right], Awaitable[None]]) -> None:
        ATTACKS.append(Attack(play.__name__, play, ends, **more))  # type: ignore[arg-type]

    return add


# ── cut off ───────────────────────────────────────────────────────────────────────────────────────────


@attack(BROKEN)
async def closes_at_once(peer: Peer, right: Right) -> None:
    peer.close()


@attack(BROKEN)
async def resets_at_once(peer: Peer, right: Right) -> None:
    peer.reset()


@attack(BROKEN)
async def closes_in_the_head(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    peer.close()


@attack(BROKEN)
async def resets_in_the_head(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    await asyncio.sleep(0.01)
    peer.reset()


@attack(BROKEN)
async def closes_after_the_head(peer: Peer, right: Right) -> None:
    await peer.send(right.head(f"content-length: {len(right.body)}"))
    peer.close()


@attack(BROKEN)
async def closes_in_the_body(peer: Peer, right: Right) -> None:
    await peer.send(right.answer[: -len(right.body) // 2])
    peer.close()


@attack(BROKEN)
async def resets_in_the_body(peer: Peer, right: Right) -> None:
    await peer.send(right.answer[: -len(right.body) // 2])
    await asyncio.sleep(0.01)
    peer.reset()


@attack(BROKEN)
async def closes_in_a_chunk(peer: Peer, right: Right) -> None:
    half = right.body[: len(right.body) // 2]
    await peer.send(right.head("transfer-encoding: chunked") + b"%x\r\n%b" % (len(right.body), half))
    peer.close()


@attack(BROKEN)
async def closes_before_the_last_chunk(peer: Peer, right: Right) -> None:
    half = right.body[: len(right.body) // 2]
    await peer.send(right.head("transfer-encoding: chunked") + b"%x\r\n%b\r\n" % (len(half), half))
    peer.close()


@attack(BROKEN, content=True)
async def ends_by_the_close_too_early(peer: Peer, right: Right) -> None:
    await peer.send(right.head("connection: close") + right.body[: len(right.body) // 2])
    peer.close()


# ── framed wrongly ────────────────────────────────────────────────────────────────────────────────────


@attack(LATE)
async def announces_more_than_it_sends(peer: Peer, right: Right) -> None:
    await peer.send(right.head(f"content-length: {len(right.body) + 10}") + right.body[: len(right.body) // 2])
    await peer.left()


@attack(BROKEN, content=True)
async def sends_more_than_it_announces(peer: Peer, right: Right) -> None:
    await peer.send(right.head(f"content-length: {len(right.body) // 2}") + right.body)
    await peer.left()


@attack(GARBAGE)
async def length_is_no_number(peer: Peer, right: Right) -> None:
    await peer.send(right.head("content-length: many") + right.body)
    await peer.left()


@attack(GARBAGE)
async def two_lengths(peer: Peer, right: Right) -> None:
    await peer.send(right.head(f"content-length: {len(right.body)}\r\ncontent-length: 3") + right.body)
    await peer.left()


@attack(GARBAGE)
async def length_and_chunks(peer: Peer, right: Right) -> None:
    await peer.send(right.head("content-length: 3\r\ntransfer-encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n")
    await peer.left()


@attack(GARBAGE)
async def chunk_sizes_are_garbage(peer: Peer, right: Right) -> None:
    await peer.send(right.head("transfer-encoding: chunked") + b"zz\r\n" + right.body)
    await peer.left()


@attack(GARBAGE)
async def chunk_sizes_overflow(peer: Peer, right: Right) -> None:
    await peer.send(right.head("transfer-encoding: chunked") + b"f" * 40 + b"\r\n" + right.body)
    await peer.left()


@attack(GARBAGE)
async def chunk_is_longer_than_announced(peer: Peer, right: Right) -> None:
    await peer.send(right.head("transfer-encoding: chunked") + b"1\r\nabcdef\r\n0\r\n\r\n")
    await peer.left()


@attack(GARBAGE)
async def no_http_at_all(peer: Peer, right: Right) -> None:
    await peer.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    await peer.left()


@attack(GARBAGE)
async def http2_instead(peer: Peer, right: Right) -> None:
    await peer.send(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18)
    await peer.left()


@attack(GARBAGE)
async def a_line_break_in_a_field(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nx: a\rb\r\ncontent-length: 0\r\n\r\n")
    await peer.left()


@attack(GARBAGE)
async def switches_protocols(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
    await peer.left()


@attack((), may_pass=True)
async def answers_twice(peer: Peer, right: Right) -> None:
    await peer.send(right.answer + right.answer)
    await peer.left()


# ── without an end ────────────────────────────────────────────────────────────────────────────────────


@attack(GARBAGE)
async def endless_fields(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n")
    await peer.endless(b"x-filler: " + b"a" * 1000 + b"\r\n")


@attack(GARBAGE)
async def one_endless_field(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nx-filler: ")
    await peer.endless(b"a" * 4096)


@attack(GARBAGE)
async def endless_hints(peer: Peer, right: Right) -> None:
    await peer.endless(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 50)


@attack(GARBAGE)
async def endless_trailers(peer: Peer, right: Right) -> None:
    await peer.send(right.head("transfer-encoding: chunked") + b"1\r\n \r\n0\r\n")
    await peer.endless(b"x-filler: " + b"a" * 1000 + b"\r\n")


@attack(GARBAGE, only="whole")
async def an_endless_body(peer: Peer, right: Right) -> None:
    await peer.send(right.head("connection: close"))
    await peer.endless(b"[" + b" " * 65535)


@attack(GARBAGE, only="whole")
async def an_endless_body_in_chunks(peer: Peer, right: Right) -> None:
    await peer.send(right.head("transfer-encoding: chunked"))
    await peer.endless(b"10000\r\n" + b" " * 65536 + b"\r\n")


@attack(GARBAGE, only="whole")
async def a_body_announced_as_endless(peer: Peer, right: Right) -> None:
    await peer.send(right.head(f"content-length: {2**50}"))
    await peer.endless(b" " * 65536)


@attack((BackendError, DeadlineError), only="streams", floods=True)
async def a_line_of_ten_megabytes(peer: Peer, right: Right) -> None:
    await peer.send(right.head("transfer-encoding: chunked"))
    event = _ENCODERS[right.content_type](b"a" * (160 * 65536))
    for at in range(0, len(event), 65536):
        piece = event[at : at + 65536]
        await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    await peer.left()


@attack((BackendError, *LATE), only="streams", may_pass=True)
async def endless_comments(peer: Peer, right: Right) -> None:
    await peer.send(right.head("transfer-encoding: chunked"))
    comment = _COMMENTS[right.content_type]
    await peer.endless(b"%x\r\n%b\r\n" % (len(comment), comment), 0.01)


# ── late ──────────────────────────────────────────────────────────────────────────────────────────────


@attack(LATE)
async def sends_nothing(peer: Peer, right: Right) -> None:
    await peer.left()


@attack(LATE)
async def head_in_drops(peer: Peer, right: Right) -> None:
    for byte in right.answer[:1000]:
        await peer.send(bytes([byte]))
        await asyncio.sleep(0.05)
    await peer.left()


@attack((*LATE, BackendError))
async def body_in_drops(peer: Peer, right: Right) -> None:
    await peer.send(right.head("content-length: 100000"))
    await peer.endless(b" ", 0.05)


# ── framed well, and something else ───────────────────────────────────────────────────────────────────

PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>"


@attack(BROKEN, reusable=True)
async def a_page_for_a_failure(peer: Peer, right: Right) -> None:
    await peer.send(http(502, "text/html", PAGE))


@attack(BROKEN, reusable=True, content=True)
async def a_page_for_an_answer(peer: Peer, right: Right) -> None:
    await peer.send(http(200, "text/html", PAGE))


@attack(BROKEN, reusable=True, content=True)
async def an_empty_answer(peer: Peer, right: Right) -> None:
    await peer.send(http(200, right.content_type, b""))


@attack(BROKEN, reusable=True, content=True)
async def no_content(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")


@attack(BROKEN, reusable=True, content=True)
async def not_modified(peer: Peer, right: Right) -> None:
    await peer.send(b"HTTP/1.1 304 Not Modified\r\n\r\n")


@attack(BROKEN, reusable=True, content=True)
async def letters_that_are_none(peer: Peer, right: Right) -> None:
    await peer.send(right.other(b'{"a": "\xff\xfe\xc3("}'))


@attack(BROKEN, reusable=True, content=True)
async def json_with_nan(peer: Peer, right: Right) -> None:
    await peer.send(right.other(b'{"a": NaN, "b": [Infinity]}'))


@attack(BROKEN, reusable=True, content=True)
async def json_too_deep(peer: Peer, right: Right) -> None:
    await peer.send(right.other(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


@attack(BROKEN, reusable=True, content=True)
async def json_of_another_kind(peer: Peer, right: Right) -> None:
    await peer.send(right.other(b'[{"a": 1}, null, 7]'))


@attack(BROKEN, reusable=True, content=True)
async def null(peer: Peer, right: Right) -> None:
    await peer.send(right.other(b"null"))


BOMB = gzip.compress(b" " * (16 * 1024 * 1024), 1)


@attack(BROKEN, reusable=True, content=True)
async def a_gzip_bomb(peer: Peer, right: Right) -> None:
    await peer.send(http(200, right.content_type, BOMB, "content-encoding: gzip"))


@attack(BROKEN, reusable=True, may_pass=True)
async def an_unknown_coding(peer: Peer, right: Right) -> None:
    await peer.send(http(200, right.content_type, right.body, "content-encoding: middle-out"))


STATUS: dict[int, Kinds] = {
    401: GARBAGE, 403: GARBAGE, 408: BROKEN, 418: (InferenceError,), 429: (CapacityError,), 451: (InferenceError,),
    500: GARBAGE, 501: (InferenceError,), 503: (CapacityError, BackendError), 504: BROKEN, 529: (CapacityError,),
    599: GARBAGE, 999: GARBAGE,
    **dict.fromkeys((400, 404, 405, 409, 413, 422), (InferenceError,)),
}  # fmt: skip
"""The error class of each status, without a body that adds detail."""
REDIRECTS = (301, 302, 303, 307, 308)
