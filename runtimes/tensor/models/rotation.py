"""Moves versions into service and out of it: loads, swaps in one step, drains, ends, evicts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Mapping
from math import inf
from typing import Any

from adapters.errors import CapacityError
from runtimes.tensor.configuration.model_config import MissingVersion, served_versions
from runtimes.tensor.models.loading import Loader
from runtimes.tensor.models.records import ModelRecord, ModelTable, Source, VersionRecord
from runtimes.tensor.models.residency import MemoryHold, Occupant, Residency
from runtimes.tensor.models.served_model import ServedModel

CLOSE_SECONDS = 30.0
COLD = "cold: unloaded to free memory, loaded again by the next request"
COLD_RETRY_SECONDS = 10.0
"""Seconds before a failed load of a cold version is repeated."""
log = logging.getLogger(__name__)


class Rotation:
    """Changes the models in `table`, and owns their sources and tasks."""

    def __init__(self, table: ModelTable, loader: Loader, memory_budget: int, drain_seconds: float) -> None:
        self.residency = Residency(memory_budget, self._idle, self._evict)
        self._table = table
        self._loader = loader
        self._drain_seconds = drain_seconds
        self._sources: dict[ServedModel, Source] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        """Tasks that end versions. They are never cancelled."""

    def sources(self) -> Iterable[Source]:
        """The sources of all loaded versions, those that end included."""
        return self._sources.values()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task until it ends, or until `aclose`."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # raised by those that wait for it

    async def aclose(self) -> None:
        """End all loads and versions at once."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._table.leases.clear()
        await asyncio.gather(*(self._end(served) for served in tuple(self._sources)), *self._endings)
        for model in self._table.models.values():
            await self._release_source(model)

    # ── into service ──────────────────────────────────────────────────────────────────────────────────

    async def swap(self, model: ModelRecord, source: Source) -> Mapping[int, BaseException]:
        """Load new versions and replace the old ones in one step. Returns the failures by version.

        Raises `MissingVersion`.
        """
        numbers = served_versions(source.config, source.folder.versions)
        if absent := sorted({*source.config.version_policy.versions} - {*numbers}):
            log.warning("%s: versions %s of its policy are not there yet", model.name, ", ".join(map(str, absent)))
        model.forget(source)
        records = [model.versions.setdefault(number, VersionRecord(number)) for number in numbers]
        loading = [record for record in records if not record.is_current(source)]
        for record in records:
            if record not in loading:
                record.reason = ""  # of a change that failed and was taken back
            elif not record.usable:
                record.state, record.reason = "LOADING", ""
        failed: dict[int, BaseException] = {}
        for record, result in zip(loading, await self._all(source, loading), strict=True):
            if isinstance(result, ServedModel):
                self._take_over(model, record, source, result)
            else:
                failed[record.number] = result
                record.failed(f"cannot be loaded: {result}")
                log.error("%s version %d cannot be loaded: %s", model.name, record.number, result)
        if not failed:
            for record in model.versions.values():
                if record.number not in numbers and not record.is_retained:
                    self._withdraw(model, record)
        if len(failed) < len(loading) or not failed:
            await self._adopt(model, source)
        return failed

    async def _all(self, source: Source, records: Iterable[VersionRecord]) -> list[ServedModel | BaseException]:
        """Load each version. Returns the versions or their errors. If cancelled, it leaves no version loaded."""
        tasks = [asyncio.create_task(self.bring_up(source, record)) for record in records]
        try:
            return await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            for task, record in zip(tasks, records, strict=True):
                record.failed("loading was cancelled")
                if not task.cancelled() and task.exception() is None:
                    await self._end(task.result())
            raise

    async def bring_up(self, source: Source, record: VersionRecord) -> ServedModel:
        """Load a version and count it in the budget. It is not in service yet."""
        version = f"{source.folder.name} version {record.number}"
        source.use()
        hold: MemoryHold | None = None
        served: ServedModel | None = None
        try:
            hold = await self.residency.admit(record.expected_bytes(source), version)
            served = await self._loader.load(source, record.number, record.statistics)
            await self.residency.settle(hold, served.memory_bytes, version)
        except BaseException:
            record.failures += 1
            if served is not None:
                await served.aclose()
            if hold is not None:
                self.residency.give_back(hold)
            await source.release()
            raise
        record.loads += 1
        record.memory_bytes = served.memory_bytes
        served.hold = hold
        self._sources[served] = source
        return served

    async def warm(self, model: ModelRecord, record: VersionRecord) -> None:
        """Load a cold version again."""
        assert record.source is not None
        try:
            served = await self.bring_up(record.source, record)
        except CapacityError:
            raise
        except Exception as error:
            record.reason = f"cold, and cannot be loaded: {error}"
            record.retry_at = asyncio.get_running_loop().time() + COLD_RETRY_SECONDS
            log.error("%s version %d cannot be loaded again: %s", model.name, record.number, error)
            raise
        finally:
            record.warming = None
        if record.cold:
            record.served, record.cold, record.reason = served, False, ""
            self._table.publish(model)
        else:  # it was replaced meanwhile
            await self._end(served)

    def _take_over(self, model: ModelRecord, record: VersionRecord, source: Source, served: ServedModel) -> None:
        old, record.served = record.served, served
        record.state, record.reason, record.cold = "READY", "", False
        record.source, record.config, record.card = source, served.config, served.card
        if old is not None:
            self._retire(model, old, None)

    async def _adopt(self, model: ModelRecord, source: Source) -> None:
        model.problem = ""
        model.update_labels(source.config.version_labels)
        self._table.publish(model)
        source.use()
        old, model.source = model.source, source
        if old is not None:
            await old.release()

    # ── out of service ────────────────────────────────────────────────────────────────────────────────

    async def withdraw_all(self, model: ModelRecord) -> None:
        """Remove all versions of a model from service before the return."""
        for record in model.versions.values():
            self._withdraw(model, record)
        model.labels = {}
        self._table.publish(model)
        await self._release_source(model)

    def _withdraw(self, model: ModelRecord, record: VersionRecord) -> None:
        served, record.served = record.served, None
        record.cold = False
        if served is not None:
            record.state, record.reason = "UNLOADING", "unloaded"
            self._retire(model, served, record)
        elif record.state != "UNLOADING":
            record.state, record.reason = "UNAVAILABLE", "unloaded"

    async def _release_source(self, model: ModelRecord) -> None:
        source, model.source = model.source, None
        if source is not None:
            await source.release()

    def _retire(self, model: ModelRecord, served: ServedModel, record: VersionRecord | None) -> None:
        model.retiring.append(served)
        self.spawn(self._drain(model, served, record), f"drain {served.name} {served.version}")

    async def _drain(self, model: ModelRecord, served: ServedModel, record: VersionRecord | None) -> None:
        seconds = self._drain_seconds
        if served.config.sequence_batching is not None:
            seconds = max(seconds, served.config.sequence_batching.max_sequence_idle)
        try:
            async with asyncio.timeout(seconds):
                await served.drain()
        except TimeoutError:
            log.warning(
                "%s version %s ends though it was in use for another %g s", served.name, served.version, seconds
            )
        finally:
            model.retiring.remove(served)
            await self._end(served)
            if record is not None and record.state == "UNLOADING":
                record.state = "UNAVAILABLE"

    async def _end(self, served: ServedModel) -> None:
        source = self._sources.pop(served, None)
        if source is None:
            return
        ending = asyncio.create_task(self._close(served, source), name=f"end {served.name} {served.version}")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        await asyncio.shield(ending)

    async def _close(self, served: ServedModel, source: Source) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await served.aclose()
        except Exception as error:
            log.error("%s version %s failed at its end: %s", served.name, served.version, error or type(error).__name__)
        finally:
            if served.hold is not None:
                self.residency.give_back(served.hold)
            await source.release()

    # ── retention ─────────────────────────────────────────────────────────────────────────────────────────

    def retain(self, model: ModelRecord, record: VersionRecord, seconds: float) -> None:
        """Leave a version loaded for some seconds from now: a newer version does not replace it, and for memory other
        versions are evicted first. A cold version is loaded if there is memory. Further calls extend the time."""
        loop = asyncio.get_running_loop()
        record.retained_until = max(record.retained_until, loop.time() + seconds)
        if record.releasing is None:
            record.releasing = self.spawn(self._release(model, record), f"retain {model.name} {record.number}")
        free = record.source is not None and self.residency.budget.victims(record.expected_bytes(record.source), ())
        if record.cold and record.warming is None and free == () and loop.time() >= record.retry_at:
            record.warming = self.spawn(self.warm(model, record), f"load {model.name} {record.number}")

    async def _release(self, model: ModelRecord, record: VersionRecord) -> None:
        """At the end of the retention, withdraw a version that the policy does not serve."""
        loop = asyncio.get_running_loop()
        while (left := record.retained_until - loop.time()) > 0:  # noqa: ASYNC110 - it ends by time alone
            await asyncio.sleep(left)
        async with model.lock:
            record.releasing, source = None, model.source
            if source is None or not record.usable or record.is_retained:
                return
            with contextlib.suppress(MissingVersion):
                if record.number not in served_versions(source.config, source.folder.versions):
                    self._withdraw(model, record)
                    self._table.publish(model)

    # ── making room ───────────────────────────────────────────────────────────────────────────────────

    def _idle(self) -> Iterable[Occupant]:
        for model in self._table.models.values():
            for record in model.versions.values():
                served = record.served
                if served is not None and served.hold is not None and served.is_idle and _has_memory(served):
                    yield Occupant(served.hold, inf if record.is_retained else served.last_used)

    async def _evict(self, hold: MemoryHold) -> None:
        for model in self._table.models.values():
            for record in model.versions.values():
                served = record.served
                if served is not None and served.hold is hold and served.is_idle:
                    record.served, record.cold, record.reason = None, True, COLD
                    self._table.publish(model)
                    log.info("%s version %d is unloaded to free memory", model.name, record.number)
                    await self._end(served)
                    return


def _has_memory(served: ServedModel) -> bool:
    """Whether its end releases memory: an ensemble without processes has none."""
    return served.config.ensemble is None or served.config.processes > 0
