"""The behaviours of impostors."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.http1.message import Request, Response

JSON = "application/json"
MiB = 1024 * 1024
_UNAVAILABLE = 14


@dataclass(frozen=True, slots=True)
class Refusing:
    """Answers every request with one error status."""

    status: int
    code: int = _UNAVAILABLE
    """The gRPC status code."""
    body: bytes = b'{"error":"no"}'
    content_type: str = JSON
    more: Mapping[str, str] = field(default_factory=dict)

    async def http(self, request: Request) -> Response:
        return Response(self.status, [("content-type", self.content_type), *self.more.items()], self.body)

    async def grpc(self, call: Any) -> None:
        from adapters.http2.status import GrpcError

        raise GrpcError(self.code, "no")


class Silent:
    """Accepts every request and never responds."""

    async def http(self, request: Request) -> Response:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def grpc(self, call: Any) -> None:
        await asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True)
class Replying:
    """Answers every request with these bytes and a successful status."""

    body: bytes
    content_type: str = JSON

    async def http(self, request: Request) -> Response:
        return Response(200, [("content-type", self.content_type)], self.body)

    async def grpc(self, call: Any) -> None:
        """End the call with status OK and without a message."""


@dataclass(slots=True)
class Endless:
    """Answers every request with an endless body, until the client disconnects."""

    content_type: str = JSON
    piece: bytes = b'"' + b"x" * MiB
    most: int = 1 << 34

    async def http(self, request: Request) -> Response:
        return Response(200, [("content-type", self.content_type)], _Pieces(self.piece, self.most))

    async def grpc(self, call: Any) -> None:
        """Begin one message with the largest possible length."""
        from adapters.http2 import call as calls
        from adapters.http2 import frames

        head = frames.header_frames(call.id, calls.HEAD, 0, call.outlet.max_frame)
        call.outlet.write(head + frames.frame(frames.DATA, 0, call.id, b"\0" + (2**31 - 1).to_bytes(4)))
        await asyncio.get_running_loop().create_future()


class _Pieces:
    def __init__(self, piece: bytes, most: int) -> None:
        self._piece = piece
        self._left = most

    def __aiter__(self) -> "_Pieces":
        return self

    async def __anext__(self) -> bytes:
        if self._left <= 0:
            raise StopAsyncIteration
        await asyncio.sleep(0)  # otherwise the loop could not detect the disconnect of the client
        self._left -= len(self._piece)
        return self._piece

    async def aclose(self) -> None:
        self._left = 0
