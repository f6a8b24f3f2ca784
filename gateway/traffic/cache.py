"""An exact response cache, and one upstream call for simultaneous identical requests."""

import asyncio
import hashlib
from collections.abc import Callable

import msgspec

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.requests import ModelRequest
from adapters.stream import OnePiece
from adapters.types import Form, Usage
from adapters.upstreams.deferral import line_pass
from config.schema.config import CacheConfig
from gateway.traffic.coalesce import Flight, FlightReader
from policies.cache import CacheEntry, Store, wish

RESULT = "x-headrace-cache"
WORTH_JOINING = 0.5
"""The part of a request's time that a call must have left for the request to join it."""

LARGE_BODY = 1024 * 1024
"""Bytes from which hashing would delay other requests."""

_encode = msgspec.json.Encoder().encode


class Shelf:
    """The stored answers of one route, and the calls in progress. Outlives reloads."""

    def __init__(self, config: CacheConfig) -> None:
        self.store = Store(config.ttl, config.max_bytes)
        self.flights: dict[bytes, Flight] = {}


class Cache:
    """An `Upstream` that shares the answer of one call among identical requests.

    Only whole answers of the route's first pool are stored. A failure is raised to all readers of the call and is not
    stored. `salt` distinguishes the pools of the route, as another pool has other answers.
    """

    def __init__(
        self,
        upstream: Upstream,
        shelf: Shelf,
        config: CacheConfig,
        *,
        salt: bytes,
        model: str,
        pool: str,
        clock: Callable[[], float],
    ) -> None:
        self._upstream = upstream
        self._shelf = shelf
        self._config = config
        self._salt = salt
        self._model = model
        self._pool = pool
        self._clock = clock

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        directives = wish(call.headers.get("cache-control"))
        certain = self._config.only == "all" or request.codec.is_deterministic(request)
        if not (directives.store and certain and request.shareable):
            answer = await self._upstream.call(request, call)
            return self._noted(call, answer, "bypass")
        digest = await self._digest_of(request, call)
        now = self._clock()
        if directives.max_age >= 0:
            entry = self._shelf.store.get(digest, directives.max_age, now)
            if entry is not None:
                call.ignored.add(entry.ignored)
                return self._noted(call, _replayed(entry, stream=request.stream), "hit", int(now - entry.at))
            flight = None if line_pass.get() is not None else self._shelf.flights.get(digest)
            if flight is not None and self._may_join(flight, call, now):
                answer = await self._join(flight, call, now)
                call.ignored.add(flight.ignored)
                return answer
        if line_pass.get() is not None:  # a deferred line has no answer that others could share
            return self._noted(call, await self._upstream.call(request, call), "bypass")
        flight = Flight(
            self._upstream, request, call, self._shelf.store.largest, lambda flight: self._landed(digest, flight)
        )
        self._shelf.flights[digest] = flight
        return self._noted(call, await FlightReader(flight).begun(), "miss")

    async def _digest_of(self, request: ModelRequest, call: Call) -> bytes:
        """Hash the request, a large one on a thread: hashing releases Python's lock."""
        if request.size < LARGE_BODY:
            return self._digest(request, call)
        return await asyncio.to_thread(self._digest, request, call)

    def _digest(self, request: ModelRequest, call: Call) -> bytes:
        """The digest of the request, of the pools, and of the tenant or key that may share the answer."""
        share = (call.tenant, call.key if self._config.share == "key" else "")
        hashed = hashlib.blake2b(self._salt + _encode(share), digest_size=32)
        for part in request.codec.canonical(request):
            hashed.update(part)
        return hashed.digest()

    def _may_join(self, flight: Flight, call: Call, now: float) -> bool:
        """Whether a request may join the call. A call with little time left would fail a request that has time."""
        return flight.is_whole and flight.call.deadline.at - now >= WORTH_JOINING * (call.deadline.at - now)

    async def _join(self, flight: Flight, call: Call, now: float) -> Answer:
        try:
            answer = await FlightReader(flight).begun()
        except BaseException:
            if not flight.readers and flight.over:  # the last reader pays for the prompt
                call.trace.upstream_seconds += self._clock() - now
            raise
        call.trace.upstream_seconds += self._clock() - now
        return self._noted(call, answer, "coalesced")

    def _landed(self, digest: bytes, flight: Flight) -> None:
        if self._shelf.flights.get(digest) is flight:
            del self._shelf.flights[digest]
        answer = flight.answer
        if answer is None or flight.error is not None or not flight.is_whole or answer.pool != self._pool:
            return
        if answer.status == 200:
            entry = CacheEntry(answer.content_type, b"".join(flight.pieces), self._clock(), answer.form, flight.ignored)
            self._shelf.store.put(digest, entry)

    def _noted(self, call: Call, answer: Answer, result: str, age: int | None = None) -> Answer:
        answer.headers += ((RESULT, result),) if age is None else ((RESULT, result), ("age", str(age)))
        call.trace.event(f"cache_{result}", self._model)
        return answer


def _replayed(entry: CacheEntry, *, stream: bool) -> Answer:
    if stream:
        return OnePiece(entry.body, content_type=entry.content_type, usage=Usage(exact=True), form=_form(entry))
    return Answer(content_type=entry.content_type, body=entry.body, usage=Usage(exact=True), form=_form(entry))


def _form(entry: CacheEntry) -> Form:
    assert isinstance(entry.form, Form)  # the form that was stored with the entry
    return entry.form
