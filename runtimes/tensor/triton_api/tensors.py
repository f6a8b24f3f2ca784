"""`Tensor` of Triton's Python API, and its memory for other libraries by DLPack."""

from __future__ import annotations

import ctypes
import itertools
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from adapters.tensors import Data, join_bytes, split_bytes
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.triton_api.errors import TritonModelException

CPU, CUDA, CUDA_HOST = 1, 2, 3
NAME, USED = b"dltensor", b"used_dltensor"
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_TYPES: Final = {
    "BOOL": (_BOOL, 8),
    "UINT8": (_UINT, 8),
    "UINT16": (_UINT, 16),
    "UINT32": (_UINT, 32),
    "UINT64": (_UINT, 64),
    "INT8": (_INT, 8),
    "INT16": (_INT, 16),
    "INT32": (_INT, 32),
    "INT64": (_INT, 64),
    "FP16": (_FLOAT, 16),
    "FP32": (_FLOAT, 32),
    "FP64": (_FLOAT, 64),
    "BF16": (_BFLOAT, 16),
}
_NAMES: Final = {code: name for name, code in _TYPES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """`DLManagedTensor`: the tensor, a context and the deleter of its owner."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
_api.PyCapsule_SetName.restype = ctypes.c_int
_api.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)

_exported: dict[int, tuple[Any, ...]] = {}
"""The memory of exported tensors, until their consumer deletes them."""
_serials = itertools.count(1)


class Imported(NamedTuple):
    """A tensor of another library. `data` is None for one that is not on the CPU."""

    datatype: str
    shape: tuple[int, ...]
    device: tuple[int, int]
    data: np.ndarray[Any, Any] | None
    """The tensor's bytes, which hold a reference to it."""


def exported(array: np.ndarray[Any, Any], datatype: str, shape: tuple[int, ...]) -> Any:
    """A capsule of contiguous memory, which lives until its consumer deletes it."""
    code, bits = _TYPES[datatype]
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    managed = _Managed()
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.ndim = array.ctypes.data, CPU, len(shape)
    tensor.code, tensor.bits, tensor.lanes = code, bits, 1
    tensor.shape = ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64))
    serial = next(_serials)
    managed.context = serial
    managed.deleter = _delete
    _exported[serial] = (managed, dims, array)
    return _api.PyCapsule_New(ctypes.addressof(managed), NAME, ctypes.cast(_destroy, ctypes.c_void_p))


def _release(managed: Any) -> None:
    """Release an exported tensor for its consumer."""
    _exported.pop(managed.contents.context, None)


def _end(capsule: Any) -> None:
    """Handle the end of a capsule. A consumer has renamed it, or there was no consumer."""
    if _is_valid(capsule, NAME):
        _release(ctypes.cast(_get_pointer(capsule, NAME), ctypes.POINTER(_Managed)))


_delete = _Deleter(_release)
_destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_end)
# A capsule in its destructor has no references: these take its address.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def is_capsule(value: object) -> bool:
    return type(value).__name__ == "PyCapsule"


def imported(capsule: Any) -> Imported:
    """Import the tensor of a capsule. Raises `TritonModelException` if it cannot be used."""
    if not _api.PyCapsule_IsValid(capsule, NAME):
        raise TritonModelException("The capsule has no DLPack tensor, or it was used before.")
    pointer = ctypes.cast(_api.PyCapsule_GetPointer(capsule, NAME), ctypes.POINTER(_Managed))
    tensor = pointer.contents.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides and not _is_contiguous(shape, [tensor.strides[axis] for axis in range(tensor.ndim)]):
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
        )
    if tensor.device_type not in (CPU, CUDA, CUDA_HOST):
        raise TritonModelException(f"DLDevice type {tensor.device_type} is not support by Python backend.")
    datatype = _NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if datatype is None:
        raise TritonModelException(f'DType code "{tensor.code}" of {tensor.bits} bits is not supported.')
    device = (int(tensor.device_type), int(tensor.device_id))
    if tensor.device_type == CUDA:
        return Imported(datatype, shape, device, None)
    size = int(np.prod(shape, dtype=np.int64)) * ((tensor.bits + 7) // 8)
    _api.PyCapsule_SetName(capsule, USED)
    owner = _Owner(pointer)
    if not size:
        return Imported(datatype, shape, device, np.empty(0, np.uint8))
    memory = (ctypes.c_uint8 * size).from_address(tensor.data + tensor.byte_offset)
    memory.owner = owner  # until the last view of it ends
    return Imported(datatype, shape, device, np.frombuffer(memory, np.uint8))


class _Owner:
    """Deletes an imported tensor at its end."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer
        self._delete = pointer.contents.deleter

    def __del__(self) -> None:
        if self._delete:
            self._delete(self._pointer)


def _is_contiguous(shape: tuple[int, ...], strides: list[int]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


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
        self._device = (CPU, 0)
        self._owner: Any = None

    @classmethod
    def received(cls, name: str, datatype: str, shape: tuple[int, ...], data: Data) -> BackendTensor:
        """A tensor from the server, in the protocol's binary form."""
        tensor = cls.__new__(cls)
        tensor._name, tensor._datatype, tensor._shape = name, datatype, shape
        tensor._array, tensor._data = None, data
        tensor._device, tensor._owner = (CPU, 0), None
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
        return self._device[0] != CUDA

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
        return exported(array, self._datatype, self._shape)

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
        if not is_capsule(tensor):
            if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
                raise TritonModelException(
                    "Provided tensor is not supported. Tensor must be a DLPack capsule or have `__dlpack__` and"
                    " `__dlpack_device__` attributes"
                )
            owner, tensor = tensor, tensor.__dlpack__()
        taken = imported(tensor)
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
    return join_bytes([item if type(item) is bytes else str(item).encode(errors="replace") for item in items])


def _of_gpu(capsule: Any) -> Any:
    """The tensor of a capsule on a GPU. PyTorch copies such tensors to the CPU."""
    import torch

    return torch.from_dlpack(capsule)
