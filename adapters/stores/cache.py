"""The files of models on the disk: by content, within a bound, and in views that are replaced in one step.

    files/SHA256             each content once
    parts/IDENTITY.BOOT      what has arrived of an object. A crash of the machine may lose pages, so that a part is
                             continued only until the machine starts again
    objects/IDENTITY         the files of an object, which are several for an archive
    views/PLACE/REVISION     a folder of hard links to files
    views/PLACE/current      a symbolic link to the view that is served

    synced                   what is older has reached the disk. It names the start of the machine since when
                             nothing was lost

Whoever uses a view holds a shared lock on `REVISION.use` beside it. Processes share a cache: one pulls at a time.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from adapters.stores.source import StoreError
from config.schema.units import format_size

LOCK_PAUSE = 0.1
"""Seconds between two tries to get the cache's lock."""
EVICTED = 64 << 20
"""Bytes that are evicted at least, as the whole cache is listed for it."""


class CachedFile(NamedTuple):
    """A file: its path in the view, and its content."""

    path: str
    sha256: str
    size: int


class CacheRoom:
    """The bytes that a pull may still add to a cache. Its threads unpack at the same time, and share them."""

    def __init__(self, left: int, evict: Callable[[int], int]) -> None:
        """`evict` removes so many bytes, if it can, and returns how many."""
        self.left = left
        self._evict = evict
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Evict what is needed. Raises `StoreError` if that is not enough."""
        with self._lock:
            if size > self.left:
                self.left += self._evict(max(size - self.left, EVICTED))
            if size > self.left:
                raise StoreError("there is no room for it in the cache when it is unpacked")
            self.left -= size

    def all(self) -> int:
        """Evict what can be. Returns the bytes that are left."""
        with self._lock:
            self.left += self._evict(sys.maxsize)
            return self.left

    def give(self, size: int) -> None:
        """Return what was not needed, or is removed."""
        with self._lock:
            self.left += size


class StoreCache:
    """A cache of at most `most` bytes. Everything here blocks for the disk, except the wait for the lock."""

    def __init__(self, root: Path, most: int) -> None:
        self.root = root
        self.most = most
        self._pinned: set[str] = set()
        """Contents that the pull in progress needs."""
        self._lock = threading.Lock()
        """Held while files are evicted or become pinned by threads."""
        for name in ("files", "parts", "objects", "views"):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Exclude every other pull."""
        with (self.root / "lock").open("w") as lock:
            while True:
                if _locks(lock, fcntl.LOCK_EX):
                    break
                await asyncio.sleep(LOCK_PAUSE)  # the holder is another process
            self._pinned.clear()
            self._drop_lost()
            yield

    def _drop_lost(self) -> None:
        """After a crash of the machine: forget what may not have reached the disk."""
        synced = self.root / "synced"
        try:
            boot, before = synced.read_text(), synced.stat().st_mtime_ns
        except FileNotFoundError:
            boot, before = "", 0
        if boot == _boot():
            return
        self._remove_unused_views()
        for path in (self.root / "objects").iterdir():
            if path.stat().st_mtime_ns > before:
                path.unlink()
        named = {one.sha256 for path in (self.root / "objects").iterdir() for one in self._contents(path.name) or ()}
        for path in (self.root / "files").iterdir():
            if path.name not in named:
                path.unlink()
        self._sync(before)

    def _sync(self, time: int | None = None) -> None:
        """Have everything on the disk: once for a pull, as each file alone would take as long."""
        os.sync()
        _write(self.root / "synced", _boot().encode())
        if time is not None:
            os.utime(self.root / "synced", ns=(time, time))

    # ── contents ──────────────────────────────────────────────────────────────────────────────────────

    def contents_of(self, identity: str) -> list[CachedFile] | None:
        """The files of an object, if the cache has all of them."""
        contents = self._contents(identity)
        self._pinned.update(one.sha256 for one in contents or ())
        return contents

    def _contents(self, identity: str) -> list[CachedFile] | None:
        try:
            written = json.loads((self.root / "objects" / identity).read_bytes())
            contents = [CachedFile(str(path), str(sha256), int(size)) for path, sha256, size in written]
            whole = all(self._file(one.sha256).stat().st_size == one.size for one in contents)
        except (OSError, ValueError, TypeError):
            return None
        return contents if whole else None

    def store(self, path: Path, sha256: str) -> bool:
        """Move a whole file into the cache. False if the cache has its content already."""
        with self._lock:
            self._pinned.add(sha256)
            if self._file(sha256).exists():
                path.unlink()
                return False
            path.chmod(0o444)  # it is in several views
            path.rename(self._file(sha256))
            return True

    def temporary(self) -> IO[bytes]:
        """A new file, which no eviction removes now. It is moved by `store`, or unlinked."""
        with self._lock:
            handle, name = tempfile.mkstemp(dir=self.root / "parts")
            os.close(handle)
            self._pinned.add(Path(name).name)
            return Path(name).open("wb")

    def record(self, identity: str, contents: Iterable[CachedFile]) -> None:
        """Remember the files of an object, all of which are in the cache."""
        _write(self.root / "objects" / identity, json.dumps([list(one) for one in contents]).encode())

    def _file(self, sha256: str) -> Path:
        return self.root / "files" / sha256

    # ── the bound ─────────────────────────────────────────────────────────────────────────────────────

    def make_room(self, needed: int) -> int:
        """Have `needed` more bytes fit. Returns the bytes that are free then. Raises `StoreError`."""
        free = self._free()
        if free < needed:
            self._remove_unused_views()
            for path in self._removable():
                path.unlink(missing_ok=True)
                if (free := self._free()) >= needed:
                    break
            self._forget_objects()
        if free < needed:
            raise StoreError(
                f"{format_size(needed)} more would not fit into the cache: it may have {format_size(self.most)}, and "
                f"{format_size(self.most - free)} are in use"
            )
        return free

    def evict(self, size: int) -> int:
        """Remove at least `size` bytes, if so many are of no use. Returns how many it has removed. Threads may call it
        while a pull is in progress."""
        removed = 0
        with self._lock:
            self._remove_unused_views()
            for path in self._removable():
                if removed >= size:
                    break
                removed += path.stat().st_size
                path.unlink()
        return removed

    def _free(self) -> int:
        return self.most - sum(path.stat().st_size for path in self._all())

    def _all(self) -> Iterator[Path]:
        for name in ("files", "parts"):
            yield from (self.root / name).iterdir()

    def _removable(self) -> list[Path]:
        """Parts of other pulls, and contents in no view; the oldest first."""
        spare = [path for path in self._all() if path.name.partition(".")[0] not in self._pinned]
        return sorted((path for path in spare if path.stat().st_nlink == 1), key=lambda path: path.stat().st_mtime_ns)

    def _forget_objects(self) -> None:
        for path in (self.root / "objects").iterdir():
            if self._contents(path.name) is None:
                path.unlink(missing_ok=True)

    def missing(self, objects: Mapping[str, int]) -> int:
        """Bytes that are to arrive of objects with these sizes, whose parts no eviction removes now."""
        absent = {identity: size for identity, size in objects.items() if self.contents_of(identity) is None}
        return sum(max(0, size - _size_of(self.begin(identity))) for identity, size in absent.items())

    def begin(self, identity: str) -> Path:
        """The file for the bytes of an object as they arrive, which no eviction removes now."""
        self._pinned.add(identity)
        return self.root / "parts" / f"{identity}.{_boot()}"

    # ── views ─────────────────────────────────────────────────────────────────────────────────────────

    def current(self, place: str) -> Path | None:
        """The view of a place that is served."""
        with suppress(OSError):
            view = self._views(place) / os.readlink(self._views(place) / "current")
            return view if view.is_dir() else None
        return None

    def switch(self, place: str, contents: Iterable[CachedFile]) -> Path:
        """Make the view of these files, and serve it in place of the one before. Raises `StoreError`."""
        files = sorted(contents)
        revision = hashlib.sha256(json.dumps([one[:2] for one in files]).encode()).hexdigest()[:16]
        folder = self._views(place)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(".*"):  # by a process that was killed
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        if not (view := folder / revision).is_dir():
            self._link(folder / f".{revision}", files)
            (folder / f".{revision}").rename(view)
        self._sync()
        temporary = folder / ".current"
        temporary.symlink_to(revision)
        temporary.replace(folder / "current")
        return view

    def _link(self, folder: Path, files: Iterable[CachedFile]) -> None:
        folder.mkdir()
        for one in files:
            target = folder / one.path
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(self._file(one.sha256), target)
            except (FileExistsError, NotADirectoryError):
                raise StoreError(f"{one.path[:100]!r} is there twice, or is a file and a folder") from None

    def _views(self, place: str) -> Path:
        return self.root / "views" / hashlib.sha256(place.encode(errors="replace")).hexdigest()[:16]

    def _remove_unused_views(self) -> None:
        for folder in (self.root / "views").iterdir():
            current = os.readlink(folder / "current") if (folder / "current").is_symlink() else ""
            for view in folder.iterdir():
                if view.is_dir() and not view.is_symlink() and view.name != current:
                    with suppress(OSError), lock_of(view).open("w") as lock:
                        if _locks(lock, fcntl.LOCK_EX):
                            shutil.rmtree(view)
                            lock_of(view).unlink()


def use(view: Path) -> IO[str] | None:
    """Hold a view until the returned file is closed. None if it has been removed."""
    lock = lock_of(view).open("w")
    if _locks(lock, fcntl.LOCK_SH) and view.is_dir():
        return lock
    lock.close()
    return None


def lock_of(view: Path) -> Path:
    """The file whose lock holds a view."""
    return view.with_name(f"{view.name}.use")


def _locks(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(data)
    temporary.replace(path)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return "0"
