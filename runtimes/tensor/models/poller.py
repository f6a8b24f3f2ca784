"""Polls the repository: a folder is loaded when its copy is complete, and unloaded when it is removed.

A folder is complete if two scans in a row find it unchanged, or if all files match its manifest (`SHA256SUMS`). A
folder that the runtime has pulled is always complete.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Protocol

from adapters.errors import InferenceError
from runtimes.tensor.models import manifest
from runtimes.tensor.models.repository import Listing, ModelFolder, RepositoryError

log = logging.getLogger(__name__)
_Stamps = tuple[str, str, tuple[tuple[int, str], ...]]


class Follower(Protocol):
    """Loads and unloads models."""

    def look(self) -> Awaitable[Listing]: ...

    def bring(self, name: str) -> Awaitable[None]: ...

    def remove(self, name: str) -> Awaitable[object]: ...


class Poller:
    """Loads continue during scans. A failed load is repeated when its files change."""

    def __init__(self, manager: Follower, seconds: float) -> None:
        self._manager = manager
        self._seconds = seconds
        self._seen: dict[str, _Stamps] = {}
        self._seen_folders: dict[str, _Stamps] = {}
        """The state of each folder at its last load, or attempt."""
        self._missing: set[str] = set()

    async def first(self, listing: Listing) -> list[str]:
        """Models to load at the start: those whose files are older than two scans."""
        long_ago = time.time() - 2 * self._seconds
        names: list[str] = []
        for name, folder in listing.models.items():
            if folder.stamps and (folder.changed_at < long_ago or await self._has_arrived(folder)):
                names.append(name)
                self._seen_folders[name] = _stamps(folder)
            self._seen[name] = _stamps(folder)
        return names

    async def run(self) -> None:
        """Scan the repository until cancelled."""
        async with asyncio.TaskGroup() as loads:
            while True:
                await asyncio.sleep(self._seconds)
                try:
                    come, gone = await self.poll()
                except RepositoryError as error:
                    log.error("%s; loaded models stay", error)
                    continue
                for name in gone:
                    await self._manager.remove(name)
                for name in come:
                    loads.create_task(self._load(name))

    async def poll(self) -> tuple[list[str], list[str]]:
        """Scan once: returns the models to load, and those to unload."""
        listing = await self._manager.look()
        come: list[str] = []
        for name, folder in listing.models.items():
            stamps = _stamps(folder)
            stood_still = self._seen.get(name) == stamps
            self._seen[name] = stamps
            if not folder.stamps or stamps == self._seen_folders.get(name):
                continue
            if stood_still or await self._has_arrived(folder):
                self._seen_folders[name] = stamps
                come.append(name)
        return come, self._gone(listing)

    def _gone(self, listing: Listing) -> list[str]:
        """The folders that were missing in two scans: a rename removes a folder for a moment.

        No folder is gone while a list cannot be read: a mistake in it must not end the models in service.
        """
        if not listing.is_whole:
            return []
        there = {name for name, folder in listing.models.items() if folder.stamps} | listing.refused.keys()
        missing = self._seen_folders.keys() - there
        gone = sorted(missing & self._missing)
        self._missing = missing - set(gone)
        for name in gone:
            del self._seen_folders[name]
        self._seen = {name: stamps for name, stamps in self._seen.items() if name in listing.models}
        return gone

    async def _has_arrived(self, folder: ModelFolder) -> bool:
        """Whether it is pulled, or each new or changed version has a manifest and matches it."""
        if folder.origin:
            return True
        stamps = dict(self._seen_folders[folder.name][2]) if folder.name in self._seen_folders else {}
        changed = [number for number, stamp in folder.stamps.items() if stamps.get(number) != stamp]
        try:
            return bool(changed) and all(
                [await asyncio.to_thread(manifest.verify, folder.version(number)) for number in changed]
            )
        except manifest.Incomplete:
            return False

    async def _load(self, name: str) -> None:
        try:
            await self._manager.bring(name)
        except InferenceError:
            pass  # the load has logged it, and the index has the reason
        except Exception:
            log.exception("%s cannot be loaded", name)


def _stamps(folder: ModelFolder) -> _Stamps:
    place = "" if folder.origin else str(folder.path)  # a new view changes nothing by itself
    return place, folder.beside, tuple(sorted(folder.stamps.items()))
