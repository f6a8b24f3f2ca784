"""A token in the header fields of every request."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from adapters.credentials.renewed import Renewed
from adapters.http1.message import Headers, encode_fields
from adapters.http1.signing import OutgoingRequest

T = TypeVar("T")


class BearerCredential(Generic[T]):
    """See `adapters.http1.signing.Credential`. Pools with the same source share its tokens.

    `fields` returns the header fields of a token.
    """

    def __init__(self, pool: str, source: Renewed[T], fields: Callable[[T], Sequence[tuple[str, str]]]) -> None:
        self._pool = pool
        self._source = source
        self._fields_of = fields
        self._token: T | None = None
        self._fields = b""
        source.pools.add(pool)

    async def apply(self, request: OutgoingRequest) -> bytes:
        token = self._source.valid
        if token is None:
            token = await self._source.get(self._pool)
        if token is not self._token:
            self._token, self._fields = token, encode_fields(self._fields_of(token))
        return self._fields

    def corrects(self, applied: bytes, status: int, headers: Headers) -> bool:
        """A server may refuse a token before its expiry, if it was revoked."""
        if status != 401 or self._token is None:
            return False
        return applied != self._fields or self._source.discards(self._token)


def bearer(header: str = "authorization") -> Callable[[str], list[tuple[str, str]]]:
    """What writes a token to a header: a Bearer token in `authorization`, the bare token in any other."""
    name = header.lower()
    return lambda token: [(name, f"Bearer {token}" if name == "authorization" else token)]
