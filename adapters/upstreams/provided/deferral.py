"""A pass of a line of a batch through the gateway, if its pool submits lines to the provider's own batches.

A line passes twice. In the first pass the request reaches the pool's HTTP client in the provider's form, and is
deferred there: it joins a batch of the provider. In the second pass the client returns the provider's result, as if
the server had just answered. Policies, limits, prices, codecs and records are therefore those of every request.
"""

from contextvars import ContextVar
from hashlib import blake2b
from typing import NamedTuple


class DeferredRequest(NamedTuple):
    """A request in the provider's form. `url` is the path of the provider's API."""

    pool: str
    url: str
    body: bytes
    key: str
    """A digest by which the second pass recognises the request."""

    @classmethod
    def of(cls, pool: str, url: str, body: bytes) -> "DeferredRequest":
        """The request with its digest. Hashing a large body takes milliseconds, and releases Python's lock."""
        hashed = blake2b(f"{pool}\0{url}\0".encode(), digest_size=12)
        hashed.update(body)
        return cls(pool, url, body, hashed.hexdigest())


class ProvidedResult(NamedTuple):
    """The provider's response to one request of a batch."""

    status: int
    body: bytes


class Deferred(BaseException):
    """The end of a first pass. As a cancellation, it passes all handlers of failures: nothing has failed, nothing is
    charged, and the exchange ends in a later pass."""


class LinePass:
    """One pass. `results` are those of the provider by the key of the request; each serves one call, or all calls if
    it `repeats`: then a failed result is final, and no retry submits the request again."""

    __slots__ = ("_repeats", "_results", "deferred")

    def __init__(self, results: dict[str, ProvidedResult] | None = None, *, repeats: bool = False) -> None:
        self._results = results or {}
        self._repeats = repeats
        self.deferred: DeferredRequest | None = None
        """The request that ended the pass."""

    def answer(self, request: DeferredRequest) -> ProvidedResult:
        """The provider's result. Raises `Deferred` without one."""
        result = self._results.get(request.key) if self._repeats else self._results.pop(request.key, None)
        if result is None:
            self.deferred = request
            raise Deferred
        return result


line_pass: ContextVar[LinePass | None] = ContextVar("line_pass", default=None)
"""The pass that runs in this context; None for every other request."""
