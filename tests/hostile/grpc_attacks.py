"""Attacks of a server over gRPC, and the errors in which they may end."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    TransportError,
    Unsupported,
)
from adapters.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    frame,
    goaway,
    rst_stream,
)
from tests.hostile.attacks import BROKEN, GARBAGE, LATE, Kinds
from tests.hostile.grpc_server import HEAD, H2Peer, framed

ANY: Kinds = (BackendError, TransportError, CapacityError)
"""HTTP/2's error codes: some mean that the server is full, or that it did not process the request."""


@dataclass(frozen=True)
class GrpcAttack:
    """An attack like `attacks.Attack`. `once`: only for calls with one answer, not for streams."""

    name: str
    play: Callable[[H2Peer, bytes], Awaitable[None]]
    ends: Kinds
    reusable: bool = False
    content: bool = False
    once: bool = False
    floods: bool = False
    """The server ignores cancellation until the connection is closed."""


ATTACKS: list[GrpcAttack] = []


def attack(ends: Kinds, **more: object) -> Callable[[Callable[[H2Peer, bytes], Awaitable[None]]], None]:
    """Add a function to the list. It receives the correct message."""

    def add(play: Callable[[H2Peer, bytes], Awaitable[None]]) -> None:
        ATTACKS.append(GrpcAttack(play.__name__, play, ends, **more))  # type: ignore[arg-type]

    return add


# ── cut off ───────────────────────────────────────────────────────────────────────────────────────────


@attack(ANY)
async def closes_at_once(peer: H2Peer, right: bytes) -> None:
    peer.close()


@attack(ANY)
async def resets_after_the_head(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await asyncio.sleep(0.01)
    peer.reset()


@attack(ANY)
async def closes_in_a_message(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(framed(right)[:-1])
    peer.close()


@attack(ANY)
async def closes_in_a_frame(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.send(frame(DATA, 0, peer.stream, framed(right))[:-1])
    peer.close()


@attack(BROKEN, reusable=True)
async def ends_in_a_message(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(framed(right)[:-1])
    await peer.status(b"0")


@attack(BROKEN, reusable=True)
async def ends_in_a_prefix(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(b"\x00\x00", END_STREAM)


@attack(ANY, reusable=True)
async def ends_without_a_status(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(framed(right), END_STREAM)


@attack(ANY)
async def leaves(peer: H2Peer, right: bytes) -> None:
    await peer.send(goaway(0, ErrorCode.ENHANCE_YOUR_CALM))
    peer.close()


# ── no HTTP/2 ─────────────────────────────────────────────────────────────────────────────────────────


@attack(ANY)
async def http1_instead(peer: H2Peer, right: bytes) -> None:
    await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n" * 20)
    await peer.left()


@attack(ANY)
async def bytes_of_chance(peer: H2Peer, right: bytes) -> None:
    await peer.send(bytes(range(256)) * 300)
    await peer.left()


@attack(ANY)
async def a_frame_too_large(peer: H2Peer, right: bytes) -> None:
    await peer.send(b"\xff\xff\xff" + bytes([HEADERS, END_HEADERS]) + peer.stream.to_bytes(4, "big"))
    await peer.endless(b"\x00" * 65536)


@attack(ANY)
async def data_of_no_stream(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(DATA, 0, 0, b"abc"))
    await peer.left()


@attack(ANY)
async def an_unrequested_answer(peer: H2Peer, right: bytes) -> None:
    peer.stream += 100
    await peer.answer(right)
    await peer.left()


@attack(ANY)
async def a_promise(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(PUSH_PROMISE, END_HEADERS, peer.stream, (2).to_bytes(4, "big")))
    await peer.left()


@attack(ANY)
async def fields_that_cannot_be_read(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(HEADERS, END_HEADERS, peer.stream, b"\xff" * 40))
    await peer.left()


@attack(ANY)
async def a_header_block_that_is_interrupted(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(HEADERS, 0, peer.stream, b"\x88") + frame(PING, 0, 0, b"12345678"))
    await peer.left()


@attack(ANY)
async def a_window_that_overflows(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(WINDOW_UPDATE, 0, 0, (2**31 - 1).to_bytes(4, "big")) * 2)
    await peer.left()


@attack(ANY)
async def settings_that_cannot_be(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(SETTINGS, 0, 0, (5).to_bytes(2, "big") + (1).to_bytes(4, "big")))
    await peer.left()


@attack(ANY)
async def a_priority_of_the_wrong_size(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(PRIORITY, 0, peer.stream, b"1") + frame(RST_STREAM, 0, peer.stream, b"1"))
    await peer.left()


# ── without an end ────────────────────────────────────────────────────────────────────────────────────


@attack(ANY)
async def endless_continuations(peer: H2Peer, right: bytes) -> None:
    await peer.send(frame(HEADERS, 0, peer.stream, b"\x88"))
    await peer.endless(frame(CONTINUATION, 0, peer.stream, b"\x00\x01a\x7f\xff\x01" + b"b" * 250))


@attack(ANY)
async def endless_pings(peer: H2Peer, right: bytes) -> None:
    await peer.endless(frame(PING, 0, 0, b"12345678") * 500)


@attack(ANY)
async def endless_settings(peer: H2Peer, right: bytes) -> None:
    await peer.endless(frame(SETTINGS, 0, 0) * 500)


@attack(ANY)
async def endless_frames_of_nothing(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.endless(frame(DATA, 0, peer.stream) * 500)


@attack(ANY, reusable=True)
async def more_fields_than_fit(peer: H2Peer, right: bytes) -> None:
    await peer.headers([*HEAD, *[(b"x-%d" % number, b"a" * 1000) for number in range(15)]])
    for _ in range(20):
        await peer.headers([(b"x-%d" % number, b"a" * 1000) for number in range(15)])


@attack(GARBAGE, reusable=True)
async def a_message_announced_as_too_large(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(b"\x00\x7f\xff\xff\xff")


@attack(GARBAGE, floods=True)
async def a_message_without_an_end(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(b"\x00\x7f\xff\xff\xff")
    await peer.endless(frame(DATA, 0, peer.stream, b"a" * 16000) * 16)


@attack(GARBAGE, once=True, floods=True)
async def messages_without_an_end(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.endless(frame(DATA, 0, peer.stream, framed(right) * 100) * 50)


# ── late ──────────────────────────────────────────────────────────────────────────────────────────────


@attack(LATE, reusable=True)
async def sends_nothing(peer: H2Peer, right: bytes) -> None:
    pass


@attack(LATE, reusable=True)
async def a_head_and_nothing(peer: H2Peer, right: bytes) -> None:
    await peer.head()


@attack(LATE, reusable=True)
async def a_message_in_drops(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(b"\x00\x00\x01\x00\x00")
    for _ in range(12):
        await peer.data(b"a")
        await asyncio.sleep(0.03)


# ── framed well, and something else ───────────────────────────────────────────────────────────────────


@attack(BROKEN, reusable=True, once=True)
async def no_message(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.status(b"0")


@attack(BROKEN, reusable=True, once=True)
async def two_messages(peer: H2Peer, right: bytes) -> None:
    await peer.answer(right, right)


@attack(BROKEN, reusable=True, content=True)
async def a_message_of_another_kind(peer: H2Peer, right: bytes) -> None:
    await peer.answer(b"\xff" * 30)


@attack(BROKEN, reusable=True)
async def an_unknown_flag(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(framed(right, 7))
    await peer.status(b"0")


@attack(BROKEN, reusable=True)
async def compressed_by_nothing(peer: H2Peer, right: bytes) -> None:
    await peer.head()
    await peer.data(framed(right, 1))
    await peer.status(b"0")


BOMB = gzip.compress(b" " * (16 * 1024 * 1024), 9)


@attack(BROKEN, reusable=True)
async def a_bomb(peer: H2Peer, right: bytes) -> None:
    await peer.headers([*HEAD, (b"grpc-encoding", b"gzip")])
    data = framed(BOMB, 1)
    for at in range(0, len(data), 16000):
        await peer.data(data[at : at + 16000])
    await peer.status(b"0")


@attack(ANY, reusable=True)
async def a_page(peer: H2Peer, right: bytes) -> None:
    await peer.headers([(b":status", b"502"), (b"content-type", b"text/html")])
    await peer.data(b"<!DOCTYPE html><h1>Bad Gateway</h1>", END_STREAM)


@attack(BROKEN, reusable=True)
async def a_page_for_an_answer(peer: H2Peer, right: bytes) -> None:
    await peer.headers([(b":status", b"200"), (b"content-type", b"text/html")])
    await peer.data(b"<!DOCTYPE html><h1>Welcome</h1>", END_STREAM)


@attack((BackendError, TransportError, Unsupported), reusable=True)
async def a_redirect(peer: H2Peer, right: bytes) -> None:
    await peer.headers([(b":status", b"302"), (b"location", b"http://127.0.0.1:9/")], END_STREAM)


STATUS: dict[bytes, Kinds] = {
    b"1": (InferenceError,), b"2": BROKEN, b"3": (CallerError,), b"4": (TransportError,), b"5": (InferenceError,),
    b"6": (InferenceError,), b"7": GARBAGE, b"8": (CapacityError,), b"9": (InferenceError,), b"10": (InferenceError,),
    b"11": (InferenceError,), b"12": (InferenceError,), b"13": BROKEN, b"14": (CapacityError,), b"15": BROKEN,
    b"16": GARBAGE, b"17": BROKEN, b"999": BROKEN, b"-1": BROKEN, b"many": BROKEN, b"": BROKEN,
}  # fmt: skip
CODES = [*ErrorCode, 4711]
"""Error codes for reset streams and ended connections."""


def reset(peer: H2Peer, code: int) -> bytes:
    return rst_stream(peer.stream, code)  # type: ignore[arg-type]
