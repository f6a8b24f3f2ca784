"""Tensors of Triton's Python API: numpy, BYTES and DLPack share their bytes."""

import gc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.triton_api import backend_utils, tensors
from runtimes.tensor.triton_api.errors import TritonModelException
from runtimes.tensor.triton_api.tensors import BackendTensor

NUMBERS = [dtype for name, dtype in DTYPES.items() if name not in ("BF16", "BYTES")]
TORCH = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
         torch.float64, torch.bfloat16]  # fmt: skip


@given(st.sampled_from(NUMBERS).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0))))
def test_a_tensor_returns_its_bytes(array: np.ndarray) -> None:
    tensor = BackendTensor("x", array)
    copy = BackendTensor.received("x", tensor.datatype, tensor.dims, bytes(tensor.data()))
    assert copy.as_numpy().tobytes() == np.ascontiguousarray(array).tobytes()
    assert copy.as_numpy().shape == array.shape
    assert copy.triton_dtype() == backend_utils.numpy_to_triton_type(array.dtype.type)
    taken = BackendTensor.from_dlpack("y", tensor)
    assert (bytes(taken.data()), taken.dims) == (bytes(tensor.data()), array.shape)


@given(st.lists(st.one_of(st.binary(), st.text()), max_size=8))
def test_texts_return_their_bytes(items: list[bytes | str]) -> None:
    array = np.empty(len(items), object)
    array[:] = items
    tensor = BackendTensor.received("x", "BYTES", (len(items),), BackendTensor("x", array).data())
    expected = [item.encode() if isinstance(item, str) else item for item in items]
    assert tensor.as_numpy().tolist() == expected
    assert backend_utils.deserialize_bytes_tensor(bytes(tensor.data())).tolist() == expected


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_pytorch_shares_the_memory(dtype: torch.dtype) -> None:
    source = torch.ones([3, 5], dtype=dtype)
    for offered in (source, torch.utils.dlpack.to_dlpack(source)):
        tensor = BackendTensor.from_dlpack("x", offered)
        back = torch.from_dlpack(tensor)
        assert torch.equal(back, source)
        assert back.data_ptr() == source.data_ptr()
        assert len(tensor.data()) == source.nbytes
        assert tensor.is_cpu()
        assert tensor.__dlpack_device__() == (1, 0)


def test_memory_lives_as_long_as_a_user_of_it() -> None:
    before = len(tensors._exported)
    shared = torch.from_dlpack(BackendTensor("x", np.arange(4, dtype=np.float32)))
    gc.collect()
    assert shared.tolist() == [0, 1, 2, 3]
    capsule = BackendTensor("x", np.zeros(1, np.float32)).to_dlpack()
    assert len(tensors._exported) == before + 2
    del shared, capsule
    gc.collect()
    assert len(tensors._exported) == before


def test_values_that_cannot_be_tensors_are_refused() -> None:
    with pytest.raises(TritonModelException, match="is not contiguous"):
        BackendTensor.from_dlpack("x", torch.rand(3, 4).T)
    with pytest.raises(TritonModelException, match="does not have support for string tensors"):
        BackendTensor("x", np.array(["a"], object)).to_dlpack()
    with pytest.raises(TritonModelException, match="BF16 and cannot be converted to NumPy"):
        BackendTensor.from_dlpack("x", torch.ones(2, dtype=torch.bfloat16)).as_numpy()
    with pytest.raises(TritonModelException, match="NumPy dtype is not supported"):
        BackendTensor("x", np.ones(2, np.complex64))
    with pytest.raises(TritonModelException, match="empty string"):
        BackendTensor("", np.ones(2, np.float32))
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(2))
    BackendTensor.from_dlpack("x", capsule)
    with pytest.raises(TritonModelException, match="used before"):
        BackendTensor.from_dlpack("x", capsule)
