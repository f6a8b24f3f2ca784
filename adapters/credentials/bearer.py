"""A token in a header of every request."""

from adapters.credentials.renewed import Renewed
from adapters.http1.message import Headers, encode_fields
from adapters.http1.signing import OutgoingRequest


class BearerCredential:
    """See `adapters.http1.signing.Credential`. Pools with the same source share its tokens. `more` are further fields
    of every request."""

    def __init__(
        self, pool: str, source: Renewed[str], header: str = "authorization", more: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._pool = pool
        self._source = source
        self._header = header.lower()
        self._more = more
        self._token = ""
        self._fields = b""
        source.pools.add(pool)

    async def apply(self, request: OutgoingRequest) -> bytes:
        token = self._source.valid
        if token is None:
            token = await self._source.get(self._pool)
        if token is not self._token:
            value = f"Bearer {token}" if self._header == "authorization" else token
            self._token, self._fields = token, encode_fields([(self._header, value), *self._more])
        return self._fields

    def corrects(self, applied: bytes, status: int, headers: Headers) -> bool:
        """A server may refuse a token before its expiry, if it was revoked."""
        return status == 401 and (applied != self._fields or self._source.discards(self._token))
