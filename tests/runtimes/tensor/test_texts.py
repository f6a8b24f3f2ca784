"""Large BYTES tensors in binary form are divided and joined as arrays of objects are."""

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.offload import LARGE
from adapters.tensors import Inference, Tensor, join_bytes, row_ends, split_bytes
from runtimes.tensor import text_index, texts
from runtimes.tensor.instances import frames
from runtimes.tensor.texts import as_array, expanded, is_texts, joined, packed
from tests.runtimes.tensor.scheduling.instances import crossed

pytestmark = pytest.mark.plain
ELEMENTS = st.binary(max_size=6)


@st.composite
def arrays(draw: st.DrawFn, rows: int | None = None) -> Any:
    count = draw(st.integers(1, 6)) if rows is None else rows
    shape = (count, *draw(st.lists(st.integers(1, 3), max_size=2)))
    array = np.empty(prod(shape), object)
    array[:] = draw(st.lists(ELEMENTS, min_size=prod(shape), max_size=prod(shape)))
    return array.reshape(shape)


@given(arrays())
def test_an_array_is_the_same_after_it_was_packed(array: Any) -> None:
    assert packed(array).array().tolist() == array.tolist()


@given(st.lists(st.sampled_from([b"", b"a", b"b" * 9, b"c" * 40]), min_size=1, max_size=60), st.integers(1, 100))
def test_texts_that_are_packed_in_steps_are_the_joined_ones(elements: list[bytes], step: int) -> None:
    array = np.empty(len(elements), object)
    array[:] = elements
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "STEP", step)
        assert packed(array).data == join_bytes(elements)


@given(arrays(), st.integers(0, 6), st.integers(0, 6))
def test_rows_are_those_of_the_array(array: Any, start: int, stop: int) -> None:
    texts = packed(array)[start:stop]
    assert texts.shape == array[start:stop].shape
    assert texts.array().tolist() == array[start:stop].tolist()
    assert texts.copy()[:1].array().tolist() == array[start:stop][:1].tolist()


@given(arrays(), st.data())
def test_the_index_has_the_ends_of_rows_or_refuses_like_the_reader(array: Any, data: st.DataObject) -> None:
    wire = join_bytes(array.reshape(-1).tolist())
    broken = data.draw(st.sampled_from([wire, wire[:-1], wire + b"\0", wire + b"\0\0\0\0"]))
    if broken == wire:
        ends = packed(array).ends
        assert ends is not None
        assert row_ends(broken, array.size, len(array), "x").tolist() == ends.tolist()
        return
    with pytest.raises(CallerError) as first:
        split_bytes(broken, array.size, "x")
    with pytest.raises(CallerError) as second:
        row_ends(broken, array.size, len(array), "x")
    assert first.value.message == second.value.message


@given(st.lists(arrays(), min_size=1, max_size=3), st.booleans())
def test_a_batch_crosses_to_a_process_and_back(members: list[Any], answered: bool) -> None:
    tail = members[0].shape[1:]
    same = [array for array in members if array.shape[1:] == tail]
    batch = [{"x": as_array(packed(array)) if at % 2 == 0 else array} for at, array in enumerate(same)]
    got = expanded(crossed(batch, frames.OUTPUTS if answered else frames.INFER)["x"])
    assert got.tolist() == np.concatenate(same).tolist()
    assert joined([member["x"] for member in batch]).tolist() == got.tolist()


@pytest.mark.parametrize("width", [1, 3])
def test_a_large_answer_of_a_model_comes_in_binary_form(width: int) -> None:
    array = np.array([[b"x" * (1 + at % 3)] * width for at in range(60_000)], object)
    got = crossed([{"x": array}], frames.OUTPUTS)["x"]
    assert is_texts(got)
    assert got[1000:1003].array().tolist() == array[1000:1003].tolist()


@pytest.mark.processes
async def test_only_large_inputs_are_indexed() -> None:
    small = Tensor("small", "BYTES", (1, 1), join_bytes([b"x"]))
    large = Tensor("large", "BYTES", (LARGE // 5 + 1, 1), join_bytes([b"x"] * (LARGE // 5 + 1)))
    inference = Inference("m", inputs=[small, large])
    await text_index.index(inference)
    assert inference.inputs[0] is small
    indexed = inference.inputs[1]
    assert isinstance(indexed, text_index.IndexedTensor)
    assert indexed.ends is not None
    assert indexed.ends.tolist() == list(range(5, len(large.data) + 1, 5))
