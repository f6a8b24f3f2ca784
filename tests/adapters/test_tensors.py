"""BYTES elements, joined and taken apart; outputs by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.tensors import (
    Inference,
    RequestedOutput,
    Tensor,
    byte_size,
    element_count,
    join_bytes,
    requested_outputs,
    split_bytes,
)


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_joined_elements_come_apart_again(elements: list[bytes]) -> None:
    assert split_bytes(join_bytes(elements), len(elements), "x") == elements


@given(st.binary(max_size=40), st.integers(0, 6))
def test_noise_is_elements_or_refused(data: bytes, count: int) -> None:
    try:
        elements = split_bytes(memoryview(data), count, "x")
    except CallerError as error:
        assert error.param == "x"  # noqa: PT017 - either way is right
    else:
        assert join_bytes(elements) == data
        assert len(elements) == count


@pytest.mark.parametrize(
    ("data", "count", "words"),
    [
        (b"\x03\x00\x00", 1, "within the length"),
        (b"\x05\x00\x00\x00abc", 1, "element of 5 bytes where 3 are left"),
        (b"\xff\xff\xff\xff", 1, "element of 4294967295 bytes"),
        (join_bytes([b"a"]), 2, "holds 1 elements, and its shape has 2"),
        (join_bytes([b"a", b"b", b"c"]), 2, "3 elements"),
        (b"\x00" * 400, 2, "more than 2"),
        (join_bytes([b"a"]), 0, "1 elements, and its shape has 0"),
    ],
)
def test_lengths_that_lie(data: bytes, count: int, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        split_bytes(data, count, "x")


def test_sizes() -> None:
    assert element_count((2, 0, 3)) == 0
    assert element_count(()) == 1
    assert byte_size("BF16", (2, 3)) == 12


@given(st.lists(st.sampled_from("abc"), unique=True), st.lists(st.sampled_from("abcd"), max_size=4))
def test_requested_outputs_come_in_the_order_of_the_request(names: list[str], requested: list[str]) -> None:
    outputs = [Tensor(name, "FP32", (0,), b"") for name in names]
    inference = Inference("m", outputs=[RequestedOutput(name) for name in requested])
    if set(requested) <= set(names):
        assert [tensor.name for tensor in requested_outputs(inference, outputs)] == (requested or names)
    else:
        with pytest.raises(CallerError, match="has no output") as refused:
            requested_outputs(inference, outputs)
        assert refused.value.param in requested
