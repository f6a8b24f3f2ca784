"""What is known of a model before it runs. Triton's vocabulary, whichever file it was written in.

Times are seconds, and sizes are rows unless they say bytes. Dimensions leave out the batch; -1 is any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Dims = tuple[int, ...]
Datatype = str
"""As the Open Inference Protocol spells it: FP32, INT64, BYTES …"""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or an output."""

    name: str
    datatype: Datatype
    dims: Dims
    optional: bool = False
    reshape: Dims | None = None
    """The shape that the model itself has, where it differs."""
    allow_ragged_batch: bool = False
    """Requests of different shapes share a batch, joined end to end."""
    labels: tuple[str, ...] = ()
    """Of an output: the classes that its last dimension counts."""
    label_file: str = ""
    """The file beside the model's versions that they were read from, one a line."""
    layout: Literal["", "nhwc", "nchw"] = ""
    """Of an input that is an image: where its channels are."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """What happens to requests that wait."""

    max_queue_size: int = 0
    """Requests; 0 leaves it to the runtime's own bound."""
    default_timeout: float = 0
    """How long a request may wait; 0 for its deadline only."""
    timeout_action: Literal["reject", "delay"] = "reject"
    allow_timeout_override: bool = False
    """Whether a request's own `timeout` may shorten it."""


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """How requests are joined into batches."""

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay: float = 0
    """The longest that a request waits for company while an instance is idle."""
    preserve_ordering: bool = False
    priority_levels: int = 0
    """1 is the most urgent; 0: all are alike."""
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = QueuePolicy()
    priority_queue_policy: Mapping[int, QueuePolicy] = field(default_factory=dict)
    allowed_batch_sizes: tuple[int, ...] = ()
    """A batch is padded up to the next of these, for models that are compiled for a few sizes."""
    pad_to: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By input: lengths to which its variable dimensions are padded with zeros, so that more requests are alike."""


ControlKind = Literal["start", "ready", "end", "corrid"]


@dataclass(frozen=True, slots=True)
class SequenceControl:
    """An input that the runtime makes: what it tells the model about the sequence of each row."""

    kind: ControlKind
    name: str
    datatype: Datatype
    false_true: tuple[float, float] = (0, 1)


@dataclass(frozen=True, slots=True)
class SequenceState:
    """A tensor that the runtime keeps between the requests of a sequence."""

    input_name: str
    output_name: str
    datatype: Datatype
    dims: Dims
    initial: Literal["zero"] | bytes = "zero"
    """The first value: zeros, or one row in binary form."""
    initial_file: str = ""
    """The file of the model's `initial_state` folder that it was read from."""
    initial_dims: Dims | None = None
    """The first value's shape, where -1 leaves it open; None: 1 in place of each -1."""


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    """How requests of one sequence reach one instance, in order."""

    strategy: Literal["direct", "oldest"] = "direct"
    max_sequence_idle: float = 1.0
    max_candidate_sequences: int = 0
    """Open sequences at a time; 0 leaves it to the runtime's own bound."""
    max_queue_delay: float = 0
    minimum_slot_utilization: float = 0
    preferred_batch_size: tuple[int, ...] = ()
    preserve_ordering: bool = False
    controls: tuple[SequenceControl, ...] = ()
    states: tuple[SequenceState, ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Copies of a model, and where they run."""

    count: int = 1
    kind: Literal["auto", "cpu", "gpu"] = "auto"
    gpus: tuple[int, ...] = ()
    placement: Literal["auto", "thread", "process"] = "auto"
    """A thread for what computes outside of Python's lock, else a process of its own, which may die alone."""
    cpus: tuple[int, ...] = ()
    """Cores that its threads are pinned to; all when empty."""
    threads: int = 0
    """Threads inside one copy; 0 for an even share of the cores."""


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions of those that are there are served."""

    kind: Literal["latest", "all", "specific"] = "latest"
    latest: int = 1
    versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a warm-up request: zeros, random values, or a file of the model's `warmup` folder."""

    name: str
    datatype: Datatype
    dims: Dims
    data: Literal["zero", "random"] | str = "zero"
    """A word, or `file:NAME`."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """A request that a new version must answer before it takes traffic."""

    name: str
    batch_size: int = 0
    count: int = 1
    inputs: tuple[WarmupInput, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseCache:
    """Answers kept for requests that are exactly alike."""

    enable: bool = False
    ttl: float = 0
    """How long an answer is kept; 0 until its place is needed."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model. `max_batch_size` 0: its inputs have no batch dimension, and nothing is joined."""

    name: str
    backend: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    max_batch_size: int = 0
    platform: str = ""
    """Triton's older word for the backend and its format, told as it was written."""
    default_model_filename: str = ""
    version_policy: VersionPolicy = VersionPolicy()
    version_labels: Mapping[str, int] = field(default_factory=dict)
    """Names of versions: stable, canary."""
    dynamic_batching: DynamicBatching | None = None
    sequence_batching: SequenceBatching | None = None
    instance_groups: tuple[InstanceGroup, ...] = (InstanceGroup(),)
    decoupled: bool = False
    """A request is answered by any number of responses."""
    warmup: tuple[Warmup, ...] = ()
    response_cache: ResponseCache = ResponseCache()
    quantize: Literal["", "int8", "fp16", "bf16"] = ""
    """Numbers that weights are turned into at load."""
    execution_timeout: float = 0
    """How long one batch may compute before its instance counts as hung and is replaced; 0: the runtime's own bound."""
    memory_bytes: int = 0
    """What one loaded version takes; 0: measured when it is loaded."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """For the backend."""

    def input(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.inputs if spec.name == name), None)

    def output(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.outputs if spec.name == name), None)
