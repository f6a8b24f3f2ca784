"""Checks requests against their model's configuration, and converts their tensors to numpy's arrays.

Errors begin with Triton's sentences, which test suites of its clients match.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import prod

import numpy as np

from adapters.errors import CallerError, TooLarge
from adapters.tensors import Inference, Tensor, split_bytes
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.deferred_input import LARGE, deferred, is_deferred, padded
from runtimes.tensor.interfaces import Array
from runtimes.tensor.scheduling.pending import PreparedRequest
from runtimes.tensor.text_index import IndexedTensor
from runtimes.tensor.texts import Texts, as_array, is_texts

MAX_PARTS = 256
"""Batches that one request may be cut into."""


class InputReader:
    """One input. Values that do not depend on a request are computed once."""

    __slots__ = (
        "batched",
        "datatype",
        "dims",
        "dtype",
        "exact",
        "item",
        "model",
        "pads",
        "plain",
        "ragged",
        "row_bytes",
        "spec",
    )

    def __init__(self, model: str, spec: TensorSpec, batched: bool, pads: tuple[int, ...]) -> None:
        self.model = model
        self.spec = spec
        self.batched = batched
        self.datatype = spec.datatype
        self.dims = spec.dims
        self.dtype = DTYPES[spec.datatype]
        self.item = 0 if spec.datatype == "BYTES" else self.dtype.itemsize
        self.exact = -1 not in spec.dims
        self.row_bytes = prod(spec.dims) * self.item if self.exact else 0
        self.plain = self.exact and batched and self.item > 0 and spec.datatype != "BOOL"
        self.pads = tuple(sorted(pads))
        self.ragged = spec.allow_ragged_batch and batched

    def read(self, tensor: Tensor) -> Array:
        """Read an input: a view of its bytes, if numpy has one. Raises `CallerError`, which names the input.

        The array may be unaligned; models get an aligned copy. Large inputs may be deferred.
        """
        shape, data = tensor.shape, tensor.data
        if (
            self.plain
            and tensor.datatype == self.datatype
            and shape[1:] == self.dims
            and len(data) == shape[0] * self.row_bytes
        ):
            return np.ndarray(shape, self.dtype, data)
        if tensor.datatype != self.datatype:
            raise self._wrong_datatype(tensor)
        if not self._fits(shape):
            raise self._wrong_shape(shape)
        if not self.item:
            if isinstance(tensor, IndexedTensor):
                return as_array(Texts(data, shape, tensor.ends))
            elements = np.empty(prod(shape), object)
            elements[:] = split_bytes(tensor.data, elements.size, tensor.name)
            return elements.reshape(shape)
        if len(tensor.data) != prod(shape) * self.item:
            raise self._wrong_size(tensor)
        if self.datatype == "BOOL":
            whole = np.ndarray(shape, np.uint8, data)
            return whole.astype(np.bool_) if len(data) < LARGE else deferred(whole, self.dtype, shape)
        return np.ndarray(shape, self.dtype, data)

    def pad(self, array: Array, cuts: dict[int, tuple[int, int]]) -> Array:
        """Pad variable dimensions with zeros to the next declared length. Large inputs are deferred."""
        shape = list(array.shape)
        offset = int(self.batched)
        for axis, (dim, size) in enumerate(zip(self.dims, array.shape[offset:], strict=True), offset):
            if dim == -1:
                shape[axis] = next((length for length in self.pads if length >= size), size)
                # With two inputs of different lengths, the length of an output is ambiguous.
                cut = cuts.setdefault(axis, (shape[axis], size))
                if cut != (shape[axis], size):
                    cuts[axis] = (0, 0)
        full = tuple(shape)
        if full == array.shape:
            return array
        if is_deferred(array):
            return deferred(array.content, array.dtype, full)
        if is_texts(array) or prod(full) * array.dtype.itemsize >= LARGE:
            return deferred(array, array.dtype, full)
        return padded(array, full)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        dims = shape[1:] if self.batched else shape
        if self.batched and not shape:
            return False
        return dims == self.dims or (
            len(dims) == len(self.dims)
            and all(size == dim or dim == -1 for size, dim in zip(dims, self.dims, strict=True))
        )

    def _expected(self) -> list[int]:
        return [-1, *self.dims] if self.batched else list(self.dims)

    def _wrong_datatype(self, tensor: Tensor) -> CallerError:
        given = f"inference input '{self.spec.name}' data-type is '{tensor.datatype}'"
        return CallerError(f"{given}, but model '{self.model}' expects '{self.datatype}'", param=self.spec.name)

    def _wrong_shape(self, shape: tuple[int, ...]) -> CallerError:
        expected, given = _dims(self._expected()), _dims(shape)
        message = f"unexpected shape for input '{self.spec.name}' for model '{self.model}'."
        note = " NOTE: The model has batches: the first dimension of each input is the batch." if self.batched else ""
        return CallerError(f"{message} Expected {expected}, got {given}.{note}", param=self.spec.name)

    def _wrong_size(self, tensor: Tensor) -> CallerError:
        message = f"input byte size mismatch for input '{self.spec.name}' for model '{self.model}'."
        expected = prod(tensor.shape) * self.item
        return CallerError(f"{message} Expected {expected}, got {len(tensor.data)}", param=self.spec.name)


class Intake:
    """Reads the requests of one model."""

    def __init__(self, config: ModelConfig, *, whole_requests: bool = False) -> None:
        """With `whole_requests` the model gets the tensors of each request unchanged."""
        self._name = config.name
        self._batched = config.max_batch_size > 0
        pads = config.dynamic_batching.pad_to if config.dynamic_batching else {}
        self._readers = {
            spec.name: InputReader(config.name, spec, self._batched, tuple(pads.get(spec.name, ())))
            for spec in config.inputs
        }
        self._pads = any(reader.pads for reader in self._readers.values())
        self._ragged = not whole_requests and any(reader.ragged for reader in self._readers.values())
        made = {spec.source_input[0] for spec in config.batch_inputs}
        self._sources = set() if whole_requests else made | {spec.source_input[0] for spec in config.batch_outputs}
        """Inputs whose shapes determine the shapes of others."""
        self._required = {spec.name for spec in config.inputs if not spec.optional}
        self._alike = self._required == set(self._readers) and all(reader.exact for reader in self._readers.values())
        self._alike = self._alike and not self._sources
        self._outputs = {spec.name for spec in config.outputs}
        self.max_rows = max(1, config.max_batch_size) * MAX_PARTS

    def read(self, inference: Inference) -> PreparedRequest:
        """Read a request. Raises `CallerError`, which names the change to make."""
        arrays: dict[str, Array] = {}
        readers = self._readers
        rows = -1 if self._batched else 1
        for tensor in inference.inputs:
            reader = readers.get(tensor.name)
            if reader is None:
                raise self._unknown(tensor)
            arrays[tensor.name] = array = reader.read(tensor)
            if self._batched and rows != (size := array.shape[0]):
                if rows >= 0:
                    raise CallerError(
                        f"input '{tensor.name}' batch size does not match other inputs for '{self._name}': {size} rows"
                        f" instead of {rows}. The first dimension of each input is the batch.",
                        param=tensor.name,
                    )
                rows = size
        if len(arrays) != len(readers) or len(arrays) != len(inference.inputs):
            self._check_names(inference)
        if not 0 < rows <= self.max_rows:
            raise self._wrong_rows(rows)
        requested = self._requested(inference) if inference.outputs else None
        if self._alike:
            return PreparedRequest(arrays, rows, None, requested)
        cuts: dict[int, tuple[int, int]] = {}
        if self._pads:
            arrays = {n: readers[n].pad(array, cuts) if readers[n].pads else array for n, array in arrays.items()}
        key = self._key(arrays)
        shapes = self._shapes(arrays) if self._sources else None
        if self._ragged:
            arrays = {n: array.reshape(-1) if readers[n].ragged else array for n, array in arrays.items()}
        return PreparedRequest(arrays, rows, key, requested, _real(cuts), shapes)

    def _shapes(self, arrays: dict[str, Array]) -> dict[str, tuple[int, ...]]:
        """The shapes of inputs. Raises `CallerError` if an input is absent that others are made from."""
        missing = self._sources - arrays.keys()
        if missing:
            name = min(missing)
            raise CallerError(f"input '{name}' is required: other inputs of '{self._name}' are made by it.", param=name)
        return {name: arrays[name].shape for name in self._sources}

    def _key(self, arrays: dict[str, Array]) -> Hashable:
        return tuple(
            (name, None if self._readers[name].ragged else array.shape[1:] if self._batched else array.shape)
            for name, array in sorted(arrays.items())
        )

    def _requested(self, inference: Inference) -> tuple[str, ...]:
        names = tuple([output.name for output in inference.outputs])
        if self._outputs and not self._outputs.issuperset(names):
            unknown = next(name for name in names if name not in self._outputs)
            raise CallerError(
                f"unexpected inference output '{unknown}' for model '{self._name}'. It has {_list(self._outputs)}.",
                param=unknown,
            )
        if len(set(names)) != len(names):
            raise CallerError("An output is requested twice: request each once.")
        return names

    def _check_names(self, inference: Inference) -> None:
        given = [tensor.name for tensor in inference.inputs]
        twice = next((name for name in given if given.count(name) > 1), None)
        if twice is not None:
            raise CallerError(f"input '{twice}' already exists in request", param=twice)
        missing = self._required.difference(given)
        if missing:
            stray = next((tensor for tensor in inference.inputs if tensor.name not in self._readers), None)
            if stray is not None:
                raise self._unknown(stray)
            counts = f"expected {len(self._required)} inputs but got {len(given)} inputs for model '{self._name}'"
            raise CallerError(
                f"{counts}. Got input(s) [{_quoted(given)}], but missing required input(s) [{_quoted(missing)}]."
                " Please provide all required input(s).",
                param=min(missing),
            )

    def _unknown(self, tensor: Tensor) -> CallerError:
        return CallerError(
            f"unexpected inference input '{tensor.name}' for model '{self._name}'. It has {_list(set(self._readers))}.",
            param=tensor.name,
        )

    def _wrong_rows(self, rows: int) -> CallerError:
        if rows <= 0:
            return CallerError("The request has no rows: the first dimension of its inputs must be 1 or more.")
        return TooLarge(f"inference request batch-size must be <= {self.max_rows} for '{self._name}', and is {rows}")


def _real(cuts: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]] | None:
    return {axis: cut for axis, cut in cuts.items() if cut[0] != cut[1]} or None


def _dims(shape: Iterable[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _quoted(names: Iterable[str]) -> str:
    return ",".join(f"'{name}'" for name in sorted(names))


def _list(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
