"""Tensors within tolerances, or by the positions of their largest values. Without numpy, which the gateway may lack."""

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from math import inf, isnan

from config.schema.copies import TensorComparisonConfig
from policies.comparison.answers import ComparedTensor, Data

FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})
MOST_NAMED = 16
"""Outputs whose differences are named."""


def tensor_differences(
    first: Iterable[ComparedTensor], second: Iterable[ComparedTensor], config: TensorComparisonConfig
) -> dict[str, str]:
    """The outputs that differ, with the difference. `first` is the primary's."""
    ignored = frozenset(config.ignore)
    ones = {tensor.name: tensor for tensor in first if tensor.name not in ignored}
    others = {tensor.name: tensor for tensor in second if tensor.name not in ignored}
    differing: dict[str, str] = {}
    for name in [*ones, *(name for name in others if name not in ones)]:
        if len(differing) == MOST_NAMED:
            break
        one, other = ones.get(name), others.get(name)
        if one is None or other is None:
            differing[name] = "only the shadow has it" if one is None else "the shadow has no such output"
        elif difference := tensor_difference(one, other, config):
            differing[name] = difference
    return differing


def tensor_difference(first: ComparedTensor, second: ComparedTensor, config: TensorComparisonConfig) -> str:
    """The difference of two tensors; empty if they agree."""
    if first.datatype != second.datatype:
        return f"{first.datatype} and {second.datatype}"
    if first.shape != second.shape:
        return f"shapes {list(first.shape)} and {list(second.shape)}"
    if first.data == second.data:
        return ""
    if first.datatype not in FLOATS:
        return "the elements differ"
    ones, others = values_of(first.datatype, first.data), values_of(second.datatype, second.data)
    if len(ones) != len(others):
        return f"{len(ones)} and {len(others)} elements"
    if config.top_k is not None:
        width = first.shape[-1] if first.shape else 1
        return _largest_differ(ones, others, width, config.top_k)
    return _beyond(ones, others, config.rtol, config.atol)


def values_of(datatype: str, data: Data) -> Sequence[float]:
    """The elements of a tensor of floats. An incomplete last element is left out."""
    if datatype == "FP16":
        return [value for (value,) in struct.iter_unpack("<e", memoryview(data)[: len(data) // 2 * 2])]
    if datatype == "BF16":
        wide = array("I", (half << 16 for (half,) in struct.iter_unpack("<H", memoryview(data)[: len(data) // 2 * 2])))
        return array("f", wide.tobytes())
    code, size = ("f", 4) if datatype == "FP32" else ("d", 8)
    return array(code, bytes(memoryview(data)[: len(data) // size * size]))


def _beyond(ones: Sequence[float], others: Sequence[float], rtol: float, atol: float) -> str:
    """The values beyond the tolerances: |a - b| > atol + rtol |a|."""
    count, largest = 0, 0.0
    for one, other in zip(ones, others, strict=True):
        if one == other:
            continue
        gap = abs(one - other)
        # NaN and infinities fail this comparison, and are compared below.
        if gap <= atol + rtol * abs(one) < inf or (isnan(one) and isnan(other)):
            continue
        count += 1
        largest = inf if isnan(gap) else max(largest, gap)
    return f"{count} of {len(ones)} values differ, by {largest:.3g} at most" if count else ""


def _largest_differ(ones: Sequence[float], others: Sequence[float], width: int, count: int) -> str:
    """The rows whose largest values have other positions."""
    rows = list(zip(_largest(ones, width, count), _largest(others, width, count), strict=True))
    differing = sum(one != other for one, other in rows)
    return f"the {count} largest values of {differing} of {len(rows)} rows" if differing else ""


def _largest(values: Sequence[float], width: int, count: int) -> Iterator[list[int]]:
    """The positions of the largest values of each row, largest first; of equal values the first. NaN is the least."""
    for start in range(0, len(values), max(width, 1)):
        row = [-inf if isnan(value) else value for value in values[start : start + width]]
        yield nlargest(count, range(len(row)), key=row.__getitem__)
