"""What a place has: its objects, and the bytes of each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

MAX_FILES: Final = 100_000
MAX_PATH: Final = 1024
MAX_DEPTH: Final = 32
_SHA256 = re.compile(r"[0-9a-f]{64}")


class StoreError(Exception):
    """A place cannot be read, or has what is refused. The message has no secret."""


class Interrupted(StoreError):
    """A transfer ended early, or a server has a passing problem: it is continued."""


class Changed(StoreError):
    """An object is not the listed one any more."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: a file, or an archive of files."""

    path: str
    """Where the file goes in the view; for an archive, the folder of its files: "" is the view itself."""
    key: str
    """Its name at the place."""
    version: str
    """Changes with the content: an ETag, a digest."""
    size: int | None = None
    """Bytes; None if the place does not tell."""
    digest: str = ""
    """`sha256:HEX` or `git:HEX`, if the place tells."""
    archive: Literal["", "tar", "zip", "layer"] = ""
    """`layer`: an archive of which only the folder `models` counts."""

    @property
    def label(self) -> str:
        """The key for the log: that of an archive at a web server is its URL."""
        return shown(self.key)

    def identity(self, place: str) -> str:
        """A name for the content of this object of a place. Equal digests have one name everywhere."""
        named = self.digest or f"{place}\0{self.key}\0{self.version}\0{self.size}"
        return hashlib.sha256(f"{self.archive}\0{named}".encode(errors="replace")).hexdigest()


class ObjectSource(Protocol):
    """A place. One object serves a whole process."""

    async def items(self) -> list[StoredObject]:
        """All objects. Raises `StoreError`."""
        ...

    def read(self, item: StoredObject, offset: int) -> AsyncIterator[bytes]:
        """The bytes of an object from `offset` on. Raises `StoreError`; `Changed` if it is not the listed one."""
        ...

    async def aclose(self) -> None: ...


def shown(url: str) -> str:
    """A URL for the log: a query may have a signature."""
    return url.partition("?")[0].partition("#")[0][:300]


def checked_path(path: str) -> str:
    """The path of a file within a view, by `/`. Raises `StoreError` for one that may lead out of it."""
    parts = path.split("/")
    if (
        not path.isprintable()
        or "\\" in path
        or len(path.encode(errors="replace")) > MAX_PATH
        or len(parts) > MAX_DEPTH
        or any(part in ("", ".", "..") or len(part.encode(errors="replace")) > 255 for part in parts)
    ):
        raise StoreError(f"{path[:100]!r} is no path of a file in a repository")
    return path


def checked_sha256(text: str) -> str:
    """`sha256:HEX` in lower case. Raises `StoreError` for any other text."""
    algorithm, _, digest = text.lower().partition(":")
    if algorithm != "sha256" or _SHA256.fullmatch(digest) is None:
        raise StoreError(f"{text[:80]!r} is no digest: expected sha256: and 64 hexadecimal digits")
    return f"sha256:{digest}"
