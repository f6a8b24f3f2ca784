"""Models whose files script their behaviour, for tests of loading and unloading.

`1/model.py` holds words: `fail` to load, `hang` while loading, `refuse` the warm-up, `memory=N` bytes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

import numpy as np

from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import (
    Batch,
    Done,
    Instance,
    LoadReport,
    ModelFailed,
    ModelLoadError,
    StreamControl,
    Tensors,
)
from runtimes.tensor.models.loading import Parts
from runtimes.tensor.models.manager import ManagerOptions, ModelManager
from runtimes.tensor.models.repository import Repository
from runtimes.tensor.models.served_model import ServedModel
from runtimes.tensor.scheduling.responses import Responses
from runtimes.tensor.statistics import ModelStatistics

CONFIG = """
max_batch_size: 4
inputs: [{name: A, datatype: FP32, dims: [2]}]
outputs: [{name: B, datatype: FP32, dims: [2]}]
"""
WARMED = CONFIG + "warmup: [{name: first, inputs: [{name: A, datatype: FP32, dims: [2], data: random}]}]\n"


class FakeInstance:
    """Answers its inputs, in the same step."""

    def __init__(self, name: str, words: frozenset[str], memory: int) -> None:
        self.name = name
        self.ready = True
        self.on_ready: Callable[[], None] = lambda: None
        self.on_stuck: Callable[[float], None] = lambda seconds: None
        self.report = LoadReport(memory_bytes=memory)
        self.restarts = 0
        self.batches: list[Batch] = []
        self.closed = False
        self._words = words

    def start(self, batch: Batch, done: Done) -> None:
        self.batches.append(batch)
        if "refuse" in self._words:
            done(ModelFailed("not today"))
        else:
            done({"B": np.zeros((sum(batch.rows), 2), np.float32)})

    def stream(
        self, inputs: Tensors, response: Callable[[Tensors], None], done: Callable[[BaseException | None], None]
    ) -> StreamControl:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


@dataclass(eq=False)
class FakeScheduler:
    """Is idle until a test opens a sequence or holds a request."""

    config: ModelConfig
    sequences: set[int | str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    waiting: int = 0
    computing: int = 0

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        raise NotImplementedError

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        return not self.sequences

    def holds(self, sequence: int | str) -> bool:
        return sequence in self.sequences

    def end(self, sequence: int | str) -> None:
        self.sequences.discard(sequence)
        self.changed.set()

    async def drain(self) -> None:
        while not self.is_idle:
            self.changed.clear()
            await self.changed.wait()

    async def aclose(self) -> None:
        self.closed = True


def scheduler_of(served: ServedModel) -> FakeScheduler:
    assert isinstance(served.scheduler, FakeScheduler)
    return served.scheduler


class Workshop:
    """Makes versions, and records them."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        """The loaded versions as `NAME/VERSION`, in order."""
        self.instances: list[FakeInstance] = []
        self.hanging = 0
        self.most_at_once = 0
        self.release = asyncio.Event()
        """Ends the wait of `hang`."""
        self._at_once = 0

    @property
    def parts(self) -> Parts:
        return Parts(self._complete, self._start, self._scheduler)

    @property
    def open(self) -> list[FakeInstance]:
        return [instance for instance in self.instances if not instance.closed]

    async def _complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        return replace(config, default_model_filename="model.py")

    async def _start(self, config: ModelConfig, folder: Path) -> Sequence[Instance]:
        words = frozenset((folder / "model.py").read_text().split())
        memory = next((int(word.removeprefix("memory=")) for word in words if word.startswith("memory=")), 0)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self._load(words)
        finally:
            self._at_once -= 1
        self.loaded.append(f"{config.name}/{folder.name}")
        made = [FakeInstance(f"{config.name}_0_{i}", words, memory) for i in range(config.instance_groups[0].count)]
        self.instances += made
        return made

    async def _load(self, words: frozenset[str]) -> None:
        if "hang" in words:
            self.hanging += 1
            try:
                await self.release.wait()
            finally:
                self.hanging -= 1
        await asyncio.sleep(0)
        if "fail" in words:
            raise ModelLoadError("it does not want to")

    def _scheduler(
        self, config: ModelConfig, instances: Sequence[Instance], statistics: ModelStatistics
    ) -> FakeScheduler:
        return FakeScheduler(config)


def put(root: Path, name: str, version: int = 1, words: str = "fine", config: str = CONFIG) -> Path:
    """A version of a model, in place of the previous files."""
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (root / name / "model.yaml").write_text(config)
    (folder / "model.py").write_text(words)
    return folder


def manager_of(root: Path, workshop: Workshop, mode: str = "explicit", **options: object) -> ModelManager:
    return ModelManager(Repository(root), workshop.parts, ManagerOptions(mode=mode, **options))  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def managing(
    root: Path, workshop: Workshop, mode: str = "explicit", **options: object
) -> AsyncIterator[ModelManager]:
    """A manager that has been started; at the end nothing is open, leased or counted."""
    manager = manager_of(root, workshop, mode, **options)
    await manager.start()
    try:
        yield manager
    finally:
        await manager.aclose()
    assert workshop.open == []
    assert manager.table.leases == {}
    assert memory_used(manager) == 0


def used(manager: ModelManager, name: str = "m", version: str = "") -> ServedModel:
    """A version in service, leased."""
    served = manager.lease(name, version)
    assert served is not None
    return served


def memory_used(manager: ModelManager) -> int:
    """Bytes that are counted against the memory budget."""
    return manager._rotation.residency.budget.used
