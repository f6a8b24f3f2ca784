"""A model's configuration, and the table of its fields in both files: see `table.At`.

Times are seconds, and sizes are rows unless their names have bytes. Dimensions leave out the batch; -1 is any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from runtimes.tensor.configuration import table
from runtimes.tensor.configuration.table import PARAMETER, At

MAX_BATCH: Final = 1 << 20
PMML_ADVICE: Final = "export the model as ONNX from where it was trained, or serve it by KServe's pmmlserver as a pool"
"""Evaluators without Java leave out parts that change answers, such as `Targets` and `normalizationMethod`."""
Dims = tuple[int, ...]
Datatype = Annotated[str, At("data_type", codec=table.DATATYPE)]
"""The datatype's name in the Open Inference Protocol: FP32, INT64, BYTES …"""
Name = Annotated[str, At(named=True)]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or an output."""

    name: Name
    datatype: Datatype
    dims: Annotated[
        Dims, At(lengths=True, required="is required: leave out all inputs and outputs to read them from the model")
    ]
    optional: Annotated[bool, At(only="inputs")] = False
    reshape: Annotated[Dims | None, At("reshape.shape", lengths=True)] = None
    """The shape at the model, if it differs."""
    allow_ragged_batch: Annotated[bool, At(yaml="ragged", only="inputs")] = False
    """Requests of different shapes share a batch, joined end to end."""
    labels: Annotated[tuple[str, ...], At(None, yaml=None)] = ()
    """The classes of an output's last dimension."""
    label_file: Annotated[str, At("label_filename", yaml="labels", only="outputs")] = ""
    """The file beside the model's versions that holds the classes, one a line."""
    layout: Annotated[Literal["", "nhwc", "nchw"], At("format", codec=table.LAYOUT, only="inputs")] = ""
    """The dimension of an image's channels."""


@dataclass(frozen=True, slots=True)
class BatchInput:
    """An input that the runtime makes of the shapes of an input in a batch."""

    kind: Annotated[
        Literal[
            "element_count", "accumulated_element_count", "accumulated_element_count_with_zero",
            "max_element_count_as_shape", "item_shape", "item_shape_flatten",
        ],
        At(codec=table.BATCH_INPUT_KIND, always=True),
    ]  # fmt: skip
    target_name: tuple[str, ...]
    """The inputs of the model that receive it."""
    datatype: Datatype
    source_input: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """An output whose part for each request has the length of an input of that request."""

    target_name: tuple[str, ...]
    source_input: tuple[str, ...]
    kind: Annotated[Literal["scatter_with_input_shape"], At(codec=table.BATCH_OUTPUT_KIND, always=True)] = (
        "scatter_with_input_shape"
    )


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Bounds on the requests that wait."""

    max_queue_size: Annotated[int, At(least=0)] = 0
    """Requests; 0 for the runtime's own bound."""
    default_timeout: Annotated[float, At(unit="seconds", least=0)] = 0
    """The longest wait of a request; 0 for its deadline only."""
    timeout_action: Annotated[Literal["reject", "delay"], At(codec=table.TIMEOUT_ACTION)] = "reject"
    """A request that waited longer is rejected, or put behind all others."""
    allow_timeout_override: bool = False
    """Whether the `timeout` of a request may shorten it."""


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """The rules by which requests are joined into batches."""

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay: Annotated[float, At(unit="seconds", least=0)] = 0
    """The longest wait of a request for others while an instance is idle."""
    preserve_ordering: bool = False
    priority_levels: Annotated[int, At(least=0, most=1024)] = 0
    """1 is the most urgent; 0: there are none."""
    default_priority_level: Annotated[int, At(least=0)] = 0
    default_queue_policy: Annotated[QueuePolicy, At(yaml="queue")] = QueuePolicy()
    priority_queue_policy: Annotated[Mapping[int, QueuePolicy], At(yaml="priority_queues")] = field(
        default_factory=dict
    )
    allowed_batch_sizes: Annotated[tuple[int, ...], At(PARAMETER)] = ()
    """A batch is padded up to the next of these, for models that are compiled for a few sizes."""
    pad_to: Annotated[Mapping[str, tuple[int, ...]], At(PARAMETER)] = field(default_factory=dict)
    """By input: lengths to which its variable dimensions are padded with zeros, so that more requests are alike."""


ControlKind = Literal["start", "ready", "end", "corrid"]


@dataclass(frozen=True, slots=True)
class SequenceControl:
    """An input that the runtime makes: it reports the state of each row's sequence."""

    kind: Annotated[ControlKind, At("control.0.kind", codec=table.CONTROL_KIND)]
    name: Name
    datatype: Annotated[str, At("control.0.data_type", codec=table.CONTROL_TYPE)]
    false_true: Annotated[
        tuple[float, float], At("control.0.int32_false_true", codec=table.FALSE_TRUE, always=True)
    ] = (0, 1)


@dataclass(frozen=True, slots=True)
class SequenceState:
    """A tensor that the runtime stores between the requests of a sequence."""

    input_name: Name
    output_name: Name
    datatype: Datatype
    dims: Annotated[Dims, At(lengths=True)]
    initial: Annotated[Literal["zero"] | bytes, At(None, yaml=None)] = "zero"
    """The first value: zeros, or one row in binary form."""
    initial_file: Annotated[str, At("initial_state.0.data_file")] = ""
    """The file of the model's `initial_state` folder that holds it."""
    initial_dims: Annotated[Dims | None, At("initial_state.0.dims", lengths=True)] = None
    """The first value's shape if the state's has -1; None: 1 in place of each -1."""


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    """The rules by which requests of one sequence reach one instance, in order."""

    strategy: Annotated[Literal["direct", "oldest"], At("strategy_choice", codec=table.CHOICE)] = "direct"
    """`direct`: a sequence has a row of an instance until it ends. `oldest`: rows are given by age."""
    max_sequence_idle: Annotated[float, At(unit="seconds", above=0, zero_is_default=True)] = 1.0
    """A sequence without a request for longer is ended."""
    max_candidate_sequences: Annotated[int, At("oldest.max_candidate_sequences", least=0)] = 0
    """Open sequences at a time; 0 for the runtime's own bound."""
    max_queue_delay: Annotated[
        float,
        At("direct.max_queue_delay_microseconds|oldest.max_queue_delay_microseconds", unit="seconds", least=0),
    ] = 0
    """The longest wait of a request for rows of other sequences."""
    minimum_slot_utilization: Annotated[float, At("direct.minimum_slot_utilization", least=0, most=1)] = 0
    """The share of rows that must have a request before that delay ends."""
    preferred_batch_size: Annotated[tuple[int, ...], At("oldest.preferred_batch_size")] = ()
    preserve_ordering: Annotated[bool, At("oldest.preserve_ordering")] = False
    iterative_sequence: bool = False
    """Each request is a separate sequence, which the model may execute several times."""
    controls: Annotated[tuple[SequenceControl, ...], At("control_input")] = ()
    states: Annotated[tuple[SequenceState, ...], At("state")] = ()


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Copies of a model, and where they run."""

    count: Annotated[int, At(least=1, most=256, zero_is_default=True)] = 1
    kind: Annotated[Literal["auto", "cpu", "gpu"], At(codec=table.GROUP_KIND)] = "auto"
    gpus: Annotated[tuple[int, ...], At(least=0)] = ()
    placement: Annotated[Literal["auto", "thread", "process"], At(None)] = "auto"
    """A thread for models that compute outside of Python's lock, else a separate process, which may die alone."""
    cpus: Annotated[tuple[int, ...], At(None, least=0)] = ()
    """Cores that its threads are pinned to; all when empty."""
    threads: Annotated[int, At(None, least=0)] = 0
    """Threads inside one copy; 0 for an even share of the cores."""


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """The versions of the repository that are served."""

    kind: Annotated[Literal["latest", "all", "specific"], At("policy_choice", codec=table.CHOICE)] = "latest"
    latest: Annotated[int, At("latest.num_versions")] = 1
    versions: Annotated[tuple[int, ...], At("specific.versions")] = ()


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a warm-up request: zeros, random values, or a file of the model's `warmup` folder."""

    name: Annotated[str, At(None, named=True)]
    datatype: Datatype
    dims: Dims
    data: Annotated[Literal["zero", "random"] | str, At("input_data_type", codec=table.WARMUP_DATA)] = "zero"
    """A word, or `file:NAME`."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """A request that a new version must answer before it takes traffic."""

    name: str = ""
    batch_size: Annotated[int, At(least=0)] = 0
    count: Annotated[int, At(least=1, most=10_000, zero_is_default=True)] = 1
    inputs: Annotated[tuple[WarmupInput, ...], At(key="name")] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ResponseCache:
    """Responses that are stored for identical requests."""

    enable: Annotated[bool, At(yaml=None)] = False
    ttl: Annotated[float, At(None, unit="seconds")] = 0
    """Lifetime of a stored response; 0: until its memory is needed."""


@dataclass(frozen=True, slots=True)
class ExplainRules:
    """How the runtime explains answers: which part each feature has in them."""

    method: Annotated[Literal["auto", "tree", "gradients", "permutation", "kernel", "occlusion"], At(None)] = "auto"
    """`tree` is exact. `gradients` integrates those of a network. The others ask the model for
    mixtures of rows. `auto`: the first of `tree`, `gradients` and `permutation` that the model has."""
    background: Annotated[str, At(None)] = ""
    """The file in the model's folder with the rows that stand for an absent feature."""
    baseline: Annotated[float | None, At(None)] = None
    """A number that stands for each absent feature, in place of a background."""
    patch: Annotated[tuple[int, ...], At(None, least=1)] = ()
    """The lengths of a patch of the only input, by dimension: a patch is one feature. Empty: each element is one."""
    features: Annotated[Literal["elements", "words"], At(None)] = "elements"
    """What has a part: each element of the inputs, or each word of the only input, which is BYTES."""
    mask: Annotated[str, At(None)] = ""
    """What stands for an absent word; empty: nothing."""
    output: Annotated[str, At(None)] = ""
    """The output that is explained; empty for the last output of numbers."""
    budget: Annotated[int, At(None, least=1, most=MAX_BATCH)] = 16384
    """The most rows that the model computes for one request."""
    deadline: Annotated[float, At(None, unit="seconds", above=0)] = 10.0
    seed: Annotated[int, At(None, least=0)] = 0


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One model of an ensemble, and the tensors that connect it with the others."""

    model: Annotated[str, At("model_name", named=True)]
    inputs: Annotated[Mapping[str, str], At("input_map", codec=table.NAMES)]
    """The tensor of the ensemble that each input of the model receives."""
    outputs: Annotated[Mapping[str, str], At("output_map", codec=table.NAMES)]
    """The tensor of the ensemble that each output of the model becomes."""
    version: Annotated[int, At("model_version", least=-1, zero_is_default=True)] = -1
    """The model's version; -1 for its default version."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A graph of models of the same repository."""

    steps: Annotated[tuple[EnsembleStep, ...], At("step")] = ()
    max_inflight_requests: Annotated[int, At(least=0)] = 0
    """Requests that each step computes at a time; 0 for the bounds of its model only."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The comparison of requests and answers with a reference, such as the training data."""

    reference: Annotated[str, At(named=True)]
    """The file with the reference, in the folder of a version or beside the versions: CSV, NPZ, Parquet or JSON."""
    rows: Annotated[int, At(least=100, most=10_000_000)] = 10_000
    """Rows of a window."""
    max_age: Annotated[float, At(unit="seconds", above=0)] = 3600.0
    """The age at which a window with fewer rows ends."""
    bins: Annotated[int, At(least=2, most=50)] = 10
    """Bins of numbers, for the stability index."""
    features: tuple[str, ...] = ()
    """The columns that are compared; the first 100 if there are none."""


ENSEMBLE: Final = "ensemble"
"""The platform, and here the backend, of ensembles."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model. `max_batch_size` 0: its inputs have no batch dimension, and nothing is joined."""

    name: Annotated[str, At(yaml=None)]
    backend: str = ""
    inputs: Annotated[tuple[TensorSpec, ...], At("input")] = ()
    outputs: Annotated[tuple[TensorSpec, ...], At("output")] = ()
    max_batch_size: Annotated[int, At(least=0, most=MAX_BATCH)] = 0
    platform: Annotated[str, At(yaml=None)] = ""
    """Triton's older name of the backend and its format, reported unchanged."""
    default_model_filename: Annotated[str, At(yaml="file")] = ""
    version_policy: Annotated[VersionPolicy, At(yaml="versions", always=True)] = VersionPolicy()
    version_labels: Annotated[Mapping[str, int], At(PARAMETER, yaml="labels")] = field(default_factory=dict)
    """Names of versions, such as stable and canary; these are served under every policy."""
    dynamic_batching: DynamicBatching | None = None
    sequence_batching: SequenceBatching | None = None
    ensemble: Annotated[Ensemble | None, At("ensemble_scheduling")] = None
    instance_groups: Annotated[tuple[InstanceGroup, ...], At("instance_group", yaml="instances")] = (InstanceGroup(),)
    decoupled: Annotated[bool, At("model_transaction_policy.decoupled")] = False
    """A request is answered by any number of responses."""
    batch_inputs: Annotated[tuple[BatchInput, ...], At("batch_input")] = ()
    batch_outputs: Annotated[tuple[BatchOutput, ...], At("batch_output")] = ()
    warmup: Annotated[tuple[Warmup, ...], At("model_warmup")] = ()
    response_cache: Annotated[ResponseCache, At(yaml="cache")] = ResponseCache()
    explain: Annotated[ExplainRules | None, At(None)] = None
    quantize: Annotated[Literal["", "int8", "fp16", "bf16"], At(PARAMETER)] = ""
    """The datatype that weights are converted to at load."""
    execution_timeout: Annotated[float, At(PARAMETER, unit="seconds", least=0)] = 0
    """The longest that one batch may compute before its instance is replaced as hung; 0: the runtime's own bound."""
    memory_bytes: Annotated[int, At(PARAMETER, yaml="memory", unit="bytes", least=0)] = 0
    """The memory of one loaded version; 0: measured when it is loaded."""
    processes: Annotated[int, At(PARAMETER, least=0, most=256)] = 0
    """Of an ensemble: processes of its own, each with a copy of every model of its steps, so that a request passes
    through all steps in one process; 0: each step waits in the queue of its model."""
    card: Annotated[Mapping[str, str], At(PARAMETER)] = field(default_factory=dict)
    """What the owner writes about the model, by name, such as description and license."""
    drift: Annotated[Drift | None, At(PARAMETER)] = None
    parameters: Annotated[Mapping[str, str], At(codec=table.TEXTS)] = field(default_factory=dict)
    """Parameters for the backend."""
    batch: Annotated[Literal["", "written", "assumed"], At(pbtxt=None, yaml=None)] = field(default="", compare=False)
    """Where `max_batch_size` is from. "written": the configuration has it, and a 0 stays. "assumed": it was read from
    shapes, which do not tell whether rows are independent. Empty: it is left out, or the model's file names a batch."""

    explains: Annotated[tuple[TensorSpec, ...], At(pbtxt=None, yaml=None)] = field(default=(), compare=False)
    """Of a copy that explains answers: the outputs of the model itself. Its own are those of `explanations.exact`."""

    counted: Annotated[Mapping[str, str], At(pbtxt=None, yaml=None)] = field(default_factory=dict, compare=False)
    """By output whose rows have different lengths: the output with their lengths. An answer is cut to the longest of
    its own rows."""

    def input(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.inputs if spec.name == name), None)

    def output(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.outputs if spec.name == name), None)


class MissingVersion(Exception):
    """The configuration names a version that does not exist."""


def served_versions(config: ModelConfig, present: Iterable[int]) -> tuple[int, ...]:
    """The served versions of `present`, in order. A version with a label is served under every policy.

    Versions of the policy that are not present are left out, as in Triton: a version may come after the policy.
    Raises `MissingVersion` if none is present, or if a label names one that is not.
    """
    there = sorted(present)
    policy = config.version_policy
    if not there:
        raise MissingVersion(f"{config.name} has no version: put its files into {config.name}/1/")
    for label, number in sorted(config.version_labels.items()):
        if number not in there:
            raise MissingVersion(
                f"the label {label} names version {number}, which is not there: {config.name} has {_listed(there)}"
            )
    specific = [number for number in policy.versions if number in there]
    if policy.kind == "specific" and not specific and not config.version_labels:
        raise MissingVersion(
            f"no version of the version policy ({_listed(list(policy.versions))}) is there: {config.name} has"
            f" {_listed(there)}"
        )
    chosen = {"latest": there[-policy.latest :], "all": there, "specific": specific}[policy.kind]
    return tuple(sorted({*chosen, *config.version_labels.values()}))


def _listed(versions: list[int]) -> str:
    return ", ".join(map(str, versions[-8:]))
