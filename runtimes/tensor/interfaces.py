"""The interfaces of backends, loaded models and instances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy.typing as npt

from runtimes.tensor.configuration.model_config import ModelConfig

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
"""Arrays by name. The batch dimension comes first if the model has one. BYTES are object arrays of `bytes`; BF16 is a
uint16 array of the upper halves of float32, which numpy has no type for.

On the way to a model and from it, a large BYTES tensor is a `texts.Texts`, which has the interface of an array that
schedulers use.
"""


@dataclass(frozen=True, slots=True)
class Device:
    """The device of one copy. `gpu` None is the CPU; `threads` 0 leaves their number to the framework."""

    gpu: int | None = None
    threads: int = 0


class Model(Protocol):
    """One loaded copy. It receives one call at a time, always in the same thread or process."""

    def infer(self, inputs: Tensors) -> Any:
        """All outputs of one batch, by name; a decoupled model gives an iterator of them. May raise anything.

        Outputs beside a mapping from each failed row to its error: those rows fail alone, and an `InvalidRow` is
        reported as the caller's mistake. Inputs belong to the model
        until it has answered, and have the shape that the model itself has (`TensorSpec.reshape`).
        """
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """A framework. Everything here may be slow, and is called off the loop."""

    name: str

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        """Add the declarations of the model's file: inputs, outputs, and whether they have a batch dimension.

        Raises `ModelLoadError` if the file contradicts the configuration.
        """
        ...

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """Load a version from its folder. Raises `ModelLoadError`, whose message names the change to make."""
        ...


@runtime_checkable
class ExplainingBackend(Protocol):
    """A framework whose models compute their own explanations. Everything here may be slow."""

    name: str

    def explainer(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """Load a copy with the outputs of `explanations.exact`. Raises `ModelLoadError` for a model without them."""
        ...


MAX_SELECTED: Final = 16
"""The largest number of outputs of a model of which a batch may select some."""


@dataclass(slots=True)
class Batch:
    """The inputs of one execution, by member, to be joined along the first dimension.

    A model without a batch dimension gets one member at a time, unchanged.
    """

    members: Sequence[Tensors]
    rows: Sequence[int]
    """The rows of each member."""
    outputs: int = 0
    """The outputs that a member wants, as bits by their places in the configuration; 0 for all."""


class SelectiveModel(Model, Protocol):
    """A model that computes each output apart, so that it need not compute those that nobody wants."""

    def infer_some(self, inputs: Tensors, outputs: Collection[str]) -> Any:
        """These outputs of one batch. See `infer`."""
        ...


Done = Callable[[Tensors | BaseException], None]
"""Called once, on the loop, with the outputs of the whole batch, or with its error (`RowsFailed`: of some rows)."""


class StreamControl(Protocol):
    """One request of a decoupled model while it is answered. `done` comes once, also after `stop`."""

    def pause(self) -> None:
        """Hold further responses until `resume`; the model waits."""
        ...

    def resume(self) -> None: ...

    def stop(self) -> None:
        """Discard further responses; the model's generator is closed when it next yields."""
        ...


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The report of loading one copy."""

    seconds: float = 0
    memory_bytes: int = 0
    """Memory beyond an empty process; on a thread, the growth of this process."""
    pid: int = 0
    quantization: Mapping[str, float | str] = field(default_factory=dict)
    """The effect of `quantize`, measured against the original."""


class Instance(Protocol):
    """One copy of a model that is ready to compute. Made, used and ended on the loop's thread; one batch at a time.

    Inputs come in the shape that callers see; the instance converts them to the model's shape and back. Outputs
    are checked against the configuration before `done` gets them.
    """

    name: str
    ready: bool
    """False while a replacement starts; then `start` is answered with `InstanceLost` at once."""
    on_ready: Callable[[], None]
    """Set by the scheduler; called on the loop when the instance is ready again."""
    on_stuck: Callable[[float], None]
    """Set by the scheduler; called while the instance cannot be replaced, with the seconds until the next try."""
    report: LoadReport
    restarts: int
    """The number of replacements."""

    def start(self, batch: Batch, done: Done) -> None:
        """Compute a batch. `done` gets `InstanceLost` if the copy died or hung; a replacement is then starting.

        `done` may come before this returns.
        """
        ...

    def stream(
        self, inputs: Tensors, response: Callable[[Tensors], None], done: Callable[[BaseException | None], None]
    ) -> StreamControl:
        """Compute one request of a decoupled model."""
        ...

    async def aclose(self) -> None:
        """End it; a batch that it computes gets `InstanceLost`. Idempotent."""
        ...


@runtime_checkable
class RequestInstance(Instance, Protocol):
    """A copy of a model that receives requests whole. It has neither `start` nor `stream`."""

    def execute(self, requests: Sequence[Any], on_end: Callable[[Any], None], done: Done) -> None:
        """Execute requests (`requests.open_request`). `on_end` is called for each of them at its end, perhaps later
        than `done`, which reports that the copy can execute others, or why it cannot."""
        ...


class ModelLoadError(Exception):
    """A model cannot be loaded. The message names the change to make."""


class ModelFailed(Exception):
    """The model's own code raised, or its outputs contradict the configuration. The message is for the caller."""


class RowsFailed(ModelFailed):
    """Some rows failed alone. `outputs` has every row, and the rows in `errors` are not valid."""

    def __init__(self, outputs: Tensors, errors: Mapping[int, str]) -> None:
        super().__init__(next(iter(errors.values()), ""))
        self.outputs = outputs
        self.errors = errors


class InvalidRow(str):
    """The error of a row that is the caller's mistake, such as a damaged picture. Any other error is the model's."""

    __slots__ = ()


class InstanceLost(Exception):
    """The copy that computed the request died, or exceeded its time."""


class InstanceEnded(InstanceLost):
    """The copy was closed, or had not begun the request: the request is not the cause."""
