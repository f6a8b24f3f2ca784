"""Inputs that describe a batch of requests of different shapes, and outputs that are cut by those shapes.

Triton's `batch_input` and `batch_output`. The inputs are made in parts, one for each request, which are joined as the
tensors of the requests are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np

from runtimes.tensor.configuration.model_config import BatchInput, Dims, ModelConfig
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.interfaces import Array, Tensors

Shapes = Mapping[str, Dims]
"""The shape of each input that the client sent, with the batch dimension."""
FIRST_ONLY: Final = "max_element_count_as_shape"


class BatchInputs:
    """The batch inputs of one model."""

    def __init__(self, config: ModelConfig) -> None:
        self._specs = config.batch_inputs
        self._batched = config.max_batch_size > 0

    def __bool__(self) -> bool:
        return bool(self._specs)

    def added(self, members: Sequence[Tensors], shapes: Sequence[Shapes]) -> list[Tensors]:
        """Add each member's part of every batch input."""
        made: list[dict[str, Array]] = [dict(member) for member in members]
        for spec in self._specs:
            dtype = DTYPES[spec.datatype]
            for member, part in zip(made, self._parts(spec, shapes), strict=True):
                for name in spec.target_name:
                    member[name] = np.asarray(part).astype(dtype)
        return [*made]

    def _parts(self, spec: BatchInput, shapes: Sequence[Shapes]) -> list[Array]:
        source = [shape[spec.source_input[0]] for shape in shapes]
        counts = [prod(shape) for shape in source]
        if spec.kind == "element_count":
            return [np.array([count]) for count in counts]
        if spec.kind == FIRST_ONLY:
            return [np.zeros(max(counts) if at == 0 else 0) for at in range(len(counts))]
        if spec.kind in ("item_shape", "item_shape_flatten"):
            items = [self._items(shape) for shape in source]
            return items if spec.kind == "item_shape" else [item.reshape(-1) for item in items]
        ends = np.cumsum(counts)
        parts: list[Array] = [np.array([end]) for end in ends]
        if spec.kind == "accumulated_element_count_with_zero":
            parts[0] = np.array([0, ends[0]])
        return parts

    def _items(self, shape: Dims) -> Array:
        """The shape of each row."""
        return np.tile(np.array(shape[1:]), (shape[0], 1)) if self._batched else np.array([shape])


class BatchOutputs:
    """Outputs that are scattered by the shapes of inputs."""

    def __init__(self, config: ModelConfig) -> None:
        self._batched = config.max_batch_size > 0
        dims = {spec.name: spec.dims for spec in config.outputs}
        self._sources = {
            name: (spec.source_input[0], dims.get(name, ()))
            for spec in config.batch_outputs
            for name in spec.target_name
        }

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def scattered(self, name: str, array: Array, shapes: Sequence[Shapes]) -> list[Array]:
        """The part of each request. Raises ValueError if the output has another number of elements."""
        source, dims = self._sources[name]
        targets = [self._shape(dims, shape[source]) for shape in shapes]
        flat, at = array.reshape(-1), 0
        if flat.size != sum(map(prod, targets)):
            raise ValueError(f"output `{name}` has {flat.size} elements, and its inputs' shapes have another number")
        parts = []
        for target in targets:
            parts.append(flat[at : at + prod(target)].reshape(target))
            at += prod(target)
        return parts

    def _shape(self, dims: Dims, shape: Dims) -> Dims:
        lead = shape[: self._batched]
        own = shape[self._batched :]
        return (*lead, *[own[axis] if dim == -1 else dim for axis, dim in enumerate(dims)])
