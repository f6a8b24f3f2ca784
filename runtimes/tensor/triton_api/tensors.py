"""`Tensor` of Triton's Python API."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from adapters.tensors import Data, join_bytes, split_bytes
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.triton_api import dlpack
from runtimes.tensor.triton_api.errors import TritonModelException

Array = np.ndarray[Any, Any]
_IN_ORDER: Final = [name for name in DTYPES if name not in ("BYTES", "BF16")]
TRITON_NUMBERS: Final = {name: number for number, name in enumerate([*_IN_ORDER, "BYTES", "BF16"], 1)}
"""Triton's number of each datatype."""
_DATATYPES: Final = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}


class BackendTensor:
    """A tensor on the CPU or, made by `from_dlpack`, on a GPU. Its bytes are shared with numpy and DLPack."""

    __slots__ = ("__weakref__", "_array", "_data", "_datatype", "_device", "_name", "_owner", "_shape")

    def __init__(self, name: str, numpy_array: Array, /) -> None:
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(f"a tensor is made of a numpy array, not of {type(numpy_array).__name__}")
        _check_name(name)
        self._name = name
        self._datatype = _datatype(numpy_array.dtype)
        self._array: Array | None = np.asarray(numpy_array, order="C")
        self._shape: tuple[int, ...] = numpy_array.shape
        self._data: Data | Array | None = None
        self._device = (dlpack.CPU, 0)
        self._owner: Any = None

    @classmethod
    def received(cls, name: str, datatype: str, shape: tuple[int, ...], data: Data) -> BackendTensor:
        """A tensor from the server, in the protocol's binary form."""
        tensor = cls.__new__(cls)
        tensor._name, tensor._datatype, tensor._shape = name, datatype, shape
        tensor._array, tensor._data = None, data
        tensor._device, tensor._owner = (dlpack.CPU, 0), None
        return tensor

    @classmethod
    def of_array(cls, name: str, datatype: str, array: Array) -> BackendTensor:
        """A tensor of a contiguous array, with the array's datatype."""
        tensor = cls.received(name, datatype, array.shape, b"")
        tensor._array = array
        return tensor

    @property
    def array(self) -> Array | None:
        """The array that the tensor was created from; None for another tensor."""
        return self._array

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return list(self._shape)

    def triton_dtype(self) -> int:
        return TRITON_NUMBERS[self._datatype]

    def is_cpu(self) -> bool:
        return self._device[0] != dlpack.CUDA

    def as_numpy(self) -> Array:
        """BYTES as an array of `bytes`."""
        if not self.is_cpu():
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        if self._datatype == "BF16":
            raise TritonModelException("Tensor dtype is BF16 and cannot be converted to NumPy.")
        if self._array is None:
            self._array = self._numpy()
        return self._array

    def _numpy(self) -> Array:
        assert self._data is not None
        if self._datatype == "BYTES":
            elements = np.empty(prod(self._shape), object)
            elements[:] = split_bytes(self.data(), elements.size, self._name)
            return elements.reshape(self._shape)
        return np.ndarray(self._shape, DTYPES[self._datatype], self._data)

    # ── DLPack ────────────────────────────────────────────────────────────────────────────────────────

    def to_dlpack(self) -> Any:
        """A capsule of the same memory."""
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        if not self.is_cpu():
            return self._owner.__dlpack__()
        array = self._bytes() if self._array is None else self._array
        return dlpack.exported(array, self._datatype, self._shape)

    def _bytes(self) -> Array:
        return self._data if isinstance(self._data, np.ndarray) else np.frombuffer(self._data or b"", np.uint8)

    def __dlpack__(self, stream: Any = None, **_: Any) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> BackendTensor:
        """A tensor that shares the memory of a capsule, or of an object with `__dlpack__`."""
        _check_name(name)
        owner: Any = None
        if not dlpack.is_capsule(tensor):
            if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
                raise TritonModelException(
                    "Provided tensor is not supported. Tensor must be a DLPack capsule or have `__dlpack__` and"
                    " `__dlpack_device__` attributes"
                )
            owner, tensor = tensor, tensor.__dlpack__()
        taken = dlpack.imported(tensor)
        if taken.data is None and owner is None:
            owner = _of_gpu(tensor)
        made = BackendTensor.received(name, taken.datatype, taken.shape, b"")
        made._data, made._device = taken.data, taken.device
        made._owner = owner if taken.data is None else None
        return made

    # ── the server's form ─────────────────────────────────────────────────────────────────────────────

    @property
    def datatype(self) -> str:
        """The protocol's name of the datatype."""
        return self._datatype

    @property
    def dims(self) -> tuple[int, ...]:
        return self._shape

    def data(self) -> Data:
        """The bytes in the protocol's form."""
        if not self.is_cpu():
            return BackendTensor.from_dlpack(self._name, self._owner.cpu()).data()
        if self._array is None or self._datatype == "BF16":
            return self._data.data if isinstance(self._data, np.ndarray) else self._data or b""
        if self._datatype == "BYTES":
            return _joined(self._array)
        return self._array.reshape(-1).view(np.uint8).data


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor is a str, not {type(name).__name__}")
    if not name:
        raise TritonModelException("Tensor name cannot be an empty string.")


def _datatype(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "S":
        return "BYTES"
    name = _DATATYPES.get(dtype)
    if name is None:
        raise TritonModelException("NumPy dtype is not supported.")
    return name


def _joined(array: Array) -> bytes:
    """BYTES in binary form. Elements that are not `bytes` are sent as their text in UTF-8."""
    items = array.reshape(-1).tolist()
    return join_bytes([item if type(item) is bytes else str(item).encode() for item in items])


def _of_gpu(capsule: Any) -> Any:
    """The tensor of a capsule on a GPU. PyTorch copies such tensors to the CPU."""
    import torch

    return torch.from_dlpack(capsule)
