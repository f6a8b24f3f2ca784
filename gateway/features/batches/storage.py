"""The storage of files and results: a folder or an S3 bucket. Every method blocks: call it in a thread.

Names are made by the gateway from random ids; no text of a client is a part of one.
"""

from types import TracebackType
from typing import Protocol, Self


class StorageError(Exception):
    """The storage cannot be read or written now. The message is for operators."""


class NoObject(StorageError):
    """The storage has no object of this name."""


class StorageWriter(Protocol):
    """A new object. It exists when `commit` has returned, whole and durable; without `commit` it never does."""

    def write(self, data: bytes) -> None:
        """Append bytes."""

    def commit(self) -> None:
        """Create the object."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Storage(Protocol):
    """Objects and logs by name. Methods raise `StorageError`."""

    def create(self, name: str) -> StorageWriter:
        """Begin an object. `commit` replaces an older object of the name."""

    def size(self, name: str) -> int:
        """The size of an object."""

    def read(self, name: str, start: int, length: int) -> bytes:
        """A part of an object; shorter at its end."""

    def append(self, name: str, at: int, data: bytes) -> None:
        """Write the bytes of a log from position `at` on, and cut all later ones. Durable on return."""

    def log(self, name: str) -> bytes:
        """All bytes of a log; empty if there is none. Its end may be torn."""

    def delete(self, name: str) -> None:
        """Delete an object; no error if there is none."""

    def delete_folder(self, name: str) -> None:
        """Delete all objects and logs below a name."""


def put_object(storage: Storage, name: str, data: bytes) -> None:
    """Create an object of these bytes. Raises `StorageError`."""
    with storage.create(name) as writer:
        writer.write(data)
        writer.commit()
