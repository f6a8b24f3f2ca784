"""The objects of a place, as a view in the cache. A pull that fails leaves the view before in service."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from adapters.stores.cache import CachedFile, CacheRoom, StoreCache
from adapters.stores.layers import together
from adapters.stores.source import MAX_FILES, ObjectSource, StoredObject, StoreError, checked_path
from adapters.stores.transfer import fetch

PARALLEL: Final = 4
"""Objects that are transferred at once."""


class Pulled(NamedTuple):
    """The result of a pull."""

    view: Path
    files: int
    size: int
    """Bytes of all files of the view."""
    transferred: int
    """Bytes that came over the network."""


class Puller:
    """Pulls one place again and again. What has not changed is not even looked for in the cache."""

    def __init__(self, place: str, source: ObjectSource, cache: StoreCache) -> None:
        self._place = place
        self._source = source
        self._cache = cache
        self._last = ""
        self._pulled: Pulled | None = None

    async def pull(self) -> Pulled:
        """The view of the present objects, which is current from then on. Raises `StoreError`."""
        try:
            items = await self._source.items()
            _check(items)
            seen = _digest(self._place, items)
            if self._pulled is not None and seen == self._last and self._cache.current(self._place):
                return self._pulled._replace(transferred=0)
            async with self._cache.locked():
                self._pulled = await self._all(items)
        except OSError as error:
            raise StoreError(f"the cache {self._cache.root} fails: {error.strerror or error}") from None
        self._last = seen
        return self._pulled

    async def _all(self, items: Sequence[StoredObject]) -> Pulled:
        places = asyncio.Semaphore(PARALLEL)
        named = [(item.identity(self._place), item) for item in items]
        # Once for all: the cache is read to the end for it.
        missing = self._cache.missing({identity: item.size or 0 for identity, item in named})
        room = CacheRoom(self._cache.make_room(missing) - missing, self._cache.evict)

        async def one(item: StoredObject) -> tuple[list[CachedFile], int]:
            async with places:
                return await fetch(self._source, self._place, item, self._cache, room)

        try:
            async with asyncio.TaskGroup() as group:
                # Objects of one content arrive once.
                tasks = {identity: group.create_task(one(item)) for identity, item in dict(named).items()}
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        contents = together((item, tasks[identity].result()[0]) for identity, item in named)
        if not contents:
            raise StoreError("there is no file")
        view = self._cache.switch(self._place, contents)
        transferred = sum(task.result()[1] for task in tasks.values())
        return Pulled(view, len(contents), sum(one.size for one in contents), transferred)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _check(items: Sequence[StoredObject]) -> None:
    if len(items) > MAX_FILES:
        raise StoreError(f"there are more than {MAX_FILES} files")
    for item in items:
        if item.path or not item.archive:
            checked_path(item.path)


def _digest(place: str, items: Sequence[StoredObject]) -> str:
    lines = sorted(f"{item.path}\0{item.identity(place)}" for item in items)
    return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()
