"""Models in service: loaded, swapped, drained, unloaded, and loaded again on demand.

    load     read, choose versions, load each that is new or changed; those that succeed take over in one step, and
             replaced versions end after their requests and open sequences. If a load fails, the version in service
             stays, and the index has the reason
    unload   out of service at once, ended after its requests
    cold     unloaded for lack of memory, and loaded again by the next request, which waits

The path of a request has `lease` only: one look into a dict.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from adapters.errors import CallerError, CapacityError, DeadlineError, InferenceError, NotFound
from adapters.wire.oip.bodies import IndexEntry
from runtimes.tensor.configuration.model_config import MissingVersion
from runtimes.tensor.models.dependents import Dependents
from runtimes.tensor.models.loading import Loader, Parts, SourceError, read_source
from runtimes.tensor.models.overrides import Override
from runtimes.tensor.models.placed import PlacedModels
from runtimes.tensor.models.poller import Poller
from runtimes.tensor.models.records import ModelRecord, ModelTable, VersionRecord, not_ready, unavailable
from runtimes.tensor.models.repository import Listing, Repository, RepositoryError
from runtimes.tensor.models.residency import INSUFFICIENT_MEMORY, OversizedError
from runtimes.tensor.models.rotation import Rotation
from runtimes.tensor.models.served_model import ServedModel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """Options of loading and unloading. Times are seconds."""

    mode: Literal["none", "explicit", "poll"] = "none"
    models: tuple[str, ...] = ()
    """With explicit: the models that are loaded at the start; `*` for all."""
    poll_seconds: float = 5.0
    load_seconds: float = 600.0
    """The longest load of one version."""
    drain_seconds: float = 30.0
    """The longest time for a replaced version to finish its requests."""
    parallel_loads: int = 2
    memory_budget: int = 0
    """Bytes of all loaded versions together; 0 is no bound."""


class ModelManager:
    """All models of one repository. Lives on the loop's thread."""

    def __init__(
        self, repository: Repository, parts: Parts, options: ManagerOptions, table: ModelTable | None = None
    ) -> None:
        self.options = options
        self.table = ModelTable() if table is None else table
        """The models, readable without waiting."""
        self._repository = repository
        loader = Loader(parts, self.table.describe, seconds=options.load_seconds, parallel=options.parallel_loads)
        self.lent_slot = loader.lent_slot
        self._rotation = Rotation(self.table, loader, options.memory_budget, options.drain_seconds)
        self._leases = self.table.leases
        self._loads: dict[asyncio.Task[None], str] = {}
        """Loads and unloads that have not ended, with their model."""
        self._dependents = Dependents(self.table, self)
        self._explicit: set[str] = set()
        """Models that were loaded by name, and not for an ensemble."""
        self._closing = False
        self.placed = PlacedModels(repository, self)

    # ── a request's way ───────────────────────────────────────────────────────────────────────────────

    def lease(self, name: str, version: str) -> ServedModel | None:
        """Lease the version in service by number or label, or the default version for "". To be released once.

        None if none is in service: `wait_for` then raises the reason, or loads it.
        """
        served = self._leases.get((name, version))
        if served is not None:
            served.leases += 1
        return served

    def lease_sequence(self, name: str, version: str, sequence: int | str) -> ServedModel | None:
        """Like `lease`, for a request of a sequence: one that is open stays on the version that it began on."""
        model = self.table.models.get(name)
        if model is None:
            return None
        served = self._leases.get((name, version))
        if model.is_divided and (served is None or not served.scheduler.holds(sequence)):
            # A request without a version, or with a label, may belong to a version that was replaced since.
            served = next((one for one in model.others(served, version) if one.scheduler.holds(sequence)), served)
        if served is not None:
            served.leases += 1
        return served

    async def wait_for(self, name: str, version: str, deadline: float | None) -> ServedModel:
        """Like `lease`, for a model that is not in service: waits for a cold version until `deadline` (loop time).

        Raises `NotFound`, `Unavailable`, `CapacityError` or `DeadlineError`.
        """
        while True:
            model, record = self.table.find(name, version)
            if record.served is not None:
                record.served.leases += 1
                return record.served
            if not record.cold:
                raise not_ready(name, record)
            await self._warm(model, record, deadline)

    async def _warm(self, model: ModelRecord, record: VersionRecord, deadline: float | None) -> None:
        """Load a cold version, once for all waiting requests."""
        loop = asyncio.get_running_loop()
        if record.warming is None:
            if loop.time() < record.retry_at or self._closing:
                raise not_ready(model.name, record)
            work = self._rotation.warm(model, record)
            record.warming = self._rotation.spawn(work, f"load {model.name} {record.number}")
        warming = record.warming
        await asyncio.wait((warming,), timeout=None if deadline is None else max(0.0, deadline - loop.time()))
        if not warming.done():
            raise DeadlineError(f"The model `{model.name}` was still loading at the request's deadline.")
        if warming.cancelled():
            raise unavailable(f"The model `{model.name}` was unloaded.")
        error = warming.exception()
        if isinstance(error, InferenceError):
            raise error
        if error is not None:
            raise not_ready(model.name, record)

    # ── queries ────────────────────────────────────────────────────────────────────────────────────────

    async def index(self, *, ready: bool = False) -> list[IndexEntry]:
        """Every model of the repository and each of its versions; with `ready`, only those that are ready."""
        if not ready:
            with suppress(RepositoryError):
                await self.look()
        return self.table.index(ready=ready)

    async def look(self) -> Listing:
        """The present contents of the repository. Raises `RepositoryError`."""
        listing = await asyncio.to_thread(self._repository.scan)
        self.table.listed = frozenset((*listing.models, *listing.refused))
        for name, model in tuple(self.table.models.items()):
            if name not in self.table.listed and model.is_forgotten:
                del self.table.models[name]
        for name, why in listing.refused.items():
            self.table.model(name).problem = why
        return listing

    # ── coming and going ──────────────────────────────────────────────────────────────────────────────

    async def start(self) -> Mapping[str, str]:
        """Load the models of the start. Returns failures by model. Raises `RepositoryError` without a repository."""
        listing = await self.look()
        for why in listing.refused.values():
            log.error("%s", why)
        poller = Poller(self, self.options.poll_seconds) if self.options.mode == "poll" else None
        if poller is not None:
            names = await poller.first(listing)
        elif self.options.mode == "none" or "*" in self.options.models:
            names = list(listing.models)
        else:
            names = list(self.options.models)
        self._explicit.update(names)
        failed = dict(listing.refused)
        results = await asyncio.gather(*(self.bring(name) for name in names), return_exceptions=True)
        failed |= {name: str(result) for name, result in zip(names, results, strict=True) if result is not None}
        if poller is not None:
            self._rotation.spawn(poller.run(), "poll the model repository")
        if self.options.memory_budget:
            self._rotation.spawn(self._rotation.residency.keep(), "enforce the memory budget")
        return failed

    def folders(self) -> set[Path]:
        """The folders of all versions that are loaded, or may be loaded again."""
        sources = [record.source for _, record in self.table.records()] + list(self._rotation.sources())
        sources += [model.source for model in self.table.models.values()]
        return {source.folder.path for source in sources if source is not None}

    def is_ready(self, name: str, version: str = "") -> bool:
        """Whether a model serves requests, perhaps after a load. Raises `NotFound`."""
        return self.table.is_ready(name, version)

    async def load(self, name: str, override: Override | None = None) -> None:
        """Load a model by the API. Raises `CallerError` or `NotFound`; the version in service then stays."""
        self.check_explicit("load")
        if self._repository.refresh is not None:
            await self._repository.refresh()
        self._explicit.add(name)
        await self.bring(name, override)

    async def unload(self, name: str, *, with_dependents: bool = False) -> None:
        """Unload a model by the API: it is out of service on return. A model that is not loaded stays unchanged.

        `with_dependents` also unloads the models that were loaded for this ensemble only, as in Triton.
        """
        self.check_explicit("unload")
        self._explicit.discard(name)
        members = await self.remove(name)
        if with_dependents:
            for member in sorted(members - self._explicit):
                await self.unload(member, with_dependents=True)

    def retain(self, name: str, version: str, seconds: float) -> None:
        """Leave a version loaded for some seconds from now. Raises `NotFound` and `Unavailable`."""
        model, record = self.table.find(name, version)
        if not record.usable:
            raise not_ready(name, record)
        self._rotation.retain(model, record, seconds)

    def check_explicit(self, order: str) -> None:
        """Raises `CallerError` unless models are loaded and unloaded by the API."""
        if self.options.mode != "explicit":
            mode = self.options.mode
            raise CallerError(f"This server does not {order} models by the API: its mode is {mode}, not explicit.")

    async def bring(self, name: str, override: Override | None = None) -> None:
        """Load or reload a model in any mode. It continues if the caller is cancelled; `remove` and `aclose` end it."""
        if self._closing:
            raise unavailable("This server is stopping.")
        task = self._rotation.spawn(self._load(name, override), f"load {name}")
        self._loads[task] = name
        task.add_done_callback(self._loads.pop)
        following = self._rotation.spawn(self._refresh_after(task, name), f"load what depends on {name}")
        await asyncio.wait((task, following))
        if task.cancelled():
            raise unavailable(f"The model `{name}` was unloaded while it was loading.")
        task.result()

    async def _refresh_after(self, load: asyncio.Task[None], name: str) -> None:
        await asyncio.wait((load,))
        await self._dependents.refresh(name)

    def loading(self, name: str) -> asyncio.Task[None] | None:
        """The load of a model that is in progress."""
        return next((task for task, of in self._loads.items() if of == name and not task.done()), None)

    async def _load(self, name: str, override: Override | None) -> None:
        try:
            source = await read_source(self._repository, name, override)
        except RepositoryError as error:
            raise NotFound(f"The model cannot be loaded: {error}.", param="model_name") from None
        except SourceError as error:
            raise self._refused(self.table.model(name), str(error)) from None
        model = self.table.model(name)
        source.use()
        try:
            await self._dependents.prepare(source, override)
            async with model.lock:
                failed = await self._rotation.swap(model, source)
        except (MissingVersion, SourceError) as error:
            raise self._refused(model, str(error)) from None
        finally:
            await source.release()
        if failed:
            reasons = "; ".join(f"version {number}: {error}" for number, error in sorted(failed.items()))
            code = INSUFFICIENT_MEMORY if any(map(_is_of_memory, failed.values())) else "model_load_failed"
            raise CallerError(f"The model `{name}` cannot be loaded: {reasons}", code=code)

    def _refused(self, model: ModelRecord, why: str) -> CallerError:
        model.problem = why
        for record in model.usable():
            record.reason = f"cannot be reloaded: {why}"
        log.error("%s cannot be loaded: %s", model.name, why)
        return CallerError(f"The model `{model.name}` cannot be loaded: {why}", code="model_load_failed")

    async def remove(self, name: str) -> frozenset[str]:
        """Remove a model from service in any mode; its requests finish in the background.

        Every earlier load of it is ended. Returns the models that only this ensemble depended on.
        """
        members = self._dependents.forget(name)
        for task, of in self._loads.items():
            if of == name:
                task.cancel()
        model = self.table.models.get(name)
        if model is not None:
            await self._withdraw(model, "")
            await self._dependents.refresh(name)
        return members

    async def suspend(self, name: str, reason: str) -> None:
        """Remove an ensemble from service until the models that it depends on have returned."""
        await self._withdraw(self.table.model(name), reason)
        await self._dependents.refresh(name)

    async def _withdraw(self, model: ModelRecord, reason: str) -> None:
        for record in model.versions.values():
            if record.warming is not None:
                record.warming.cancel()
        async with model.lock:
            await self._rotation.withdraw_all(model)
            model.problem = reason
            for record in model.versions.values():
                record.reason = reason or record.reason

    async def aclose(self) -> None:
        """End all models at once. Requests should have been drained before."""
        self._closing = True
        await self._rotation.aclose()


def _is_of_memory(error: BaseException) -> bool:
    return isinstance(error, CapacityError | OversizedError) or str(error).startswith("MemoryError")
