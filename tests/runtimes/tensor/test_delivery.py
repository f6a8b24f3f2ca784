"""Outputs as classes, or in shared memory: what is refused before anything is computed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.errors import CallerError
from adapters.tensors import Inference, Parameter, RequestedOutput, Tensor, split_bytes
from runtimes.tensor.api import delivery
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec

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
