"""Files and results in a folder of this machine, or of a shared file system."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.features.batches.storage import NoObject, StorageError
from gateway.state.private_folder import make_private

_NEW = ".new"


class LocalWriter:
    """A file under another name until `commit`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_NEW}")
        with _storage_errors(path):
            make_private(path.parent)
            self._fd = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._open = True

    def write(self, data: bytes) -> None:
        with _storage_errors(self._path):
            _write(self._fd, data)

    def commit(self) -> None:
        with _storage_errors(self._path):
            os.fsync(self._fd)
            self._close()
            os.rename(self._new, self._path)
            _sync_folder(self._path.parent)

    def _close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._new.unlink(missing_ok=True)


class LocalStorage:
    """See `gateway.features.batches.storage.Storage`. Only this user can read the files."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).absolute()
        with _storage_errors(self._folder):
            make_private(self._folder)

    def create(self, name: str) -> LocalWriter:
        return LocalWriter(self._folder / name)

    def size(self, name: str) -> int:
        with _storage_errors(self._folder / name):
            return (self._folder / name).stat().st_size

    def read(self, name: str, start: int, length: int) -> bytes:
        with _storage_errors(self._folder / name), open(self._folder / name, "rb", buffering=0) as file:
            return _read(file.fileno(), start, length)

    def append(self, name: str, at: int, data: bytes) -> None:
        path = self._folder / name
        with _storage_errors(path):
            make_private(path.parent)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.lseek(fd, at, os.SEEK_SET)
                _write(fd, data)
                os.ftruncate(fd, at + len(data))  # after the write: a reader never sees less than was durable
                os.fsync(fd)
            finally:
                os.close(fd)
            if not at:
                _sync_folder(path.parent)

    def log(self, name: str) -> bytes:
        with suppress(NoObject), _storage_errors(self._folder / name):
            return (self._folder / name).read_bytes()
        return b""

    def delete(self, name: str) -> None:
        with _storage_errors(self._folder / name):
            (self._folder / name).unlink(missing_ok=True)

    def delete_folder(self, name: str) -> None:
        with suppress(NoObject), _storage_errors(self._folder / name):
            shutil.rmtree(self._folder / name)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read(fd: int, start: int, length: int) -> bytes:
    pieces: list[bytes] = []
    while length > 0 and (piece := os.pread(fd, length, start)):
        pieces.append(piece)
        start += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def _sync_folder(folder: Path) -> None:
    """Make a new name durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NoObject(f"{path}: there is no such file") from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from None
