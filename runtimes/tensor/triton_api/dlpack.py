"""DLPack capsules of tensors on the CPU, for all datatypes: numpy's own lack BF16."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, Final, NamedTuple

import numpy as np

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
_DATATYPES: Final = {code: name for name, code in _TYPES.items()}


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
    datatype = _DATATYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
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
