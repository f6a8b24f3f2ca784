"""Cached responses, and the cache-control of clients."""

import re
from collections import OrderedDict
from math import inf
from typing import NamedTuple

_SECONDS = re.compile(r'max-age="?(\d{1,9})"?')
OVERHEAD = 512
"""Bytes of an entry in addition to its answer."""
PART = 8
"""An answer may use at most this fraction of the store: an eighth."""


class Wish(NamedTuple):
    """The supported directives of a request's ``Cache-Control`` (RFC 9111 5.2.1)."""

    store: bool
    """Whether the answer may be stored and shared."""
    max_age: float
    """The maximum age of an answer in seconds; below 0 if only a new answer is accepted."""


_ANYTHING = Wish(store=True, max_age=inf)


def wish(cache_control: str | None) -> Wish:
    """Parse a ``Cache-Control``. Unknown directives are ignored, as HTTP requires."""
    if not cache_control:
        return _ANYTHING
    directives = {directive.strip().lower() for directive in cache_control.split(",")}
    ages = [float(match[1]) for directive in directives if (match := _SECONDS.fullmatch(directive))]
    max_age = -1.0 if "no-cache" in directives else min(ages, default=inf)
    return Wish("no-store" not in directives, max_age)


class CacheEntry(NamedTuple):
    """A whole answer, as sent to the client."""

    content_type: str
    body: bytes
    at: float
    """The time of storage."""
    form: object = None
    """The form of the body, if there are several forms."""
    ignored: tuple[str, ...] = ()
    """Fields of the request that the model's server ignored."""


class Store:
    """Answers by digest, within a number of bytes. The least recently used answer is evicted first."""

    __slots__ = ("_entries", "_max_bytes", "_ttl", "size")

    def __init__(self, ttl: float, max_bytes: int) -> None:
        self._entries: OrderedDict[bytes, CacheEntry] = OrderedDict()
        self.size = 0
        """Bytes in use."""
        self.configure(ttl, max_bytes)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def largest(self) -> int:
        """The maximum bytes of a stored answer."""
        return self._max_bytes // PART

    def configure(self, ttl: float, max_bytes: int) -> None:
        """Set new bounds, which apply to stored answers too."""
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._make_room()

    def get(self, digest: bytes, max_age: float, now: float) -> CacheEntry | None:
        """The stored answer, if its age is at most `max_age`."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        age = now - entry.at
        if age >= self._ttl:
            self._drop(digest)
            return None
        self._entries.move_to_end(digest)
        return entry if age <= max_age else None

    def put(self, digest: bytes, entry: CacheEntry) -> None:
        """Store an answer, unless it is too large or nothing is to be stored."""
        if self._ttl <= 0 or len(entry.body) > self.largest:
            return
        if digest in self._entries:
            self._drop(digest)
        self._entries[digest] = entry
        self.size += len(entry.body) + OVERHEAD
        self._make_room()

    def _make_room(self) -> None:
        while self.size > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, digest: bytes) -> None:
        self.size -= len(self._entries.pop(digest).body) + OVERHEAD
