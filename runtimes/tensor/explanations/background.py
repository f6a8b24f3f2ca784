"""Background rows: what the features of a model are usually like, from a file in its folder.

NAME.npy    [rows, features], the elements of all inputs in their order; or [rows, …] of the only input
NAME.npz    an array for each input
NAME.csv    a column for each feature, with a first line of names or without one, if that is beyond doubt
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.explanations.explanation import width_of
from runtimes.tensor.interfaces import Array, ModelLoadError

MAX_ROWS: Final = 1000
"""Rows of a background: each coalition of features is computed for each of them."""


def read(path: Path, config: ModelConfig) -> dict[str, Array]:
    """The rows by input, in its datatype. Raises `ModelLoadError`. Blocks for the disk."""
    inputs = _inputs(config)
    try:
        rows = _read(path, inputs)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise ModelLoadError(f"the background {path.name} cannot be read: {error}") from None
    counts = {len(array) for array in rows.values()}
    if len(counts) != 1 or not 1 <= min(counts) <= MAX_ROWS:
        raise ModelLoadError(
            f"the background {path.name} must have 1 to {MAX_ROWS} rows, and has {', '.join(map(str, sorted(counts)))}"
        )
    return rows


def uniform(config: ModelConfig, number: float) -> dict[str, Array]:
    """One row whose elements are all this number. Raises `ModelLoadError`."""
    rows = {}
    for spec in _inputs(config):
        if spec.datatype == "BYTES":
            raise ModelLoadError(f"the input `{spec.name}` is BYTES, for which no number can stand: write `background`")
        rows[spec.name] = np.full((1, *spec.dims), number).astype(DTYPES[spec.datatype])
    return rows


def _inputs(config: ModelConfig) -> list[TensorSpec]:
    inputs = [spec for spec in config.inputs if not spec.optional]
    for spec in inputs:
        if -1 in spec.dims or spec.datatype == "BF16":
            obstacle = "dimensions of any length" if -1 in spec.dims else "the datatype BF16"
            raise ModelLoadError(f"the input `{spec.name}` has {obstacle}, so its features have no background")
    if width_of(config) < 1:
        raise ModelLoadError("the model has no input whose features can be explained")
    return inputs


def _read(path: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {spec.name: _shaped(np.asarray(arrays[spec.name]), spec, path) for spec in inputs}
    if path.suffix == ".npy":
        whole = np.load(path, allow_pickle=False)
        if len(inputs) == 1 and whole.shape[1:] == inputs[0].dims:
            return {inputs[0].name: _shaped(whole, inputs[0], path)}
    elif path.suffix == ".csv":
        whole = _table(path, inputs)
    else:
        raise ModelLoadError(f"the background {path.name} is no file of .npy, .npz or .csv")
    width = sum(prod(spec.dims) for spec in inputs)
    if whole.ndim != 2 or whole.shape[1] != width:
        columns = whole.shape[1] if whole.ndim == 2 else f"the shape {list(whole.shape)}"
        raise ModelLoadError(f"the background {path.name} has {columns} columns, and the model has {width} features")
    ends = np.cumsum([prod(spec.dims) for spec in inputs])[:-1]
    parts = np.split(whole, ends, axis=1)
    return {spec.name: _shaped(part, spec, path) for spec, part in zip(inputs, parts, strict=True)}


def _shaped(array: Array, spec: TensorSpec, path: Path) -> Array:
    if prod(array.shape[1:]) != prod(spec.dims):
        raise ModelLoadError(
            f"the background {path.name} has rows of {list(array.shape[1:])} for the input `{spec.name}`, which takes"
            f" {list(spec.dims)}"
        )
    if spec.datatype == "BYTES":
        texts = np.empty(array.size, object)
        texts[:] = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
        return texts.reshape(len(array), *spec.dims)
    if array.dtype.kind not in "biuf":
        array = array.astype(np.float64)
    return array.astype(DTYPES[spec.datatype]).reshape(len(array), *spec.dims)


def _table(path: Path, inputs: Sequence[TensorSpec]) -> Array:
    """The cells of a file, as texts, in the order of the inputs if the first line has their names."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        raise ModelLoadError(f"the background {path.name} is empty")
    widths = {len(line) for line in lines}
    if len(widths) > 1:
        raise ModelLoadError(f"the background {path.name} has lines of different lengths")
    first, names = [cell.strip() for cell in lines[0]], [spec.name for spec in inputs]
    if set(first) == set(names) and len(first) == len(names):
        order = [first.index(name) for name in names]
        return np.array([[line[i] for i in order] for line in lines[1:]], str).reshape(len(lines) - 1, len(names))
    of_numbers = [spec.datatype != "BYTES" for spec in inputs for _ in range(prod(spec.dims))]
    if len(first) == len(of_numbers) and _has_names(path, first, of_numbers, names):
        del lines[0]
    return np.array(lines, str).reshape(-1, len(first))


def _has_names(path: Path, first: list[str], of_numbers: list[bool], inputs: list[str]) -> bool:
    """Whether the first line has names of columns, which are not those of the inputs. Raises `ModelLoadError` if it may
    be a row as well."""
    in_doubt = f"the first line of the background {path.name} may be names or a row"
    if not any(of_numbers):
        instead = "write a .npz instead" if len(first) != len(inputs) else f"let it be `{','.join(inputs)}`"
        raise ModelLoadError(f"{in_doubt}, because all columns are texts: {instead}")
    if first == [str(at) for at in range(len(first))]:
        raise ModelLoadError(
            f"{in_doubt}, because it counts from 0: give the columns names, or write the row's numbers as 0.0"
        )
    cells = [cell for cell, is_number in zip(first, of_numbers, strict=True) if is_number]
    return not any(_is_number(cell) or cell.lower() in _MISSING for cell in cells)


_MISSING: Final = ("", "na", "n/a", "null", "none", "-", "?")
"""How files write that a row has no number, which no name of a column is."""


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
