"""Constraints on a model's configuration, for both kinds of file.

Places are those of `ModelConfig`'s own fields; a reader converts them to the names of its file. Bounds of single fields
are in the table of `model_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import PurePosixPath
from typing import Any, Final

from adapters.tensors import DATATYPES
from config.place import Place
from config.problem import closest
from runtimes.tensor.configuration import table
from runtimes.tensor.configuration.complaint import Complaint
from runtimes.tensor.configuration.ensemble_checks import check_ensemble
from runtimes.tensor.configuration.model_config import (
    MAX_BATCH,
    BatchInput,
    BatchOutput,
    Dims,
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    SequenceBatching,
    TensorSpec,
    Warmup,
)
from runtimes.tensor.configuration.table import At, rows


def check_batch_parts(config: ModelConfig) -> Iterator[Complaint]:
    """Every constraint that `batch_input` and `batch_output` violate."""
    for i, spec in enumerate(config.batch_inputs):
        yield from _source(config, spec, "batch_inputs", i)
    for i, output in enumerate(config.batch_outputs):
        yield from _source(config, output, "batch_outputs", i)
    for i, made in enumerate(config.batch_inputs):
        if made.datatype not in ("INT32", "FP32"):
            yield Complaint(("batch_inputs", i, "datatype"), "must be INT32 or FP32")
        for name in made.target_name:
            if config.input(name) is not None:
                yield Complaint(("batch_inputs", i, "target_name"), f"{name} is an input of clients too: rename one")
    names = [spec.name for spec in config.outputs]
    for i, cut in enumerate(config.batch_outputs):
        for name in cut.target_name:
            if names and name not in names:
                yield Complaint(
                    ("batch_outputs", i, "target_name"), "is not an output of the model", closest(name, names)
                )
    yield from _alone(config)


def _source(config: ModelConfig, spec: BatchInput | BatchOutput, kind: str, i: int) -> Iterator[Complaint]:
    names = [one.name for one in config.inputs]
    if len(spec.source_input) != 1:
        yield Complaint((kind, i, "source_input"), f"expected 1 input, and there are {len(spec.source_input)}")
    elif names and spec.source_input[0] not in names:
        suggestion = closest(spec.source_input[0], names)
        yield Complaint((kind, i, "source_input"), "is not an input of the model", suggestion)
    if not spec.target_name:
        yield Complaint((kind, i, "target_name"), "is required")


def _alone(config: ModelConfig) -> Iterator[Complaint]:
    """Parts that a described batch excludes."""
    if not config.batch_inputs and not config.batch_outputs:
        return
    place = ("batch_inputs" if config.batch_inputs else "batch_outputs",)
    if config.sequence_batching is not None or config.decoupled:
        yield Complaint(place, "describes a batch, which sequences and decoupled models do not have")
    if config.dynamic_batching is not None and config.dynamic_batching.allowed_batch_sizes:
        yield Complaint(place, "describes a batch, which allowed_batch_sizes pads: leave one of them out")


_FLAGS: Final = {"INT32", "FP32", "BOOL"}
_CONTROL_TYPES: Final = {
    "start": _FLAGS,
    "ready": _FLAGS,
    "end": _FLAGS,
    "corrid": {"UINT64", "INT64", "UINT32", "INT32", "BYTES"},
}


def check(config: ModelConfig) -> Iterator[Complaint]:
    """Every constraint that the configuration violates."""
    yield from _fields(config, ())
    yield from _tensors("inputs", config.inputs)
    yield from _tensors("outputs", config.outputs)
    yield from _versions(config)
    yield from _file(config.default_model_filename, ("default_model_filename",))
    if config.dynamic_batching is not None:
        yield from _dynamic(config, config.dynamic_batching)
    if config.sequence_batching is not None:
        yield from _sequences(config, config.sequence_batching)
    for i, group in enumerate(config.instance_groups):
        yield from _instances(group, ("instance_groups", i))
    for i, warmup in enumerate(config.warmup):
        yield from _warmup(config, warmup, ("warmup", i))
    yield from _card(config.card)
    if config.drift is not None:
        yield from _file(config.drift.reference, ("drift", "reference"))
        if config.decoupled:
            yield Complaint(("drift",), "compares one answer with each request: leave it out for a decoupled model")
    yield from _together(config)
    yield from _explain(config)
    yield from check_batch_parts(config)
    yield from check_ensemble(config)


def _fields(owner: Any, place: Place) -> Iterator[Complaint]:
    """The bounds of the table, in a part and all inside it."""
    for row in rows(type(owner)):
        value, here = getattr(owner, row.name), (*place, row.name)
        if row.nested is None:
            if value is not None:
                yield from _field(row.at, value, here)
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                yield from _fields(item, (*here, i))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from _fields(item, (*here, str(key)))
        elif value is not None:
            yield from _fields(value, here)


def _field(at: At, value: Any, place: Place) -> Iterator[Complaint]:
    if at.named and not value:
        yield Complaint(place, "is required")
    if at.codec is table.DATATYPE and value not in DATATYPES:
        yield Complaint(place, f"expected a datatype: {', '.join(sorted(DATATYPES))}", closest(value, DATATYPES))
    if at.lengths and any(dim != -1 and dim < 1 for dim in value):
        yield Complaint(place, "each must be a length from 1 up, or -1 for any")
    numbers = value if isinstance(value, tuple) else (value,)
    if at.above is not None and not all(number > at.above for number in numbers):
        yield Complaint(place, f"must be more than {at.above:g}")
    if at.least is not None:
        most = float("inf") if at.most is None else at.most
        if not all(at.least <= number <= most for number in numbers):
            bounds = f"at least {at.least:g}" if at.most is None else f"between {at.least:.7g} and {at.most:.7g}"
            yield Complaint(place, f"must be {bounds}")


def _tensors(kind: str, specs: Sequence[TensorSpec]) -> Iterator[Complaint]:
    yield from _repeated((spec.name for spec in specs), lambda i: (kind, i, "name"))
    for i, spec in enumerate(specs):
        if spec.reshape is not None:
            yield from _reshape(spec.dims, spec.reshape, (kind, i, "reshape"))
        if spec.layout and len(spec.dims) != 3:
            yield Complaint((kind, i, "layout"), "is an image's: dims are three, without the batch")


def _reshape(dims: Dims, reshape: Dims, place: Place) -> Iterator[Complaint]:
    if dims.count(-1) != reshape.count(-1):
        yield Complaint(place, "must have as many dimensions of any length as dims has")
    elif -1 not in dims and prod(dims) != prod(reshape):
        yield Complaint(place, f"holds {prod(reshape)} elements where dims hold {prod(dims)}")


def _largest_batch(config: ModelConfig) -> int:
    """The bound of batch sizes. Without `max_batch_size` it may still be read from the model."""
    return config.max_batch_size if config.max_batch_size > 0 else MAX_BATCH


def _versions(config: ModelConfig) -> Iterator[Complaint]:
    policy = config.version_policy
    if policy.kind == "latest" and policy.latest < 1:
        yield Complaint(("version_policy",), "serves no version: latest is at least 1")
    if policy.kind == "specific" and (not policy.versions or min(policy.versions) < 1):
        yield Complaint(("version_policy",), "expected the numbers of versions, from 1")
    for label, version in config.version_labels.items():
        if not label or label.isdigit() or not label.replace("-", "").replace("_", "").replace(".", "").isalnum():
            yield Complaint(("version_labels",), "a label is a word such as stable, and not a number")
        if version < 1:
            yield Complaint(("version_labels", label), "expected the number of a version, from 1")


def _file(name: str, place: Place) -> Iterator[Complaint]:
    path = PurePosixPath(name)
    if name and (path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable()):
        yield Complaint(place, "expected the name of a file in the version's folder")


def _dynamic(config: ModelConfig, batching: DynamicBatching) -> Iterator[Complaint]:
    here = "dynamic_batching"
    most = _largest_batch(config)
    for name in ("preferred_batch_size", "allowed_batch_sizes"):
        if any(not 1 <= size <= most for size in getattr(batching, name)):
            yield Complaint((here, name), f"must be between 1 and {most}, the largest batch")
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        yield Complaint((here, "default_priority_level"), f"must be between 1 and priority_levels, {levels}")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            message = f"{level} is not a level between 1 and priority_levels, {levels}"
            yield Complaint((here, "priority_queue_policy"), message)
    for name, lengths in batching.pad_to.items():
        if config.inputs and config.input(name) is None:
            yield _unknown((here, "pad_to", name), name, config.inputs)
        if not lengths or min(lengths) < 1:
            yield Complaint((here, "pad_to", name), "expected lengths, from 1")
        if (spec := config.input(name)) is not None and spec.allow_ragged_batch:
            message = f"the input `{name}` is ragged, and ragged inputs are joined without padding: leave it out here"
            yield Complaint((here, "pad_to", name), message)


def _sequences(config: ModelConfig, batching: SequenceBatching) -> Iterator[Complaint]:
    here = "sequence_batching"
    yield from _repeated((control.kind for control in batching.controls), lambda i: (here, "controls", i, "kind"))
    for i, control in enumerate(batching.controls):
        expected = _CONTROL_TYPES[control.kind]
        if control.datatype not in expected:
            message = f"of a {control.kind} control must be {' or '.join(sorted(expected))}"
            yield Complaint((here, "controls", i, "datatype"), message)
        if config.input(control.name) is not None:
            yield Complaint((here, "controls", i, "name"), "is an input of clients too: leave it out there")
    states = batching.states
    yield from _repeated((state.input_name for state in states), lambda i: (here, "states", i, "input_name"))
    yield from _repeated((state.output_name for state in states), lambda i: (here, "states", i, "output_name"))


def _instances(group: InstanceGroup, place: Place) -> Iterator[Complaint]:
    if group.gpus and group.kind == "cpu":
        yield Complaint((*place, "gpus"), "are not for kind: cpu")


def _warmup(config: ModelConfig, warmup: Warmup, place: Place) -> Iterator[Complaint]:
    most = _largest_batch(config)
    if warmup.batch_size > most:
        yield Complaint((*place, "batch_size"), f"must be at most {most}, the largest batch")
    yield from _repeated((spec.name for spec in warmup.inputs), lambda i: (*place, "inputs", i, "name"))
    made: set[str] = set()
    if (batching := config.sequence_batching) is not None:
        made = {control.name for control in batching.controls} | {state.input_name for state in batching.states}
    for i, spec in enumerate(warmup.inputs):
        here = (*place, "inputs", i)
        if config.inputs and config.input(spec.name) is None and spec.name not in made:
            yield _unknown((*here, "name"), spec.name, config.inputs)
        if any(dim < 1 for dim in spec.dims):
            yield Complaint((*here, "dims"), "each must be a length, from 1: a warm-up has one shape")
        if spec.data.startswith("file:"):
            yield from _file(spec.data.removeprefix("file:"), (*here, "data"))
        elif spec.data not in ("zero", "random"):
            yield Complaint(
                (*here, "data"), "expected zero, random or file:NAME", closest(spec.data, ["zero", "random"])
            )


_MEASURED: Final = ("version", "source", "framework", "framework_version", "checksum", "statistics")
_MAX_CARD: Final = 32
_MAX_CARD_TEXT: Final = 4096


def _card(card: Mapping[str, str]) -> Iterator[Complaint]:
    if len(card) > _MAX_CARD:
        yield Complaint(("card",), f"has {len(card)} entries, and {_MAX_CARD} is the most")
    for name, text in card.items():
        if name in _MEASURED or name.startswith("mlflow."):
            yield Complaint(("card", name), "is filled in by the runtime: choose another name")
        if len(text) > _MAX_CARD_TEXT or not 0 < len(name) <= 64:
            yield Complaint(("card", name), f"expected a name of 64 characters and a text of {_MAX_CARD_TEXT}, at most")


def _together(config: ModelConfig) -> Iterator[Complaint]:
    """Parts that exclude each other."""
    if config.dynamic_batching is not None and config.sequence_batching is not None:
        yield Complaint(("sequence_batching",), "and dynamic_batching exclude each other: keep one")
    if config.response_cache.enable and config.decoupled:
        yield Complaint(
            ("response_cache",), "stores one response, and a decoupled model has many: leave one of them out"
        )
    if config.response_cache.enable and config.sequence_batching is not None:
        yield Complaint(
            ("response_cache",), "cannot serve a sequence, whose responses depend on the requests before them"
        )


def _explain(config: ModelConfig) -> Iterator[Complaint]:
    """Constraints on `explain`."""
    if (rules := config.explain) is None:
        return
    if config.decoupled or config.sequence_batching is not None:
        yield Complaint(("explain",), "is for models that answer each request once, and without those before it")
    if rules.background and rules.baseline is not None:
        yield Complaint(("explain", "baseline"), "is in place of `background`: write one of them")
    if rules.mask and rules.features != "words":
        yield Complaint(("explain", "mask"), "stands for an absent word: write `features: words` too")
    for name, plain in (("background", ""), ("baseline", None), ("patch", ()), ("features", "elements")):
        value = getattr(rules, name)
        if rules.features == "words" and name != "features" and value != plain:
            yield Complaint(("explain", name), "is for elements, and `features: words` has none")
        if rules.method in ("tree", "gradients") and name != "background" and value != plain:
            yield Complaint(("explain", name), f"is for mixtures of rows, and `method: {rules.method}` has none")
    names = [spec.name for spec in config.outputs]
    if rules.output and names and rules.output not in names:
        yield Complaint(("explain", "output"), "is not an output of the model", closest(rules.output, names))


def _unknown(place: Place, name: str, specs: Sequence[TensorSpec]) -> Complaint:
    return Complaint(place, "is not an input of the model", closest(name, [spec.name for spec in specs]))


def _repeated(names: Iterable[str], place: Callable[[int], Place]) -> Iterator[Complaint]:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            yield Complaint(place(i), f"{name} is given twice: keep one")
        seen.add(name)
