"""The origin of a request: its standing in the scheduler, and the salt of its prefix cache."""

from hashlib import blake2b
from typing import NamedTuple

from adapters.wire.internal_headers import InternalHeaders
from runtimes.llm.engine.standing import Standing


class RequestOrigin(NamedTuple):
    """Only requests of the same `salt` share pages of the prefix cache."""

    salt: bytes
    standing: Standing

    @classmethod
    def of(cls, headers: InternalHeaders, salt: str | None, priority: int | None, now: float) -> "RequestOrigin":
        """Combine the gateway's `headers` with the body's fields: the body's `priority` can only lower that of the
        headers, and its `salt` divides the tenant's own cache."""
        owner = headers.tenant if headers.salt is None else headers.salt
        ranks = [number for number in (headers.priority, priority) if number is not None]
        standing = Standing(headers.tenant, headers.share, max(ranks, default=0), now + headers.seconds)
        key = f"{owner}\n{salt or ''}".encode(errors="surrogatepass")
        return cls(blake2b(key, digest_size=16).digest(), standing)
