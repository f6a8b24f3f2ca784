"""The inputs and outputs in a model's file, compared with its configuration, or declared by that alone."""

from __future__ import annotations

import dataclasses
import difflib
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from runtimes.tensor.configuration.model_config import Dims, DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.interfaces import ModelLoadError

TORCH_FILENAMES = ("model.pt", "model.pt2", "model.safetensors", "model.pth")


def is_declared(backend: str, config: ModelConfig, folder: Path) -> bool:
    """Whether the model's file describes no tensors. `backend` is our name."""
    return backend == "python" or (backend == "torch" and not _is_exported(config, folder))


def declared(backend: str, config: ModelConfig) -> ModelConfig:
    """The configuration, which is complete. Raises `ModelLoadError`."""
    if not config.inputs or not config.outputs:
        raise ModelLoadError(
            "the model's file does not describe its inputs and outputs: write them in the configuration"
        )
    if backend == "torch" and any(spec.datatype == "BYTES" for spec in (*config.inputs, *config.outputs)):
        raise ModelLoadError("PyTorch has no BYTES tensors: use the python backend")
    return config


def _is_exported(config: ModelConfig, folder: Path) -> bool:
    """Among PyTorch's files, only those of torch.export describe their tensors."""
    names = (config.default_model_filename,) if config.default_model_filename else TORCH_FILENAMES
    file = next((name for name in names if (folder / name).exists()), "")
    return file.endswith(".pt2") and not is_compiled(folder / file)


def is_compiled(path: Path) -> bool:
    """Whether a `.pt2` file is a package of AOTInductor, which has native code in place of a program.

    Blocks for the disk.
    """
    return has_native_code(path) and not any(place.startswith("models/") for place in _places(path))


def has_native_code(path: Path) -> bool:
    """Whether a `.pt2` file has native code, alone or beside a program. Blocks for the disk."""
    return any(place.startswith("data/aotinductor/") for place in _places(path))


def _places(path: Path) -> list[str]:
    """The names in an archive of PyTorch, without its own folder; none of a file that is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.partition("/")[2] for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError):
        return []


MAX_BATCH_SIZE: Final = 8
"""The largest batch of a model whose file allows any, unless its configuration has one."""
_BATCH: Final = re.compile(r"(.*_)?batch(_?size|_?dim)?", re.IGNORECASE)
"""Names of a first dimension by which a model's author declares it as the batch."""


class ModelTensor(NamedTuple):
    """A tensor of a model's file: `shape` with the batch dimension; None if the file has no shape."""

    name: str
    datatype: str | None
    shape: Dims | None
    optional: bool = False
    first: str = ""
    """The name of the first dimension, if the file has one."""
    most: int | None = None
    """The largest length of the first dimension, if the file has one."""


def completed(config: ModelConfig, inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> ModelConfig:
    """Complete a configuration from the model's file. Raises `ModelLoadError` if the two contradict each other.

    A configuration without inputs, outputs and batch size gets a batch dimension if every tensor begins with a
    variable one. It is "assumed" unless the file names it, or the configuration has `dynamic_batching`.
    """
    tensors = (*inputs, *outputs)
    unsaid = not config.inputs and not config.outputs and config.batch != "written" and not config.max_batch_size
    if unsaid and tensors and all(one.shape and one.shape[0] == -1 for one in tensors):
        bounds = [one.most for one in tensors if one.most is not None]
        is_declared = config.dynamic_batching is not None or config.sequence_batching is not None
        is_declared = is_declared or all(_BATCH.fullmatch(one.first) for one in tensors)
        config = dataclasses.replace(
            config,
            max_batch_size=min(MAX_BATCH_SIZE, *bounds, MAX_BATCH_SIZE),
            batch="" if is_declared else "assumed",
        )
        if config.dynamic_batching is None and config.sequence_batching is None:
            config = dataclasses.replace(config, dynamic_batching=DynamicBatching())
    for one in tensors:
        if one.most is not None and config.max_batch_size > one.most:
            raise ModelLoadError(
                f"`max_batch_size` is {config.max_batch_size}, and `{one.name}` in the model has {one.most} at most"
            )
    made = _made_by_runtime(config)
    specs = _merged("input", config.inputs, [one for one in inputs if one.name not in made[0]], config)
    for name in made[0]:
        _named("input", name, inputs)
    given = {spec.name for spec in specs}
    for one in inputs:
        if one.name not in given and one.name not in made[0] and not one.optional:
            raise ModelLoadError(f"the model has an input `{one.name}`, which the configuration leaves out")
    made_outputs = _merged("output", config.outputs, [one for one in outputs if one.name not in made[1]], config)
    for name in made[1]:
        _named("output", name, outputs)
    return dataclasses.replace(config, inputs=specs, outputs=made_outputs)


def _made_by_runtime(config: ModelConfig) -> tuple[set[str], set[str]]:
    """Inputs and outputs of a sequence that the runtime makes and reads, and callers do not."""
    if (sequence := config.sequence_batching) is None:
        return {name for made in config.batch_inputs for name in made.target_name}, set()
    controls = {control.name for control in sequence.controls}
    states = {state.input_name for state in sequence.states}
    callers = {spec.name for spec in (*config.inputs, *config.outputs)}
    return (controls | states) - callers, {state.output_name for state in sequence.states} - callers


def _merged(
    kind: str, specs: Sequence[TensorSpec], tensors: Sequence[ModelTensor], config: ModelConfig
) -> tuple[TensorSpec, ...]:
    batched = config.max_batch_size > 0
    if not specs:
        return tuple(_spec(kind, one, batched) for one in tensors)
    scattered = {name for cut in config.batch_outputs for name in cut.target_name}
    for spec in specs:
        flat = spec.allow_ragged_batch or (kind == "output" and spec.name in scattered)
        _agree(kind, spec, _named(kind, spec.name, tensors), batched, flat=flat)
    return tuple(specs)


def _spec(kind: str, one: ModelTensor, batched: bool) -> TensorSpec:
    if one.datatype is None or one.shape is None:
        raise ModelLoadError(
            f"the model's file has no shape for its {kind} `{one.name}`: write it in the configuration"
        )
    if batched and (not one.shape or one.shape[0] != -1):
        raise ModelLoadError(
            f"`max_batch_size` is set, and {kind} `{one.name}`, which is {list(one.shape)} in the model, does not begin"
            " with a variable dimension"
        )
    return TensorSpec(one.name, one.datatype, one.shape[batched:], optional=one.optional)


def _named(kind: str, name: str, tensors: Sequence[ModelTensor]) -> ModelTensor:
    for one in tensors:
        if one.name == name:
            return one
    names = [one.name for one in tensors]
    close = [other for other in names if other.lower() == name.lower()] or difflib.get_close_matches(name, names, 1)
    hint = f"did you mean `{close[0]}`?" if close else f"it has {', '.join(names)}"
    raise ModelLoadError(f"the model has no {kind} `{name}`: {hint}")


def _agree(kind: str, spec: TensorSpec, one: ModelTensor, batched: bool, *, flat: bool) -> None:
    """Whether shapes agree. `flat`: the model has the tensors of all requests end to end, in one dimension."""
    if one.datatype is not None and spec.datatype != one.datatype:
        raise ModelLoadError(
            f"{kind} `{spec.name}` is {one.datatype} in the model and {spec.datatype} in its configuration"
        )
    if one.shape is None:
        return
    dims = spec.dims if spec.reshape is None else spec.reshape
    declared = (-1, *dims) if batched else tuple(dims)
    fits = len(declared) == len(one.shape)
    fits = fits and all(-1 in pair or pair[0] == pair[1] for pair in zip(declared, one.shape, strict=True))
    if batched and one.shape and one.shape[0] not in (-1,):
        fits = False
    if not fits and not flat:
        with_batch = ", with the batch dimension that `max_batch_size` adds" if batched else ""
        raise ModelLoadError(
            f"{kind} `{spec.name}` is {list(one.shape)} in the model and {list(declared)} in its configuration"
            f"{with_batch}"
        )
