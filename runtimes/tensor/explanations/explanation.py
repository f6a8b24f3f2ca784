"""An explanation, checked and as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inference, Parameter, Tensor, join_bytes, requested_outputs
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.interfaces import Array

VALUES, BASE, OUTPUT, ERROR, TARGET = "values", "base", "output", "error", "target"
WORDS, START, END = "words", "start", "end"
STEPS: Final = 50
"""Points of the line along which gradients are integrated: as many as Captum has by default."""
TOLERANCE: Final = 1e-3
"""The largest error of an exact explanation, relative to its output: trees add numbers of 32 bits."""
MAX_TARGETS: Final = 16
"""Numbers of an output that are all explained. Of more, only the largest number of each row is."""
MAX_VALUES: Final = 4 << 20
"""Values of an answer: 32 MiB."""
Floats = npt.NDArray[np.float64]


class Word(NamedTuple):
    """A word of a text, and the characters that it begins at and ends before."""

    text: str
    start: int
    end: int


@dataclass(slots=True)
class Attributions:
    """`values`: [rows, targets, features]; `base` and `output`: [rows, targets].

    A target is one number of the output that is explained, such as the probability of a class.
    """

    values: Floats
    base: Floats
    output: Floats
    method: str
    explained: str
    """The output that is explained; `raw` for the sum of trees before a last transformation."""
    is_number: bool
    """Whether the output has one number a row, so that the answer has no dimension of targets."""
    seed: int = 0
    model_rows: int = 0
    """The rows that the model computed for it."""
    device_seconds: float = 0.0
    targets: npt.NDArray[np.int64] | None = None
    """The number of the output that is explained, by row, if only one is."""

    words: Sequence[Sequence[Word]] | None = None
    """The features of each row, if they are words: `values` are 0 after the last one."""

    @property
    def error(self) -> Floats:
        """The largest difference of base and values from the output, by row."""
        gaps: Floats = np.abs(self.base + self.values.sum(axis=2) - self.output)
        largest: Floats = gaps.max(axis=1)
        return largest

    def check(self) -> None:
        """Raises `BackendError` unless the values of each row and its base add up to its output. See `check_finite`."""
        self.check_finite()
        scale = 1 + np.abs(self.output).max(axis=1)
        if not bool((self.error <= TOLERANCE * scale).all()):
            raise BackendError(
                f"The explanation does not add up to the model's output: the difference is {self.error.max():.3g}.",
                code="model_failed",
            )

    def check_finite(self) -> None:
        """Raises `CallerError` for a row without a finite output, which has no parts; `BackendError` for a base."""
        check_base(self.base, self.explained)
        check_rows(self.output, self.explained, "row")
        check_rows(self.values, self.explained, "mixtures of row")


class Explainer(Protocol):
    """Explains the answers of one version of a model."""

    method: str
    memory_bytes: int
    """The memory of its own copies."""

    async def explain(self, inference: Inference, deadline: float) -> Attributions:
        """Explain the answer to a request. `deadline` is loop time. Raises `InferenceError`."""
        ...

    async def targets(self, deadline: float) -> int | None:
        """The numbers of the output from which a client may select one.

        0 if it cannot; None if only an answer can tell. `deadline` is loop time. Raises `InferenceError`.
        """
        ...

    async def aclose(self) -> None:
        """End its own copies. Idempotent."""
        ...


def check_rows(array: Floats, explained: str, where: str) -> None:
    """Raises `CallerError` for the first row of [rows, …] with a number that is not finite."""
    finite = np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    if not finite.all():
        raise CallerError(
            f"The output `{explained}` is not finite for {where} {finite.argmin()}, so it has no explanation: send"
            " inputs that the model has finite numbers for."
        )


def check_base(base: Floats, explained: str) -> None:
    """Raises `BackendError` for a base that is not finite: no request can change it."""
    if not np.isfinite(base).all():
        raise BackendError(f"The output `{explained}` is not finite without the row's features.", code="model_failed")


def check_size(rows: int, targets: int, features: int) -> None:
    """Raises `CallerError` for more values than an answer may have."""
    if (values := rows * targets * features) > MAX_VALUES:
        raise CallerError(
            f"The explanation of {rows} rows has {values} values, one for each feature and each number of the"
            f" output, and the most are {MAX_VALUES}: send fewer rows."
        )


def target_of(inference: Inference) -> int | None:
    """The number of the output that the client selects. Raises `CallerError`."""
    target = inference.parameters.get("target")
    if target is not None and (not isinstance(target, int) or isinstance(target, bool)):
        raise CallerError("`target` is a number of the output, from 0.", param="target")
    return target


def parameters_of(explanation: Attributions) -> dict[str, Parameter]:
    """What the answer says about itself."""
    return {
        "method": explanation.method,
        "explained": explanation.explained,
        "seed": explanation.seed,
        "model_rows": explanation.model_rows,
        "max_error": float(explanation.error.max()),
    }


def check_selection(inference: Inference, config: ModelConfig, target: int | None, targets: int | None) -> None:
    """Raises `CallerError` for a target or an output that the explanation will not have, so that it is not computed.

    `targets` is that of `Explainer.targets`.
    """
    if target is not None and targets is not None:
        check_target(target, targets)
    names = [*_names_of_values(config), BASE, OUTPUT, ERROR]
    if config.explain is not None and config.explain.features == "words":
        names += [WORDS, START, END]
    if target is not None or not targets or targets > MAX_TARGETS:
        names.append(TARGET)
    requested_outputs(inference, [Tensor(name, "FP64", (), b"") for name in names])


def tensors_of(explanation: Attributions, config: ModelConfig, target: int | None) -> list[Tensor]:
    """The tensors of an answer: the values of each input in its shape, then base, output and error.

    `target` is the number of the output that the client selects. Raises `CallerError` if there is none.
    """
    values, base, output = explanation.values, explanation.base, explanation.output
    chosen = _chosen(explanation, target)
    tensors: list[Tensor] = []
    if chosen is not None:
        picked = np.arange(len(values)), chosen
        values, base, output = values[picked][:, None], base[picked][:, None], output[picked][:, None]
    is_single = chosen is not None or explanation.targets is not None or explanation.is_number
    inputs = [spec for spec in config.inputs if not spec.optional]
    at = 0
    for spec, name in zip(inputs, _names_of_values(config), strict=True):
        dims = spec.dims if explanation.words is None else values.shape[2:]
        width = prod(dims)
        part = values[:, :, at : at + width].reshape(*values.shape[:2], *dims)
        at += width
        tensors.append(_tensor(name, part[:, 0] if is_single else part))
    if explanation.words is not None:
        tensors += _of_words(explanation.words, values.shape[2])
    for name, array in ((BASE, base), (OUTPUT, output)):
        tensors.append(_tensor(name, array[:, 0] if is_single else array))
    tensors.append(_tensor(ERROR, explanation.error))
    if chosen is not None and not explanation.is_number:
        tensors.append(Tensor(TARGET, "INT64", chosen.shape, chosen.astype("<i8").tobytes()))
    if explanation.targets is not None:
        tensors.append(Tensor(TARGET, "INT64", explanation.targets.shape, explanation.targets.astype("<i8").tobytes()))
    return tensors


def _of_words(rows: Sequence[Sequence[Word]], width: int) -> list[Tensor]:
    """The words of each row and their places; empty words at the end of a text fill its row."""
    ends = [row[-1].end if row else 0 for row in rows]
    padded = [[*row, *[Word("", end, end)] * (width - len(row))] for row, end in zip(rows, ends, strict=True)]
    shape = (len(rows), width)
    texts = join_bytes([word.text.encode() for row in padded for word in row])
    places = np.array([word[1:] for row in padded for word in row], "<i8").reshape(-1, 2)
    start, end = (np.ascontiguousarray(places[:, at]).tobytes() for at in (0, 1))
    return [
        Tensor(WORDS, "BYTES", shape, texts),
        Tensor(START, "INT64", shape, start),
        Tensor(END, "INT64", shape, end),
    ]


def _names_of_values(config: ModelConfig) -> list[str]:
    """The tensors of values, in the order of the inputs."""
    inputs = [spec for spec in config.inputs if not spec.optional]
    return [VALUES] if len(inputs) == 1 else [f"{VALUES}.{spec.name}" for spec in inputs]


def check_target(target: int, targets: int) -> None:
    """Raises `CallerError` unless a client may select this number of the output."""
    if not targets:
        raise CallerError("Gradients explain the largest number of the output: leave out `target`.", param="target")
    if not 0 <= target < targets:
        raise CallerError(f"`target` is a number of the output, from 0 to {targets - 1}.", param="target")


def _chosen(explanation: Attributions, target: int | None) -> npt.NDArray[np.int64] | None:
    """The target of each row; None for all, or if its values are the only ones."""
    rows, count = explanation.output.shape
    if explanation.targets is not None:
        return None
    if target is not None:
        check_target(target, count)
        return np.full(rows, target, np.int64)
    return explanation.output.argmax(axis=1) if count > MAX_TARGETS else None


def _tensor(name: str, array: Floats) -> Tensor:
    return Tensor(name, "FP64", array.shape, np.ascontiguousarray(array, "<f8").tobytes())


def width_of(config: ModelConfig) -> int:
    """The features of a row: the elements of all inputs that are not optional."""
    return sum(prod(spec.dims) for spec in config.inputs if not spec.optional)


def zeros_of(config: ModelConfig) -> dict[str, Array]:
    """A row of zeros by input; a text is "0"."""
    return {
        spec.name: np.full((1, *spec.dims), b"0" if spec.datatype == "BYTES" else 0, DTYPES[spec.datatype])
        for spec in config.inputs
    }


def explained_output(config: ModelConfig) -> TensorSpec | None:
    """The output that is explained: the one that is written, or the last one of numbers with a point."""
    assert config.explain is not None
    if config.explain.output:
        return config.output(config.explain.output)
    floats = [spec for spec in config.outputs if spec.datatype in ("FP16", "FP32", "FP64")]
    return floats[-1] if floats else None


def numbers(tensor: Tensor) -> Floats:
    """A tensor of numbers as [rows, numbers of a row]."""
    kinds: dict[str, Any] = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
    array = np.frombuffer(tensor.data, kinds[tensor.datatype]).astype(np.float64)
    return array.reshape(tensor.shape[0], -1)
