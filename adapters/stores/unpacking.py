"""Archives, unpacked into the cache.

An archive is somebody else's data: no entry may leave its folder, be a link or a device, or grow without a bound.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, cast

from adapters.stores import zstandard_file
from adapters.stores.cache import CachedFile, CacheRoom, StoreCache
from adapters.stores.layers import OPAQUE, WHITEOUT
from adapters.stores.source import MAX_FILES, StoredObject, StoreError, checked_path
from config.schema.units import format_size

MAX_RATIO: Final = 200
"""Bytes of an archive's files for each of its own, beyond `FREE_BYTES`. Only a bomb has more."""
FREE_BYTES: Final = 64 << 20
LAYER_FOLDER: Final = "models/"
_ALL_OF_LAYERS: Final = frozenset((OPAQUE, f"{WHITEOUT}{LAYER_FOLDER.rstrip('/')}"))
"""Whiteouts beside the folder, which remove all of it."""
_CHUNK: Final = 1 << 20
_COMPRESSIONS: Final[tuple[tuple[bytes, Callable[[Path], object]], ...]] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
    (b"\x28\xb5\x2f\xfd", zstandard_file.opened),
    *((bytes([number]) + b"\x2a\x4d\x18", zstandard_file.opened) for number in range(0x50, 0x60)),
)
"""How a compressed file begins. One of zstd may begin with a frame that readers skip, as pzstd writes."""
_MALFORMED = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError,
    NotImplementedError,
)  # fmt: skip


class _Budget:
    """The bytes that an archive may still have, also those that are passed over."""

    def __init__(self, path: Path) -> None:
        self.left = self._most = FREE_BYTES + MAX_RATIO * path.stat().st_size

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise StoreError(f"it has more than {format_size(max(1, self._most))} when it is unpacked")


def unpack(path: Path, item: StoredObject, cache: StoreCache, room: CacheRoom) -> list[CachedFile]:
    """The files of an archive, in the cache, which take the room that they need. Raises `StoreError`."""
    budget = _Budget(path)
    contents: dict[str, CachedFile] = {}
    try:
        for name, file in (_zip if item.archive == "zip" else _tar)(path, item, budget):
            if name in contents and not (item.archive == "layer" and name == OPAQUE):
                raise StoreError(f"{name[:100]!r} is there twice")
            if len(contents) >= MAX_FILES:
                raise StoreError(f"it has more than {MAX_FILES} files")
            contents[name] = _take(name, file, cache, room)
    except StoreError as error:
        raise StoreError(f"{item.label} is refused: {error}") from None
    except _MALFORMED as error:
        raise StoreError(f"{item.label} cannot be unpacked: {str(error)[:200] or type(error).__name__}") from None
    except OSError as error:
        raise StoreError(f"{item.label} cannot be unpacked: {error.strerror or str(error)[:200]}") from None
    prefix = f"{item.path}/" if item.path else ""
    return [one._replace(path=checked_path(prefix + one.path)) for one in contents.values()]


def _take(name: str, file: IO[bytes], cache: StoreCache, room: CacheRoom) -> CachedFile:
    sha256, size = hashlib.sha256(), 0
    with cache.temporary() as target:
        try:
            while chunk := file.read(_CHUNK):
                room.take(len(chunk))
                size += len(chunk)
                sha256.update(chunk)
                target.write(chunk)
        except BaseException:
            Path(target.name).unlink()
            room.give(size)
            raise
    if not cache.store(Path(target.name), sha256.hexdigest()):
        room.give(size)
    return CachedFile(name, sha256.hexdigest(), size)


class _Counted:
    """A decompressed stream, all bytes of which count: those of files, and those that are passed over."""

    def __init__(self, file: IO[bytes], budget: _Budget) -> None:
        self._file = file
        self._budget = budget

    def read(self, size: int) -> bytes:
        chunk = self._file.read(size)
        self._budget.take(len(chunk))
        return chunk


def _decompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        start = file.read(6)
    for magic, opened in _COMPRESSIONS:
        if start.startswith(magic):
            return cast("IO[bytes]", opened(path))
    return path.open("rb")


def _tar(path: Path, item: StoredObject, budget: _Budget) -> Iterator[tuple[str, IO[bytes]]]:
    """Each file. The archive is read once, as a stream, to its end: a compressed one that is cut off is noticed."""
    with _decompressed(path) as stream:
        counted = _Counted(stream, budget)
        with tarfile.open(fileobj=cast("IO[bytes]", counted), mode="r|") as archive:
            for member in archive:
                name = member.name.removeprefix("./").rstrip("/")
                if item.archive == "layer":
                    if name in _ALL_OF_LAYERS:
                        name = f"{LAYER_FOLDER}{OPAQUE}"
                    if not name.startswith(LAYER_FOLDER):
                        continue
                    name = name.removeprefix(LAYER_FOLDER)
                if member.isdir() or name in ("", "."):
                    continue
                checked_path(name)
                if not member.isreg() or member.issparse():
                    raise StoreError(f"{name[:100]!r} is a link or no file")
                file = archive.extractfile(member)
                assert file is not None
                yield name, file
        while counted.read(_CHUNK):
            pass


def _zip(path: Path, item: StoredObject, budget: _Budget) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if len(entries) > MAX_FILES:
            raise StoreError(f"it has more than {MAX_FILES} entries")
        for entry in entries:
            name = entry.filename.removeprefix("./").rstrip("/")
            if entry.is_dir():
                continue
            checked_path(name)
            if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                raise StoreError(f"{name[:100]!r} is a link or no file")
            with archive.open(entry) as file:
                yield name, cast("IO[bytes]", _Counted(file, budget))
