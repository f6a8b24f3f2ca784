"""Loads a version from its files, and the configuration before that: verified, completed, loaded, warmed up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from config.problem import ConfigError
from config.schema.units import format_size
from runtimes.tensor.configuration.checks import check
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.configuration.reading import Reading, read_model, read_override, usual_file
from runtimes.tensor.drift.monitor import DriftMonitor
from runtimes.tensor.drift.plans import read_plans
from runtimes.tensor.explanations import making
from runtimes.tensor.explanations.explanation import Explainer
from runtimes.tensor.interfaces import Instance, ModelLoadError, RequestInstance
from runtimes.tensor.models import manifest, members, probe
from runtimes.tensor.models.archives import unpacked
from runtimes.tensor.models.card import make_card
from runtimes.tensor.models.members import Describe
from runtimes.tensor.models.overrides import Override, remove, unpack
from runtimes.tensor.models.records import Source
from runtimes.tensor.models.repository import ModelFolder, Repository, RepositoryError, check_name
from runtimes.tensor.models.served_model import ModelScheduler, ServedModel
from runtimes.tensor.models.warmup import warm_up
from runtimes.tensor.scheduling.clock import clock
from runtimes.tensor.statistics import ModelStatistics


class SourceError(Exception):
    """The configuration is invalid, or no version can be loaded; the message names the change to make."""


async def read_source(repository: Repository, name: str, override: Override | None) -> Source:
    """Read the source of a model. Raises `RepositoryError` for an unknown model, `SourceError` for an invalid model."""
    work = asyncio.ensure_future(asyncio.to_thread(_read, repository, name, override))
    try:
        source, reading = await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_discard)
        raise
    for warning in reading.warnings:
        log.warning("%s", warning)
    return source


def _discard(work: asyncio.Future[tuple[Source, Reading]]) -> None:
    """Remove the files that a cancelled load wrote."""
    if not work.cancelled() and work.exception() is None and work.result()[0].temporary:
        asyncio.get_running_loop().run_in_executor(None, remove, work.result()[0].folder.path)


def _read(repository: Repository, name: str, override: Override | None) -> tuple[Source, Reading]:
    check_name(name)
    if override is None or not override.files:
        return _of_repository(repository.find(name), override)
    if not override.config:
        raise SourceError("files were sent without a configuration: send `config` with them")
    return _temporary(lambda: (unpack(name, override), override.digest), override)


def _of_repository(folder: ModelFolder, override: Override | None) -> tuple[Source, Reading]:
    digest = "" if override is None else override.digest
    if folder.listed is None or not folder.listed.is_packed:
        reading = _reading(folder, override)
        return Source(folder, reading.config, digest), reading

    def unpacking() -> tuple[ModelFolder, str]:
        own, contents = unpacked(folder)
        return own, f"{digest} {contents}"

    return _temporary(unpacking, override)


def _temporary(unpacking: Callable[[], tuple[ModelFolder, str]], override: Override | None) -> tuple[Source, Reading]:
    """The source in a folder that `unpacking` makes, with its digest. A failure leaves no file."""
    try:
        folder, digest = unpacking()
    except RepositoryError as error:
        raise SourceError(str(error)) from None
    try:
        reading = _reading(folder, override)
    except BaseException:
        remove(folder.path)
        raise
    return Source(folder, reading.config, digest, temporary=True), reading


def _reading(folder: ModelFolder, override: Override | None) -> Reading:
    versions = [folder.version(number) for number in folder.versions]
    try:
        if override is not None and override.config:
            return read_override(override.config, folder.name, folder.path, versions, folder.listed)
        return read_model(folder.path, folder.name, versions, folder.listed)
    except ConfigError as error:
        # Clients see the message, and do not see the path of the repository.
        raise SourceError(str(error).replace(f"{folder.path.parent}/", "")) from None


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """The functions that make a version in service. `complete` and `start` raise `ModelLoadError`."""

    complete: Callable[[ModelConfig, Path], Awaitable[ModelConfig]]
    """Completes the configuration from the model's file."""
    start: Callable[[ModelConfig, Path], Awaitable[Sequence[Instance]]]
    """All copies, loaded; none when it fails or is cancelled."""
    scheduler: Callable[[ModelConfig, Sequence[Instance], ModelStatistics], ModelScheduler]
    start_ensemble: Callable[[ModelConfig, Path], Awaitable[Sequence[Instance]]] | None = None
    """The processes of an ensemble with its own processes."""


class Loader:
    """Loads a few versions at a time, each within its time."""

    def __init__(self, parts: Parts, describe: Describe, *, seconds: float, parallel: int) -> None:
        """`describe` has the models that ensembles depend on."""
        self._parts = parts
        self._describe = describe
        self._seconds = seconds
        self._slots = asyncio.Semaphore(parallel)
        self._returning: set[asyncio.Task[bool]] = set()

    @asynccontextmanager
    async def lent_slot(self) -> AsyncIterator[None]:
        """Lend the slot of a loading model to others, while it waits for the load of another model."""
        self._slots.release()
        try:
            yield
        finally:
            returning = asyncio.create_task(self._slots.acquire())
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            await asyncio.shield(returning)  # the slot returns even if the wait is cancelled

    async def load(self, source: Source, number: int, statistics: ModelStatistics) -> ServedModel:
        """Load a version. Raises `ModelLoadError`; after an error or a cancellation nothing of it remains."""
        async with self._slots:
            name = source.folder.name
            log.info("loading %s version %d with %s", name, number, source.config.backend)
            started = asyncio.get_running_loop().time()
            limit = asyncio.timeout(self._seconds)
            try:
                async with limit:
                    served = await self._load(source, number, statistics)
            except TimeoutError as error:
                if not limit.expired():
                    raise ModelLoadError(str(error) or "timed out") from error
                raise ModelLoadError(f"loading took longer than {self._seconds:g} s") from None
            served.load_seconds = asyncio.get_running_loop().time() - started
            values = name, number, served.load_seconds, len(served.instances), format_size(served.memory_bytes)
            log.info("%s version %d is loaded after %.1f s: instances %d, memory %s", *values)
            return served

    async def _load(self, source: Source, number: int, statistics: ModelStatistics) -> ServedModel:
        folder = source.folder.version(number)
        try:
            await asyncio.to_thread(manifest.verify, folder)
        except manifest.Incomplete as error:
            raise ModelLoadError(str(error)) from None
        if source.config.ensemble is not None:
            config = members.completed(source.config, self._describe)
        else:
            config = await self._parts.complete(source.config, folder)
        file = config.default_model_filename or await asyncio.to_thread(usual_file, config.backend, folder)
        for place, message, _ in check(config):
            raise ModelLoadError(f"{'.'.join(map(str, place))}: {message}")
        config, instances = await self._started(config, source.config, folder)
        try:
            card = await asyncio.to_thread(make_card, config, source.folder, number)
            drift = await _drift(config, folder, source.folder.path)
            for instance in instances:
                await warm_up(config, instance, source.folder.path)
            scheduler = self._parts.scheduler(config, instances, statistics)
            explainer = None
            if config.explain is not None:
                explainer = await self._explainer(config, source.folder.path, folder, scheduler)
        except BaseException:
            await _end(instances)
            raise
        return ServedModel(
            name=source.folder.name,
            version=str(number),
            config=replace(config, default_model_filename=file),
            scheduler=scheduler,
            instances=instances,
            folder=folder,
            statistics=statistics,
            drift=drift,
            card=card,
            memory_bytes=config.memory_bytes or _memory(instances, explainer),
            explainer=explainer,
            last_used=asyncio.get_running_loop().time(),
        )

    async def _explainer(
        self, config: ModelConfig, model_folder: Path, folder: Path, scheduler: ModelScheduler
    ) -> Explainer:
        """The explainer of a loaded version. Raises `ModelLoadError`, and then closes the scheduler."""

        def schedule(own: ModelConfig, instances: Sequence[Instance]) -> ModelScheduler:
            return self._parts.scheduler(own, instances, ModelStatistics())

        try:
            return await making.make(config, model_folder, folder, scheduler, self._parts.start, schedule)
        except BaseException:
            await scheduler.aclose()
            raise

    async def _started(
        self, config: ModelConfig, source: ModelConfig, folder: Path
    ) -> tuple[ModelConfig, Sequence[Instance]]:
        """The copies of a model, which has answered its probe if `source` was completed. Without a batch, if its rows
        are not separate. Raises `ModelLoadError`."""
        instances = await self._start(config, folder)
        if not instances or isinstance(instances[0], RequestInstance) or not probe.is_needed(config, source):
            return config, instances
        try:
            if config.batch == "assumed" and not await probe.has_separate_rows(config, instances[0]):
                log.info("%s: rows differ together and alone: their dimension is not the batch", config.name)
                await _end(instances)
                instances = ()
                config = await self._parts.complete(replace(source, batch="written"), folder)
                instances = await self._start(config, folder)
            await probe.check_answers(config, instances[0])
        except BaseException:
            await _end(instances)
            raise
        return config, instances

    async def _start(self, config: ModelConfig, folder: Path) -> Sequence[Instance]:
        """The copies of a complete model. Raises `ModelLoadError`."""
        if config.ensemble is None:
            return await self._parts.start(config, folder)
        if not config.processes:
            return ()
        assert self._parts.start_ensemble is not None
        return await self._parts.start_ensemble(config, folder)


async def _drift(config: ModelConfig, *folders: Path) -> DriftMonitor | None:
    """The comparison with the reference of the configuration; None without one. Raises `ModelLoadError`."""
    if config.drift is None:
        return None
    plans = await asyncio.to_thread(read_plans, config, config.drift, folders)
    return DriftMonitor(plans, config.drift, clock(asyncio.get_running_loop()))


def _memory(instances: Sequence[Instance], explainer: Explainer | None) -> int:
    """The measured memory of all copies."""
    own = sum(instance.report.memory_bytes for instance in instances)
    return own if explainer is None else own + explainer.memory_bytes


async def _end(instances: Sequence[Instance]) -> None:
    for instance in instances:
        with suppress(Exception):
            await instance.aclose()
