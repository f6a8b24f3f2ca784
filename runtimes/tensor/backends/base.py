"""What a framework must do to be served, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from runtimes.tensor.model_config import ModelConfig

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
"""By name. With a batch dimension first where the model has one. BYTES are object arrays of `bytes`; BF16 is a
uint16 array of the upper halves of float32, which numpy has no type for."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where one copy computes. `gpu` None is the CPU; `threads` 0 leaves their number to the framework."""

    gpu: int | None = None
    threads: int = 0


class Model(Protocol):
    """One loaded copy. Only one call at a time is made of it, always from the same thread or process."""

    def infer(self, inputs: Tensors) -> Tensors | Iterator[Tensors]:
        """All outputs of one batch; a decoupled model gives an iterator of them. May raise anything."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """A framework. Everything here may be slow, and is called off the loop."""

    name: str
    in_thread: bool
    """Whether it computes outside of Python's lock, so that a thread serves as well as a process."""

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        """Fill in what the model's own file knows: inputs, outputs, whether they have a batch dimension.

        Raises `ModelLoadError` where the two contradict each other.
        """
        ...

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """Load from a version's folder. Raises `ModelLoadError`, which says what to change."""
        ...


@dataclass(slots=True)
class Batch:
    """What one execution computes: the inputs of each member, to be joined along the first dimension.

    A model without a batch dimension gets one member at a time, as it is.
    """

    members: Sequence[Tensors]
    rows: Sequence[int]
    """Of each member."""


Done = Callable[[Tensors | BaseException], None]
"""Called on the loop, once: the outputs of the whole batch, or why there are none."""


class Instance(Protocol):
    """One copy of a model that is ready to compute. Made, used and ended on the loop's thread; one batch at a time."""

    name: str

    def start(self, batch: Batch, done: Done) -> None:
        """Compute a batch. `done` gets `InstanceLost` when the copy died or hung; a replacement is then under way."""
        ...

    def stream(
        self, inputs: Tensors, response: Callable[[Tensors], None], done: Callable[[BaseException | None], None]
    ) -> Callable[[], None]:
        """Compute one request of a decoupled model; returns what stops it."""
        ...

    async def aclose(self) -> None: ...


class ModelLoadError(Exception):
    """A model cannot be loaded. The message tells ops what to change."""


class ModelFailed(Exception):
    """The model's own code raised. The message is what it said, for the caller."""


class InstanceLost(Exception):
    """The copy that computed this died, or took longer than it may."""
