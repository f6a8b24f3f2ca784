"""An archive on the disk."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from adapters.stores.source import Changed, StoredObject, StoreError
from config.stores import StoreAddress

_CHUNK: Final = 1 << 20


class LocalArchive:
    """The archive at a path."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._path = Path(address.path)

    async def items(self) -> list[StoredObject]:
        try:
            status = self._path.stat()
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from None
        return [
            StoredObject(
                "", str(self._path), _version(status), status.st_size, self._address.digest, self._address.archive
            )
        ]

    async def read(self, item: StoredObject, offset: int) -> AsyncIterator[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                while chunk := file.read(_CHUNK):
                    yield chunk
                if _version(os.fstat(file.fileno())) != item.version:
                    raise Changed(f"{self._path} has changed while it was read")
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from None

    async def aclose(self) -> None:
        return


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns} {status.st_ino} {status.st_size}"
