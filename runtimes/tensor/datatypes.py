"""The Open Inference Protocol's datatypes in numpy. BYTES are objects, BF16 the upper halves of float32."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype("<u2"),
    "BYTES": np.dtype(object),
}

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}


def datatype_of(dtype: npt.DTypeLike) -> str:
    """The protocol's name of a dtype; numpy's name if the protocol has none."""
    dtype = np.dtype(dtype)
    return "BYTES" if dtype.kind in "SU" else _NAMES.get(dtype, str(dtype))


def bf16_to_fp32(halves: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (halves.astype("<u4") << 16).view("<f4")


def fp32_to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to the nearest, ties to even, as hardware does; a NaN stays a NaN."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype("<u2")


def rounded(values: npt.NDArray[np.float64], datatype: str) -> npt.NDArray[np.float64]:
    """The values that a tensor of the datatype has for these numbers. Those beyond its range are infinite. Whole
    numbers and BOOL hold their values as they are."""
    if datatype not in ("FP16", "FP32", "BF16"):
        return values
    with np.errstate(over="ignore"):
        if datatype == "BF16":
            return bf16_to_fp32(fp32_to_bf16(values.astype(np.float32))).astype(np.float64)
        return values.astype(DTYPES[datatype]).astype(np.float64)
