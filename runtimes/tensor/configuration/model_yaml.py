"""`model.yaml`: what ops write of a model, shorter than Triton's `config.pbtxt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from config import sentences
from config.document import Document, parse
from config.place import Place
from config.problem import ConfigError
from config.schema.section import Section
from config.schema.units import Delay, Size
from runtimes.tensor.configuration.model_config import (
    Dims,
    InstanceGroup,
    ModelConfig,
    ResponseCache,
    TensorSpec,
    VersionPolicy,
    Warmup,
    WarmupInput,
)
from runtimes.tensor.configuration.scheduling_yaml import DynamicSection, SequenceSection, Switch


def _counted(value: object) -> object:
    """`2` is two copies, wherever they run."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ({"count": value},)
    return value


def _texts(value: object) -> object:
    """Backends read text; `true` and `4` are plain to write."""
    if not isinstance(value, dict):
        return value
    return {key: _text(item) for key, item in value.items()}


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class TensorSection(Section):
    """An input or an output."""

    name: str = Field(min_length=1)
    """As callers say it."""
    datatype: str
    """As the Open Inference Protocol spells it: ``FP32``, ``INT64``, ``BYTES``."""
    dims: Dims
    """Without the batch; -1 for any length."""
    reshape: Dims | None = None
    """The shape that the model itself has, where it differs."""


class OutputSection(TensorSection):
    """What callers get."""

    labels: str = ""
    """A file beside the versions, with the name of a class on each line."""

    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, self.datatype, self.dims, reshape=self.reshape, label_file=self.labels)


class InputSection(TensorSection):
    """What callers give."""

    optional: bool = False
    """Callers may leave it out."""
    ragged: bool = False
    """Requests of different shapes share a batch, joined end to end."""
    layout: Literal["", "nhwc", "nchw"] = ""
    """Of an image: where its channels are."""

    def spec(self) -> TensorSpec:
        return TensorSpec(
            self.name, self.datatype, self.dims, self.optional, self.reshape, self.ragged, layout=self.layout
        )


class InstanceSection(Section):
    """Copies of the model, and where they run. A number alone is short for ``{count: NUMBER}``."""

    count: int = Field(1, ge=1)
    """How many; per GPU where ``gpus`` are named."""
    kind: Literal["auto", "cpu", "gpu"] = "auto"
    """``auto``: a GPU if there is one and the backend can use it."""
    gpus: tuple[int, ...] = ()
    """Which; all when absent."""
    placement: Literal["auto", "thread", "process"] = "auto"
    """A thread for what computes outside of Python's lock, else a process of its own, which may die alone."""
    cpus: tuple[int, ...] = ()
    """Cores that it is pinned to; all when absent."""
    threads: int = Field(0, ge=0)
    """Threads inside one copy; 0 for an even share of the cores."""


class VersionSection(Section):
    """Which versions are served: ``latest``, ``all``, a list of numbers, or ``{latest: 2}``."""

    latest: int = Field(0, ge=0)
    """How many of the highest."""
    all: bool = False
    """Every one."""
    only: tuple[int, ...] = ()
    """These, and no other."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        if isinstance(data, str):
            if data not in ("latest", "all"):
                raise ValueError("expected latest, all, a list of numbers or {latest: NUMBER}")
            return {"latest": 1} if data == "latest" else {"all": True}
        return {"only": data} if isinstance(data, tuple) else data

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if bool(self.latest) + self.all + bool(self.only) != 1:
            raise ValueError("give one of latest, all and only")
        return self

    def policy(self) -> VersionPolicy:
        if self.all:
            return VersionPolicy("all")
        return VersionPolicy("specific", versions=self.only) if self.only else VersionPolicy("latest", self.latest)


class WarmupInputSection(Section):
    """One input of a warm-up request."""

    name: str = Field(min_length=1)
    """The model's input."""
    datatype: str
    """As the Open Inference Protocol spells it."""
    dims: Dims
    """Without the batch."""
    data: str = "zero"
    """``zero``, ``random``, or ``file:NAME`` of the model's ``warmup`` folder, in binary form."""


class WarmupSection(Section):
    """A request that a new version must answer before it takes traffic."""

    name: str = ""
    """Shown in the log."""
    batch_size: int = Field(0, ge=0)
    """Rows; 0 or 1 for one."""
    count: int = Field(1, ge=1)
    """How often it is asked."""
    inputs: tuple[WarmupInputSection, ...]
    """All that the model needs."""


class CacheSection(Switch):
    """Answers kept for requests that are exactly alike. ``true`` is enough."""

    ttl: Delay = 0.0
    """How long an answer is kept; until its place is needed when absent."""


class ModelSection(Section):
    """The whole file. Everything may be absent that the model's own file tells."""

    backend: str = ""
    """``onnx``, ``torch``, ``openvino``, ``tensorflow``, ``python``, ``sklearn``, ``xgboost`` or ``lightgbm``; found
    by the model's file when absent."""
    file: str = ""
    """The model's file or folder in each version's folder."""
    max_batch_size: int = Field(0, ge=0)
    """Rows in one batch; 0: inputs have no batch dimension, or the model's file tells."""
    inputs: tuple[InputSection, ...] = ()
    """What callers give."""
    outputs: tuple[OutputSection, ...] = ()
    """What they get."""
    versions: VersionSection = VersionSection(latest=1)
    """Which versions are served."""
    labels: dict[str, int] = Field({})
    """Names of versions, such as ``{stable: 3, canary: 4}``; these are served whatever ``versions`` says."""
    dynamic_batching: DynamicSection | None = None
    """Join requests into batches."""
    sequence_batching: SequenceSection | None = None
    """Keep requests of a sequence together."""
    instances: Annotated[tuple[InstanceSection, ...], BeforeValidator(_counted)] = Field(
        (InstanceSection(),), min_length=1
    )
    """Copies of the model."""
    decoupled: bool = False
    """A request is answered by any number of responses."""
    warmup: tuple[WarmupSection, ...] = ()
    """Requests that a new version must answer before it takes traffic."""
    cache: CacheSection | None = None
    """Keep answers."""
    quantize: Literal["", "int8", "fp16", "bf16"] = ""
    """Numbers that weights are turned into at load."""
    execution_timeout: Delay = 0.0
    """How long one batch may compute before its instance counts as hung; the runtime's own bound when absent."""
    memory: Size | None = None
    """What one loaded version takes; measured when absent."""
    parameters: Annotated[dict[str, str], BeforeValidator(_texts)] = Field({})
    """For the backend."""

    def config(self, name: str) -> ModelConfig:
        """In the runtime's words. Files that it names are yet to be read."""
        return ModelConfig(
            name=name,
            backend=self.backend,
            inputs=tuple(section.spec() for section in self.inputs),
            outputs=tuple(section.spec() for section in self.outputs),
            max_batch_size=self.max_batch_size,
            default_model_filename=self.file,
            version_policy=self.versions.policy(),
            version_labels=self.labels,
            dynamic_batching=self.dynamic_batching.batching() if self.dynamic_batching else None,
            sequence_batching=self.sequence_batching.batching() if self.sequence_batching else None,
            instance_groups=tuple(InstanceGroup(**dict(section)) for section in self.instances),
            decoupled=self.decoupled,
            warmup=tuple(_warmup(section, i) for i, section in enumerate(self.warmup)),
            response_cache=ResponseCache(enable=True, ttl=self.cache.ttl) if self.cache else ResponseCache(),
            quantize=self.quantize,
            execution_timeout=self.execution_timeout,
            memory_bytes=self.memory or 0,
            parameters=self.parameters,
        )


def _warmup(section: WarmupSection, index: int) -> Warmup:
    inputs = tuple(WarmupInput(spec.name, spec.datatype, spec.dims, spec.data) for spec in section.inputs)
    return Warmup(section.name or f"warmup {index}", section.batch_size, section.count, inputs)


_WRITTEN = {
    "default_model_filename": "file",
    "version_policy": "versions",
    "version_labels": "labels",
    "instance_groups": "instances",
    "response_cache": "cache",
    "memory_bytes": "memory",
    "allow_ragged_batch": "ragged",
    "default_queue_policy": "queue",
    "priority_queue_policy": "priority_queues",
    "label_file": "labels",
}


def written_place(place: Place) -> Place:
    """A place of `ModelConfig`, as the file calls it."""
    return tuple(_WRITTEN.get(step, step) if isinstance(step, str) else step for step in place)


def read(path: Path, name: str) -> tuple[ModelConfig, Document]:
    """The configuration in a file, and where its parts stand. Raises ConfigError with every problem found."""
    doc = parse(path, example="backend: onnx")
    try:
        section = ModelSection.model_validate(doc.data, strict=True)
    except ValidationError as error:
        raise ConfigError([*doc.problems, *sentences.problems(doc, error, skip=(), root=ModelSection)]) from None
    if doc.problems:
        raise ConfigError(doc.problems)
    return section.config(name), doc
