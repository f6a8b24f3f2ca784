"""Passes tensors from one model to the next: other names and shapes, the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adapters.tensors import NO_PARAMETERS, Tensor
from runtimes.tensor.configuration.model_config import Dims
from runtimes.tensor.instances.outputs import reshaped
from runtimes.tensor.text_index import IndexedTensor

Reshape = Callable[[Dims], Dims]
"""The shape that the receiver expects, from the shape that the sender gave."""


def passed(tensor: Tensor, name: str, reshape: Reshape | None) -> Tensor:
    """The tensor with its receiver's name and shape. Its bytes are shared."""
    shape = tensor.shape if reshape is None else reshape(tensor.shape)
    if tensor.name == name and shape == tensor.shape:
        return tensor
    if isinstance(tensor, IndexedTensor):  # the ends of its rows stay right if its rows stay the same
        return replace(tensor, name=name, shape=shape, ends=tensor.ends if shape[:1] == tensor.shape[:1] else None)
    return Tensor(name, tensor.datatype, shape, tensor.data, NO_PARAMETERS)


def between(sender_batched: bool, receiver_batched: bool, dims: Dims) -> Reshape | None:
    """The conversion between a model with a batch dimension and a model without, as in Triton.

    `dims` are the receiver's, without the batch.
    """
    if sender_batched == receiver_batched:
        return None
    return (lambda shape: _with_batch(shape, dims)) if receiver_batched else (lambda shape: _without_batch(shape, dims))


def _with_batch(shape: Dims, dims: Dims) -> Dims:
    """A batch of one, unless the sender's first dimension is the batch already."""
    return (1, *shape) if _fits(shape, dims) else shape


def _without_batch(shape: Dims, dims: Dims) -> Dims:
    """The row of a batch of one, unless the receiver takes the batch as its first dimension."""
    return shape[1:] if not _fits(shape, dims) and shape[:1] == (1,) else shape


def _fits(shape: Dims, dims: Dims) -> bool:
    return len(shape) == len(dims) and all(dim in (-1, size) for size, dim in zip(shape, dims, strict=True))


def of_ensemble(batched: bool, dims: Dims, target: Dims) -> Reshape:
    """The `reshape` of an ensemble's input or output: from `dims` to `target`, behind the batch."""
    lead = int(batched)
    return lambda shape: shape[:lead] + reshaped(shape[lead:], dims, target)
