"""Shell-style patterns over names: ``fnmatch``, case-sensitive, compiled once."""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Generic, TypeVar

from config.schema.config import is_glob

T = TypeVar("T")

# Names come from clients: the number and the length of cached names are bounded.
MEMO_ENTRIES = 1024
MEMO_NAME_LENGTH = 256


def glob(pattern: str) -> Callable[[str], bool]:
    """A predicate that matches a pattern against the whole text."""
    if not is_glob(pattern):
        return pattern.__eq__
    match = re.compile(translate(pattern)).match
    return lambda text: match(text) is not None


class GlobTable(Generic[T]):
    """Values by name or by glob: an exact name first, then globs in the order given."""

    __slots__ = ("_exact", "_globs", "_cached")

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        self._exact: dict[str, T] = {}
        globs: list[tuple[Callable[[str], bool], T]] = []
        for pattern, value in entries:
            if is_glob(pattern):
                globs.append((glob(pattern), value))
            else:
                self._exact.setdefault(pattern, value)
        self._globs = tuple(globs)
        self._cached = dict(self._exact)  # the exact names, and cached names that a glob matches

    def find(self, name: str) -> T | None:
        value = self._cached.get(name)
        return self._search(name) if value is None else value

    def _search(self, name: str) -> T | None:
        for matches, value in self._globs:
            if matches(name):
                self._remember(name, value)
                return value
        return None  # not cached: the number of unknown names is unbounded

    def _remember(self, name: str, value: T) -> None:
        if len(name) > MEMO_NAME_LENGTH:
            return
        if len(self._cached) >= len(self._exact) + MEMO_ENTRIES:
            self._cached = dict(self._exact)
        self._cached[name] = value


class GlobSet(GlobTable[bool]):
    """A set of patterns: ``name in set`` is true if any pattern matches."""

    __slots__ = ()

    def __init__(self, patterns: Iterable[str]) -> None:
        super().__init__((pattern, True) for pattern in patterns)

    def __contains__(self, name: str) -> bool:
        return name in self._cached or self._search(name) is not None
