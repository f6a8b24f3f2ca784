"""Watches the configuration file, and applies each new valid version as a whole."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from config import waiting
from config.document import MAX_BYTES
from config.loader import ConfigError, Reading, read
from config.schema.config import Config

log = logging.getLogger(__name__)
CHECK_INTERVAL = 0.5
"""Seconds between two checks of the file. A change is in force after two of them."""
Stamps = dict[Path, tuple[int, int, int] | None]


class Watcher:
    """Checks the file, and the secrets and PEM files that it names, every ``interval`` seconds.

    New content is read when two consecutive checks agree, so never during a write. An invalid file is reported
    once for each content, and the old configuration stays in force. The watcher polls instead of using inotify, so
    that it also detects changes on network mounts and in Kubernetes' symlinked volumes.

    The content at the creation of the watcher counts as loaded (a short blocking read): create the watcher right
    after loading. ``on_change`` may raise ConfigError to reject a version; any other exception is a defect and ends
    ``run``.
    """

    def __init__(
        self,
        path: Path,
        on_change: Callable[[Config], Awaitable[None] | None],
        on_error: Callable[[ConfigError], None],
        *,
        interval: float = CHECK_INTERVAL,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._on_error = on_error
        self._interval = interval
        self._current = _look(path, frozenset({path}))
        self._seen: Stamps = {}
        self._one_at_a_time = asyncio.Lock()

    @property
    def sha256(self) -> str:
        """The digest of the file at the last read, without referenced files; empty if it could not be read."""
        return self._current.sha256

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await waiting.until(self._has_changed, self._interval)
            await self._read()

    async def poll(self) -> None:
        """Check once, and read changed files when two consecutive checks agree."""
        if await asyncio.to_thread(self._has_changed):
            await self._read()

    def _has_changed(self) -> bool:
        """Whether two consecutive looks agree on a change. Blocks."""
        stamps = _stamps(self._current.reading.sources)
        settled, self._seen = stamps == self._seen, stamps
        return settled and stamps != self._current.stamps

    async def reload_now(self) -> None:
        """Read at once and report the result even if it is unchanged, for a request by an operator (SIGHUP)."""
        await self._read(requested=True)

    async def _read(self, *, requested: bool = False) -> None:
        async with self._one_at_a_time:
            look = await asyncio.to_thread(_look, self._path, self._current.reading.sources)
            is_new = look.digest != self._current.digest
            self._current = look
            if is_new or requested:
                await self._report(look.reading)

    async def _report(self, reading: Reading) -> None:
        try:
            if reading.config is None:
                raise ConfigError(reading.problems)
            for warning in reading.warnings:
                log.warning("%s", warning)
            done = self._on_change(reading.config)
            if done is not None:
                await done
        except ConfigError as error:
            self._on_error(error)


@dataclass(frozen=True)
class _Look:
    """A reading, and the state of its sources before it, so that the next check detects any later change."""

    stamps: Stamps
    digest: bytes
    sha256: str
    reading: Reading


def _look(path: Path, sources: frozenset[Path]) -> _Look:
    while True:
        look = _Look(_stamps(sources), _digest(sources), _sha256(path), read(path))
        if look.reading.sources == sources:
            return look
        sources = look.reading.sources  # it names other files now: their earlier state is needed too


def _stamps(sources: Iterable[Path]) -> Stamps:
    return {path: _stamp(path) for path in sources}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _digest(sources: Iterable[Path]) -> bytes:
    """The digest of the files' contents. A missing file differs from an empty one."""
    digest = hashlib.sha256()
    for path in sorted(sources):
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except (OSError, ValueError):
            content = None
        digest.update(f"{path}\0{'missing' if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.digest()
