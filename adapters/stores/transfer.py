"""One object: its bytes, continued after an interruption, and verified."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Final

from adapters.stores.cache import CachedFile, CacheRoom, StoreCache
from adapters.stores.source import Changed, Interrupted, ObjectSource, StoredObject, StoreError
from adapters.stores.unpacking import unpack
from config.schema.units import format_size

ATTEMPTS: Final = 5
"""Interruptions in a row, none of which brought a byte, after which a transfer has failed."""
FIRST_PAUSE: Final = 0.2
"""Seconds, doubled after each."""
_CHUNK: Final = 1 << 20
log = logging.getLogger(__name__)


async def fetch(
    source: ObjectSource, place: str, item: StoredObject, cache: StoreCache, room: CacheRoom
) -> tuple[list[CachedFile], int]:
    """Have the files of an object in the cache. Returns them, and the bytes that were transferred.

    `room` is what is left for the files of archives and for objects whose size is not stated: those of a stated size
    must have been given theirs. Raises `StoreError`. What has arrived of the object stays for
    the next pull, unless it is wrong.
    """
    identity = item.identity(place)
    if (contents := cache.contents_of(identity)) is not None:
        return contents, 0
    part = cache.begin(identity)
    before = _size(part)
    bound = room.all() + before if item.size is None else item.size
    try:
        await _transfer(source, item, part, bound)
        arrived = _size(part) - before
        if item.size is None:
            room.take(arrived)
        contents = await asyncio.to_thread(_stored, item, part, cache, room)
    except (Changed, _Wrong):
        part.unlink(missing_ok=True)
        raise
    cache.record(identity, contents)
    return contents, arrived


class _Wrong(StoreError):
    """What has arrived is not the object."""


async def _transfer(source: ObjectSource, item: StoredObject, part: Path, bound: int) -> None:
    attempt = 0
    while item.size is None or _size(part) < item.size or attempt == 0:
        before = _size(part)
        try:
            await _append(source, item, part, bound)
        except Interrupted as error:
            attempt = 1 if _size(part) > before else attempt + 1
            if attempt >= ATTEMPTS:
                raise
            log.info("%s; it is continued at byte %d", error, _size(part))
            await asyncio.sleep(FIRST_PAUSE * 2**attempt)
        else:
            break
    if item.size is not None and _size(part) != item.size:
        raise Interrupted(f"{item.label} has ended after {_size(part)} of {item.size} bytes")


async def _append(source: ObjectSource, item: StoredObject, part: Path, bound: int) -> None:
    offset = _size(part)
    if item.size is not None and offset == item.size and offset:
        return
    with part.open("ab") as file:
        async for chunk in source.read(item, offset):
            offset += len(chunk)
            if offset > bound:
                raise _Wrong(f"{item.label} has more than {format_size(bound)}")
            file.write(chunk)


def _stored(item: StoredObject, part: Path, cache: StoreCache, room: CacheRoom) -> list[CachedFile]:
    sha256 = _verified(item, part)
    if item.archive:
        size, contents = _size(part), unpack(part, item, cache, room)
        part.unlink()
        room.give(size)
        return contents
    content = CachedFile(item.path, sha256, _size(part))
    cache.store(part, sha256)
    return [content]


def _verified(item: StoredObject, part: Path) -> str:
    """The SHA-256 of what has arrived. Raises `_Wrong` if it is not the stated content."""
    sha256 = hashlib.sha256()
    git = hashlib.sha1(b"blob %d\0" % _size(part), usedforsecurity=False)
    with part.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            if item.digest.startswith("git:"):
                git.update(chunk)
    if item.digest and item.digest not in (f"sha256:{sha256.hexdigest()}", f"git:{git.hexdigest()}"):
        raise _Wrong(f"{item.label} differs from its digest {item.digest[:80]}")
    return sha256.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
