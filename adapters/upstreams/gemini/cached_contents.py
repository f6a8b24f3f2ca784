"""The cached beginnings of prompts of one account: which exist, which are worth creating, and how they stay alive.

Google charges the price of the whole beginning for its creation, and storage for each hour. So a beginning is created
when a second request begins with it, in the background: that request is sent whole, and later ones name the cache. A
conversation gets a longer beginning each time it has grown by half, so all creations together cost about three times
its final length. A cache is known to this process only, and serves one tenant.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from contextvars import Context
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from adapters.call import Call
from adapters.errors import InferenceError
from adapters.http1.client import Client
from adapters.types import Deadline
from adapters.upstreams.failed_status import MAX_ERROR_BODY
from adapters.upstreams.gemini.paths import GeminiPaths
from adapters.wire import error_table
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.gemini import generations
from adapters.wire.gemini.cache_points import CacheableEnd, CacheablePrompt, CachePlace
from adapters.wire.prompt_cache import Breakpoints

log = logging.getLogger(__name__)

Object = dict[str, Any]
K = TypeVar("K")
V = TypeVar("V")

LEAST_AT_VERTEX = 2048
"""Tokens of the shortest cache at Vertex AI, for every model."""
GROWTH = 1.5
"""A conversation gets a longer cache when it is so many times as long as its last one."""
MARGIN = 10.0
"""Seconds before its end at which a cache is no longer named."""
PATIENCE = 60.0
"""Seconds for a creation, and between creations for one tenant and model after a failure."""
REST = 600.0
"""Seconds without creations after the account has been refused."""
MOST_TASKS = 4
"""Creations and renewals at a time. While they run, other prompts are sent whole."""
MOST_CACHES = 512
MOST_SEEN = 8192
MOST_RESTS = 1024
_SHORT = re.compile(r"min_total_token_count\s*=\s*(\d{1,9})")
_NAME = re.compile(r"(projects/[\w.:-]{1,128}/locations/[a-z0-9-]{1,63}/)?cachedContents/[A-Za-z0-9_-]{1,128}")
_LOST = (400, 403, 404)
"""Statuses of a request whose cache has expired, is unknown, or belongs to another account."""

_encode = msgspec.json.Encoder().encode


class _Created(msgspec.Struct):
    name: str


_created = msgspec.json.Decoder(_Created).decode


class _Cache(msgspec.Struct):
    name: str
    tokens: int
    ttl: int
    until: float
    """Loop time."""
    works: bool = False
    """Whether a request that named it was answered."""


class NamedCache(NamedTuple):
    """A request that names a cache, and the cache's place in the table."""

    fields: Object
    digest: bytes


class _Marked(NamedTuple):
    """A request with marks."""

    prompt: CacheablePrompt
    places: Sequence[CachePlace]
    ends: list[CacheableEnd]
    live: CacheableEnd | None
    """The end of the longest cache that exists."""
    model: str
    owner: bytes
    """The tenant, and the model."""


class CachedContents:
    """The caches of one endpoint with its account."""

    def __init__(
        self,
        client: Client,
        paths: GeminiPaths,
        fields: bytes,
        points: Breakpoints | None,
        *,
        pool: str = "",
        of_vertex: bool = False,
    ) -> None:
        """`fields` are the header fields of every request. `points`: where the pool itself marks prompts."""
        self.points = points
        self._pool = pool
        self._client = client
        self._paths = paths
        self._fields = fields
        self._of_vertex = of_vertex
        self._caches: OrderedDict[bytes, _Cache] = OrderedDict()
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        """Beginnings of requests, until when a second request counts."""
        self._rests: OrderedDict[bytes, float] = OrderedDict()
        """Beginnings that are refused, and owners whose creations have failed, until when."""
        self._least: OrderedDict[str, int] = OrderedDict()
        """The shortest cache of a model, as a refusal has reported it."""
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    def named(self, fields: Object, places: Sequence[CachePlace], call: Call, model: str) -> NamedCache | None:
        """The request that names the longest cache of its beginning; None if none exists.

        `places` are the client's marks. Marks that cannot have a cache are reported. Without any, those of the pool
        apply. A cache that is worth creating is created in the background. Raises `CallerError` on a strict route.
        """
        prompt = CacheablePrompt.of(fields)
        given = places or (prompt.places(self.points) if prompt is not None and self.points is not None else ())
        if prompt is None or not given:
            return None
        now, owner = self._client.now(), b"%b\0%b" % (call.tenant.encode(), model.encode())
        ends, tokens = prompt.ends(owner, max(given))
        live = next((end for end in reversed(ends) if self._is_live(end.digest, now)), None)
        least = self._shortest(model, of_pool=not places)
        is_short = not least or tokens < least
        if not is_short and not self._rests_until(owner, now):
            self._prepare(_Marked(prompt, given, ends, live, model, owner), least)
        elif places and live is None and (is_short or not call.ignored.strict):
            call.ignored.ignore("cache_control")  # a strict route accepts what only a failure prevents
        if live is None:
            return None
        cache = self._caches[live.digest]
        self._caches.move_to_end(live.digest)
        if cache.until - now < cache.ttl / 2:
            self._start(live.digest, self._renew(live.digest, cache))
        return NamedCache(prompt.rest(live, cache.name), live.digest)

    def is_lost(self, status: int, body: bytes) -> bool:
        """Whether a request failed because of the cache that it named."""
        return status in _LOST and (status != 400 or b"cach" in body.lower())

    def answered(self, digest: bytes) -> None:
        """Note that a request was answered with this cache."""
        if (cache := self._caches.get(digest)) is not None:
            cache.works = True

    def forget(self, digest: bytes) -> None:
        """Name a cache no longer. One that has never worked is not created again soon, because that costs money."""
        cache = self._caches.pop(digest, None)
        if cache is not None and not cache.works:
            _put(self._rests, digest, self._client.now() + REST, MOST_RESTS)

    async def aclose(self) -> None:
        """End the creations that are running. The caches end by themselves."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── which caches ──────────────────────────────────────────────────────────────────────────────────

    def _shortest(self, model: str, *, of_pool: bool) -> int:
        """The tokens of the shortest cache; 0 for a model without caches."""
        least = generations.generation_of(model).least_cached
        if least and self._of_vertex:
            least = LEAST_AT_VERTEX
        least = self._least.get(model, least)
        return max(least, self.points.min_tokens) if least and of_pool and self.points is not None else least

    def _is_live(self, digest: bytes, now: float) -> bool:
        return (cache := self._caches.get(digest)) is not None and cache.until > now

    def _rests_until(self, key: bytes, now: float) -> bool:
        return self._rests.get(key, 0.0) > now

    def _prepare(self, marked: _Marked, least: int) -> None:
        """Create the longest beginning that an earlier request had, if it is worth a cache; note those of this one."""
        now, prompt, ends = self._client.now(), marked.prompt, marked.ends
        ats = [(end, place.ttl) for place in marked.places if (end := prompt.at(place, ends)) is not None]
        longer = least if marked.live is None else max(least, int(marked.live.tokens * GROWTH))
        for end in reversed(ends):
            if end.tokens < longer:
                break
            if self._seen.get(end.digest, 0.0) > now and not self._rests_until(end.digest, now):
                ttl = max(ttl for at, ttl in ats if at >= end)
                fields = {"model": self._paths.resource(marked.model), **prompt.beginning(end), "ttl": f"{ttl}s"}
                self._start(end.digest, self._create(marked, end, _encode(fields), ttl))
                break
        for at, ttl in ats:
            if at.tokens >= least:
                _put(self._seen, at.digest, now + ttl, MOST_SEEN)

    # ── creations and renewals ────────────────────────────────────────────────────────────────────────

    def _start(self, digest: bytes, work: Coroutine[Any, Any, None]) -> None:
        """Run in the background. A request's context would lead the work elsewhere: to a relay, or into a batch."""
        if digest in self._tasks or len(self._tasks) >= MOST_TASKS:
            work.close()
            return
        task = self._tasks[digest] = asyncio.create_task(work, name="cached contents", context=Context())
        task.add_done_callback(lambda _: self._tasks.pop(digest, None))

    async def _create(self, marked: _Marked, end: CacheableEnd, body: bytes, ttl: int) -> None:
        started, path = self._client.now(), self._paths.caches
        assert path is not None
        status, answer = await self._sent(b"POST", path, body)
        if status == 200:
            name = _name_of(answer)
            if name is not None:
                cache = _Cache(name, end.tokens, ttl, started + ttl - MARGIN)
                _put(self._caches, end.digest, cache, MOST_CACHES)
                return
            status = 502
        message = error_table.decode_error(answer).message or ""
        self._refused(marked, end, status, message)

    def _refused(self, marked: _Marked, end: CacheableEnd, status: int, message: str) -> None:
        """Rest after a creation that has failed."""
        now = self._client.now()
        if 400 <= status < 500 and status not in (408, 429, 499):
            _put(self._rests, end.digest, now + REST, MOST_RESTS)
        if (short := _SHORT.search(message)) is not None:
            _put(self._least, marked.model, int(short[1]), MOST_RESTS)
            return
        of_account = status in (401, 403, 404)
        _put(self._rests, marked.owner, now + (REST if of_account else PATIENCE), MOST_RESTS)
        log.warning("pool %s: no cached contents of %s: %s %s", self._pool, marked.model, status, message[:200])

    async def _renew(self, digest: bytes, cache: _Cache) -> None:
        """Have a cache live on: its life counts from its last use."""
        started = self._client.now()
        status, _ = await self._sent(b"PATCH", self._paths.cache(cache.name), _encode({"ttl": f"{cache.ttl}s"}))
        if status == 200:
            cache.until = started + cache.ttl - MARGIN
        elif status in _LOST:
            self.forget(digest)

    async def _sent(self, method: Literal[b"POST", b"PATCH"], path: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer; 503 if none arrives."""
        deadline = Deadline(self._client.now() + PATIENCE, PATIENCE, PATIENCE)
        try:
            response = await self._client.request(method, path.encode(), self._fields, body, deadline)
            try:
                return response.status, await response.read(MAX_ERROR_BODY)
            finally:
                response.close()
        except InferenceError as error:
            return 503, error.message.encode()


def _name_of(answer: bytes) -> str | None:
    """The name of a new cache, which becomes a part of paths; None for an answer without one."""
    try:
        name = _created(answer).name
    except MALFORMED_JSON:
        return None
    return name if _NAME.fullmatch(name) else None


def _put(table: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Set the newest entry. The oldest one gives way."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > most:
        table.popitem(last=False)
