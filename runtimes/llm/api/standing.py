"""Whose a request is and how urgent, which decides between those that wait."""

from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import NamedTuple

from adapters.wire.internal_headers import InternalHeaders


@dataclass(frozen=True, slots=True)
class Standing:
    """What a request brings to the scheduler beside its prompt.

    `share` is the tenant's weight beside other tenants. The lowest `priority` goes first, as vLLM has it. After
    `deadline`, a time of the engine's clock, nobody wants the answer any more. Raises ValueError for a share that is
    no weight.
    """

    tenant: str = ""
    share: float = 1.0
    priority: int = 0
    deadline: float = inf

    def __post_init__(self) -> None:
        if not 0 < self.share < inf:
            raise ValueError(f"share must be a number above 0, not {self.share}")


NOBODY = Standing()
"""Of a request that says nothing about itself."""


class RequestOrigin(NamedTuple):
    """Who asks. `salt`: only requests with the same one share what is kept of their prompts."""

    salt: bytes
    standing: Standing

    @classmethod
    def of(cls, told: InternalHeaders, salt: str | None, priority: int | None, now: float) -> "RequestOrigin":
        """Of what the gateway told in headers, and of what the request itself says: a `priority` that can only be
        lower than what the gateway told, and a `salt` within the tenant's own."""
        whose = f"{told.tenant if told.salt is None else told.salt}\n{salt or ''}".encode(errors="surrogatepass")
        rank = [number for number in (told.priority, priority) if number is not None]
        standing = Standing(told.tenant, told.share, max(rank, default=0), now + told.seconds)
        return cls(blake2b(whose, digest_size=16).digest(), standing)
