"""Credentials that depend on the request: what they see of it, and the interface by which a client applies them."""

from typing import NamedTuple, Protocol

from adapters.http1.message import Headers


class OutgoingRequest(NamedTuple):
    """A request before it is sent."""

    method: bytes
    host: str
    """The value of the Host field."""
    target: bytes
    """The path and the query, as they are sent."""
    fields: bytes
    """The encoded header fields, other than Host and Content-Length."""
    body: bytes


class Credential(Protocol):
    """A credential that is made for each request, or renewed."""

    async def apply(self, request: OutgoingRequest) -> bytes:
        """Return the encoded header fields that authenticate the request. They are added to its own.

        Waits for a few seconds at most, and only without a valid credential. Raises `Unavailable`.
        """
        ...

    def corrects(self, applied: bytes, status: int, headers: Headers) -> bool:
        """Whether a request that a server refused may succeed with what the next `apply` returns. It is tried once.

        `applied` is what `apply` returned for the request; the status is in `REFUSED`.
        """
        ...


REFUSED = frozenset({401, 403})
"""The statuses of a response that a credential may correct."""
