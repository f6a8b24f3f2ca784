"""Which element of which tensor is compared with which column of the reference."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from config.problem import closest
from runtimes.tensor.configuration.model_config import Drift, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import rounded
from runtimes.tensor.drift.columns import Column, read_columns, refused
from runtimes.tensor.drift.histograms import read_histograms
from runtimes.tensor.drift.sketches import Floats, Labels, Numbers, Sketch, labels_of, numbers_in, numbers_of

MAX_FEATURES: Final = 100
"""Features of one model: each is a label of metrics."""
MAX_CLASSES: Final = 50
"""An output of whole numbers with more values than these is a number, and not a class."""
MAX_NAME: Final = 64
log = logging.getLogger(__name__)


class FeaturePlan(NamedTuple):
    """One element of a row."""

    name: str
    place: int
    sketch: Sketch


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """The features of one tensor. `width` is the elements of a row."""

    name: str
    is_input: bool
    datatype: str
    width: int
    features: tuple[FeaturePlan, ...]


def read_plans(config: ModelConfig, drift: Drift, folders: Sequence[Path]) -> list[TensorPlan]:
    """The plans of a model. The reference is in the first of the folders that has it. Blocks for the disk.

    Raises `ModelLoadError`, whose message names the change to make.
    """
    path = next((one for folder in folders if (one := folder / drift.reference).is_file()), None)
    if path is None:
        raise refused(Path(drift.reference), "is neither in the folder of the version nor beside the versions")
    sources: Mapping[str, Column | Sketch]
    sources = read_histograms(path) if path.suffix == ".json" else read_columns(path)
    chosen = _chosen(path, drift, sources)
    plans = [plan for plan in _plans(path, config, drift, sources, chosen) if plan.features]
    if not plans:
        names = ", ".join([spec.name for spec in (*config.inputs, *config.outputs)])
        raise refused(path, f"none of its columns is named as an input or an output: {names[:300]}")
    return plans


def _chosen(path: Path, drift: Drift, sources: Mapping[str, object]) -> frozenset[str]:
    for name in drift.features:
        if name not in sources:
            hint = closest(name, list(sources))
            raise refused(path, f"has no column {name[:64]}, which drift.features names{f': {hint}?' if hint else ''}")
    if drift.features:
        return frozenset(drift.features[:MAX_FEATURES])
    if len(sources) > MAX_FEATURES:
        log.warning("%s has %d columns: the first %d are compared", path.name, len(sources), MAX_FEATURES)
    return frozenset(list(sources)[:MAX_FEATURES])


def _plans(
    path: Path,
    config: ModelConfig,
    drift: Drift,
    sources: Mapping[str, Column | Sketch],
    chosen: frozenset[str],
) -> Iterator[TensorPlan]:
    left = dict.fromkeys(sources)
    order = {name: at for at, name in enumerate(sources)}
    places: dict[int, dict[str, int]] = {}
    specs = [*config.inputs, *config.outputs]
    for at, spec in enumerate(specs):
        places[at] = {name: place for name, place in _named(spec, sources) if name in left}
        for name in places[at]:
            left.pop(name, None)
    if len(config.inputs) == 1 and not places[0]:
        places[0] = {name: place for place, name in enumerate(left)}
    for at, spec in enumerate(specs):
        is_input = at < len(config.inputs)
        width = _width(path, spec, places[at])
        features = tuple(
            FeaturePlan(
                _label(name, order[name]), place, _sketch(path, name, sources[name], spec, drift, is_input=is_input)
            )
            for name, place in places[at].items()
            if name in chosen
        )
        yield TensorPlan(spec.name, is_input, spec.datatype, width, features)


def _named(spec: TensorSpec, sources: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """The columns that have the name of a tensor: its own, or with the place of an element: `x[3]`."""
    if spec.name in sources:
        yield spec.name, 0
        return
    for name in sources:
        if name.startswith(f"{spec.name}[") and name.endswith("]") and name[len(spec.name) + 1 : -1].isdecimal():
            yield name, int(name[len(spec.name) + 1 : -1][:9])


def _width(path: Path, spec: TensorSpec, places: Mapping[str, int]) -> int:
    """The elements of a row, declared or as many as there are columns."""
    needed = max(places.values(), default=-1) + 1
    sizes = [dim for dim in spec.dims if dim != -1]
    declared = prod(sizes)
    if not places:
        return declared
    if len(sizes) < len(spec.dims) and not (len(spec.dims) - len(sizes) == 1 and spec.dims[0] == -1 and sizes):
        return needed
    if needed > declared:
        raise refused(path, f"has {needed} columns for `{spec.name}`, and a row of it has {declared} elements")
    return declared


def _label(name: str, order: int) -> str:
    """The name of a feature in metrics; where it is cut, with the number of its column."""
    name = name.encode(errors="replace").decode()
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 8]}…{order}"


def _sketch(
    path: Path, name: str, source: Column | Sketch, spec: TensorSpec, drift: Drift, *, is_input: bool
) -> Sketch:
    if not isinstance(source, Column):
        if isinstance(source, Labels) != (spec.datatype == "BYTES") and spec.datatype not in _WHOLE:
            raise refused(path, f"{name[:64]} must have {'labels' if spec.datatype == 'BYTES' else 'edges'}")
        return _in_datatype(source, spec.datatype) if isinstance(source, Numbers) else source
    if spec.datatype == "BYTES":
        return labels_of(source.labels())
    numbers = source.numbers()
    if numbers is None:
        raise refused(path, f"column {name[:64]} has texts, and `{spec.name}` is {spec.datatype}")
    if not is_input and spec.datatype in _WHOLE and (classes := _classes(numbers)) is not None:
        return classes
    # Requests have rounded numbers: an edge that is not one of them would divide equal values.
    return numbers_of(rounded(numbers, spec.datatype), drift.bins)


def _in_datatype(sketch: Numbers, datatype: str) -> Numbers:
    """A histogram with the edges that the tensor's numbers have. Bins whose edges are equal then are one."""
    edges, places = np.unique(rounded(sketch.edges, datatype), return_inverse=True)
    bins = np.concatenate([places, [len(edges), len(edges) + 1]])
    return numbers_in(edges, np.bincount(bins, weights=sketch.reference))


_WHOLE: Final = frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})


def _classes(numbers: Floats) -> Labels | None:
    """The sketch of the classes of an output; None if it has too many values for classes."""
    kinds, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    if not 0 < len(kinds) <= MAX_CLASSES or np.any(kinds != np.trunc(kinds)) or np.any(np.abs(kinds) > 2**53):
        return None
    return labels_of({str(int(kind)).encode(): count for kind, count in zip(kinds, counts.tolist(), strict=True)})
