"""Repositories that are pulled from where they lie, by a process of its own. The event loop only reads its results.

A pull that fails leaves the files before in service. The log, the metrics and the index of models report it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from adapters.stores.cache import use
from config.schema.units import format_size
from config.stores import StoreAddress
from runtimes.tensor.models.manager import ModelManager
from runtimes.tensor.models.repository import RepositoryError, Root

LONGEST_PAUSE: Final = 300.0
"""Seconds between two pulls of repositories that fail."""
STALE: Final = "its files are those of the last pull that succeeded: "
_MODULE: Final = "adapters.stores"
NOWHERE: Final = Path("/nonexistent")
"""The folder of a repository before its first pull."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where pulled files are, and how the process that pulls is started."""

    cache: Path
    most: int
    """Bytes of the cache."""
    environment: Mapping[str, str]
    """The variables of the process, with the credentials that models do not get."""


@dataclass(slots=True, eq=False)
class PulledStore:
    """One repository that is pulled."""

    address: StoreAddress
    root: Root
    problem: str = ""
    """Why the last pull failed; empty after a success."""
    failures: int = 0
    transferred: int = 0
    """Bytes of all pulls together."""
    size: int = 0
    succeeded_at: float = 0.0
    """Unix time of the last pull that succeeded; 0 before the first."""


class Stores:
    """All repositories of a server that are pulled. Lives on the loop's thread."""

    def __init__(self, stores: tuple[PulledStore, ...], options: StoreOptions) -> None:
        self.stores = stores
        self._puller = _Puller(options)
        self._held: dict[Path, IO[str]] = {}
        """The locks of the views that are in use."""
        self._manager: ModelManager | None = None

    def bind(self, manager: ModelManager) -> None:
        """Report failures with the models, and hold the files that they use."""
        self._manager = manager

    async def start(self) -> None:
        """Pull everything. Raises `RepositoryError` for a repository of which the cache has nothing, either."""
        await self.pull()
        for store in self.stores:
            if store.root.path == NOWHERE:
                raise RepositoryError(f"{store.address.label} cannot be pulled: {store.problem}")

    async def follow(self, seconds: float) -> None:
        """Pull again and again, until cancelled. The pauses grow while pulls fail, and after an unexpected error."""
        pause = seconds
        while True:
            await asyncio.sleep(pause)
            try:
                await self.pull()
                failing = any(store.problem for store in self.stores)
            except Exception:
                log.exception("repositories cannot be pulled")
                failing = True
            pause = max(seconds, min(2 * pause, LONGEST_PAUSE)) if failing else seconds

    async def pull(self) -> None:
        """Pull everything once. Failures are reported, and not raised."""
        await asyncio.gather(*(self._pull(store) for store in self.stores))
        self._let_go()
        self.report()

    async def _pull(self, store: PulledStore) -> None:
        try:
            result = await self._puller.pull(store.address.text)
        except OSError as error:
            result = {"error": f"the process that pulls: {error.strerror or error}"}
        before = store.root.path
        problem = str(result.get("error") or "")
        if view := result.get("view"):
            try:
                self._take(store, Path(view))
            except OSError as error:
                problem = problem or f"the lock of its files: {error.strerror or error}"
        if problem:
            store.failures += 1
            if problem != store.problem:
                consequence = "; the files before stay in service" if store.root.path != NOWHERE else ""
                log.error("%s cannot be pulled: %s%s", store.address.label, problem, consequence)
        else:
            if store.problem or before != store.root.path:
                new, label = format_size(max(1, result["transferred"])), store.address.label
                new = new if result["transferred"] else "nothing"
                log.info("%s: %d files, %s new, %.1f s", label, result["files"], new, result["seconds"])
            store.transferred += result["transferred"]
            store.size, store.succeeded_at = result["size"], time.time()
        store.problem = problem

    def _take(self, store: PulledStore, view: Path) -> None:
        if view not in self._held and (lock := use(view)) is not None:
            self._held[view] = lock
        if view in self._held:
            store.root.path = view

    def report(self) -> None:
        """Have the index tell which models are not the newest."""
        for store in self.stores:
            if self._manager is not None:
                self._report(store, self._manager)

    def _report(self, store: PulledStore, manager: ModelManager) -> None:
        place = store.root.path.parent
        for _, record in manager.table.records():
            if record.source is None or not record.source.folder.path.is_relative_to(place):
                continue
            if store.problem and not record.reason:
                record.reason = f"{STALE}{store.problem}"
            elif record.reason.startswith(STALE):
                record.reason = f"{STALE}{store.problem}" if store.problem else ""

    def _let_go(self) -> None:
        """Release the views that neither a model nor a later load uses."""
        used = {store.root.path for store in self.stores}
        if self._manager is not None:
            used |= {view for view in self._held for path in self._manager.folders() if path.is_relative_to(view)}
        for view in [view for view in self._held if view not in used]:
            self._held.pop(view).close()

    async def aclose(self) -> None:
        """End the process that pulls. What has arrived of a file stays for the next one."""
        await self._puller.aclose()
        for lock in self._held.values():
            lock.close()


class _Puller:
    """The process that pulls. It is started by the first order, and by the first one after its end."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def pull(self, address: str) -> dict[str, Any]:
        """The result of a pull. Two orders for one address are one. Raises `OSError`."""
        if (waiting := self._waiting.get(address)) is None:
            waiting = self._waiting[address] = asyncio.get_running_loop().create_future()
            try:
                process = await self._running()
                assert process.stdin is not None
                process.stdin.write(json.dumps({"pull": address}).encode() + b"\n")
            except BaseException:
                self._waiting.pop(address).cancel()
                raise
        return await asyncio.shield(waiting)

    async def _running(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is not None and process.returncode is None:
            return process
        pipe, options = asyncio.subprocess.PIPE, self._options
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, stdin=pipe, stdout=pipe, env=options.environment, start_new_session=True
        )
        assert process.stdin is not None
        first = {"cache": str(options.cache), "most": options.most}
        process.stdin.write(json.dumps(first).encode() + b"\n")
        self._reading = asyncio.create_task(self._read(process), name="results of the process that pulls")
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                result = json.loads(line)
                if (waiting := self._waiting.pop(result["address"], None)) is not None and not waiting.done():
                    waiting.set_result(result)
        except (ValueError, KeyError, TypeError):  # no result, or a line beyond the reader's limit
            log.exception("the process that pulls wrote something else than a result; it is started anew")
            process.kill()
        status = await process.wait()
        left, self._waiting = self._waiting, {}
        for waiting in left.values():
            if not waiting.done():
                waiting.set_result({"error": f"the process that pulls has ended with status {status}"})

    async def aclose(self) -> None:
        if self._process is None or self._reading is None:
            return
        with suppress(ProcessLookupError):
            self._process.kill()
        await asyncio.wait((self._reading,))


def stores_of(places: Iterable[StoreAddress | Path]) -> tuple[tuple[Path | Root, ...], tuple[PulledStore, ...]]:
    """The roots of a repository, in order, and those of them that are pulled."""
    roots: list[Path | Root] = []
    stores: list[PulledStore] = []
    for place in places:
        if isinstance(place, Path):
            roots.append(place)
            continue
        root = Root(NOWHERE, place.label, place.name, is_pulled=True)
        roots.append(root)
        stores.append(PulledStore(place, root))
    return tuple(roots), tuple(stores)
