"""Answers that are kept, and what a client says about them."""

import re
from collections import OrderedDict
from math import inf
from typing import NamedTuple

_SECONDS = re.compile(r'max-age="?(\d{1,9})"?')
OVERHEAD = 512
"""Bytes that an entry takes beside its answer."""
PART = 8
"""An answer takes an eighth of the store at most."""


class Wish(NamedTuple):
    """A request's ``Cache-Control`` (RFC 9111 5.2.1), as far as it is understood here."""

    store: bool
    """Whether the answer may be shared with anybody at all."""
    max_age: float
    """Seconds that an answer may be old; below 0 when it has to be new."""


_ANYTHING = Wish(store=True, max_age=inf)


def wish(cache_control: str | None) -> Wish:
    """What is not understood changes nothing, as HTTP has it."""
    if not cache_control:
        return _ANYTHING
    directives = {directive.strip().lower() for directive in cache_control.split(",")}
    ages = [float(match[1]) for directive in directives if (match := _SECONDS.fullmatch(directive))]
    max_age = -1.0 if "no-cache" in directives else min(ages, default=inf)
    return Wish("no-store" not in directives, max_age)


class Entry(NamedTuple):
    """A whole answer, as it was sent."""

    content_type: str
    body: bytes
    at: float
    """When it was kept."""
    form: object = None
    """What it is written in, where there are several ways."""
    ignored: tuple[str, ...] = ()
    """Fields of the request that the model's server left out."""


class Store:
    """Answers by digest, within so many bytes; the one unused for longest makes room."""

    __slots__ = ("_entries", "_max_bytes", "_ttl", "size")

    def __init__(self, ttl: float, max_bytes: int) -> None:
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.size = 0
        """Bytes in use."""
        self.configure(ttl, max_bytes)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def largest(self) -> int:
        """Bytes of an answer that is still kept."""
        return self._max_bytes // PART

    def configure(self, ttl: float, max_bytes: int) -> None:
        """New bounds, which count for what is kept already."""
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._make_room()

    def get(self, digest: bytes, max_age: float, now: float) -> Entry | None:
        """The answer, if there is one of that age at most."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        age = now - entry.at
        if age >= self._ttl:
            self._drop(digest)
            return None
        self._entries.move_to_end(digest)
        return entry if age <= max_age else None

    def put(self, digest: bytes, entry: Entry) -> None:
        """Keep it, unless it is too large, or nothing is kept at all."""
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
