"""Outputs as classes, or in shared memory: what is refused before anything is computed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adapters.errors import CallerError
from adapters.tensors import Inference, Parameter, RequestedOutput, Tensor, split_bytes
from runtimes.tensor.api import delivery
from runtimes.tensor.api.delivery import classify, requested_classes
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import datatype_of, fp32_to_bf16

pytestmark = pytest.mark.plain
CONFIG = ModelConfig("m", "onnx", outputs=(TensorSpec("OUT", "FP32", (2,), labels=("cat", "dog")),), max_batch_size=4)
OUTPUTS = [Tensor("OUT", "FP32", (1, 2), b"\0\0\x80\x3f\0\0\0\x40"), Tensor("REST", "UINT8", (1, 1), b"\x07")]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[SharedMemory]:
    (tmp_path / "out").write_bytes(bytes(64))
    memory = SharedMemory(["out"], tmp_path)
    memory.register("r", "out", 0, 64)
    yield memory
    memory.unregister()


def inference_with(**parameters: Parameter) -> Inference:
    return Inference("m", outputs=[RequestedOutput("OUT", parameters), RequestedOutput("REST")])


def test_most_requests_need_no_special_delivery() -> None:
    assert not delivery.is_special(Inference("m"))
    assert not delivery.is_special(inference_with(binary_data=True))
    assert delivery.is_special(inference_with(classification=2))
    assert delivery.is_special(inference_with(shared_memory_region="r"))


async def test_classes_have_the_labels_of_the_model(memory: SharedMemory) -> None:
    first, rest = await delivery.delivered(OUTPUTS, inference_with(classification=2), CONFIG, memory)
    assert split_bytes(first.data, 2, "OUT") == [b"2.000000:1:dog", b"1.000000:0:cat"]
    assert rest is OUTPUTS[1]


async def test_an_output_goes_into_memory(memory: SharedMemory, tmp_path: Path) -> None:
    sent = inference_with(shared_memory_region="r", shared_memory_byte_size=8)
    delivery.check(sent, memory)
    first, _ = await delivery.delivered(OUTPUTS, sent, CONFIG, memory)
    assert first.data == b""
    assert (tmp_path / "out").read_bytes()[:8] == OUTPUTS[0].data


@pytest.mark.parametrize(
    "parameters",
    [
        {"classification": "two"},
        {"classification": 1, "shared_memory_region": "r", "shared_memory_byte_size": 8},
        {"shared_memory_region": "nobody", "shared_memory_byte_size": 8},
        {"shared_memory_region": "r"},
        {"shared_memory_region": "r", "shared_memory_byte_size": 65},
    ],
)
def test_impossible_parameters_are_refused_at_once(memory: SharedMemory, parameters: dict[str, Parameter]) -> None:
    with pytest.raises(CallerError):
        delivery.check(inference_with(**parameters), memory)


def reported(values: object, count: int, *labels: str, batched: bool = True) -> tuple[list[str], tuple[int, ...]]:
    array = np.array(values)
    made = classify(
        Tensor("OUT", datatype_of(array.dtype), array.shape, array.tobytes()), count, labels, batched=batched
    )
    elements = split_bytes(made.data, int(np.prod(made.shape)), "OUT")
    assert made.datatype == "BYTES"
    return [element.decode() for element in elements], made.shape


def test_each_row_has_its_own() -> None:
    assert reported(np.array([[1, 3, 2], [9, 7, 8]], np.int32), 2) == (["3:1", "2:2", "9:0", "8:2"], (2, 2))


def test_labels_follow_where_there_are_any() -> None:
    assert reported(np.array([[1.5, 3]], np.float32), 2, "cat") == (["3.000000:1", "1.500000:0:cat"], (1, 2))


def test_no_more_than_there_are() -> None:
    assert reported(np.array([[1, 2]], np.int64), 9) == (["2:1", "1:0"], (1, 2))


def test_without_a_batch_all_is_one_row() -> None:
    assert reported(np.array([[1, 2], [4, 3]], np.uint8), 1, batched=False) == (["4:2"], (1,))


def test_of_equal_values_the_first_is_first() -> None:
    assert reported(np.array([[5, 7, 7, 7]], np.int32), 2)[0] == ["7:1", "7:2"]


def test_nan_is_last() -> None:
    assert reported(np.array([[np.nan, -np.inf, 1]], np.float64), 1)[0] == ["1.000000:2"]


def test_large_integers_are_exact() -> None:
    assert reported(np.array([[2**64 - 2, 2**64 - 1]], np.uint64), 1)[0] == [f"{2**64 - 1}:1"]


def test_bf16() -> None:
    halves = fp32_to_bf16(np.array([[1.5, 3.0]], np.float32))
    made = classify(Tensor("OUT", "BF16", (1, 2), halves.tobytes()), 1, (), batched=True)
    assert split_bytes(made.data, 1, "OUT") == [b"3.000000:1"]


def test_text_has_no_highest() -> None:
    with pytest.raises(CallerError, match="is text"):
        classify(Tensor("OUT", "BYTES", (1, 1), b"\0\0\0\0"), 1, (), batched=True)


@pytest.mark.parametrize("count", ["2", -1, True, 1.5])
def test_a_count_that_is_none(count: object) -> None:
    with pytest.raises(CallerError, match="number of classes"):
        requested_classes({"classification": count}, "OUT")  # type: ignore[dict-item]
