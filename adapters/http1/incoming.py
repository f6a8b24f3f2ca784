"""A request that is being received: its body comes from the connection it came on."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adapters.errors import InferenceError
from adapters.http1.head import Fields
from adapters.http1.message import Headers, Request

if TYPE_CHECKING:
    from adapters.http1.connection import Connection

SMALL_PIECE = 4 * 1024
"""Bytes below which a piece of a body is copied to the one before it."""


class Incoming(Request):
    """What the connection knows of one request: how much of it is here, what is wrong with it, what it asks of
    the connection. Fronts see a `Request`."""

    __slots__ = (
        "body", "complete", "connection", "error", "expects_continue", "http11", "keep_alive", "length",
        "size", "wanted",
    )  # fmt: skip

    def __init__(self, connection: "Connection", method: str, target: bytes, fields: Fields, *, http11: bool) -> None:
        super().__init__(method, target, Headers(fields), connection.peer)
        self.connection = connection
        self.http11 = http11
        self.keep_alive = True
        self.expects_continue = http11 and b"expect" in fields
        self.body: list[bytes | bytearray] = []
        self.length = 0  # as the head gives it
        self.size = 0
        self.complete = False
        self.wanted = False
        self.error: InferenceError | None = None

    def add(self, piece: bytes) -> None:
        """Small pieces are put together at once: each would cost more than its own bytes."""
        body = self.body
        if not body or len(piece) >= SMALL_PIECE:
            body.append(piece)
        elif isinstance(body[-1], bytearray):
            body[-1] += piece
        else:
            body.append(bytearray(piece))

    async def read(self) -> bytes:
        if not self.complete and self.error is None:
            self.wanted = True
            await self.connection.receive_body(self)
        if self.error is not None:
            raise self.error
        if len(self.body) != 1 or isinstance(self.body[0], bytearray):
            self.body = [b"".join(self.body)]  # the pieces are freed
        return bytes(self.body[0])

    @property
    def peer_certificate(self) -> Mapping[str, Any] | None:
        return self.connection.peer_certificate()
