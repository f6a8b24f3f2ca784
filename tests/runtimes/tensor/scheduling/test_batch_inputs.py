"""Ragged requests in one batch: the inputs that describe it, and outputs that are cut by the requests' shapes."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration import model_yaml, triton
from runtimes.tensor.configuration.model_config import (
    BatchInput,
    BatchOutput,
    DynamicBatching,
    ModelConfig,
    TensorSpec,
    Warmup,
    WarmupInput,
)
from runtimes.tensor.models.warmup import warm_up
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling.batch_inputs import BatchInputs, BatchOutputs
from tests.runtimes.tensor.instances.support import running, write

pytestmark = pytest.mark.plain
KINDS: dict[str, Any] = {
    "element_count": [2, 2, 1],
    "accumulated_element_count": [2, 4, 5],
    "accumulated_element_count_with_zero": [0, 2, 4, 5],
    "max_element_count_as_shape": [0, 0],
    "item_shape": [[1], [1], [2], [1]],
    "item_shape_flatten": [1, 1, 2, 1],
}


def config(kind: Any = "accumulated_element_count", **more: Any) -> ModelConfig:
    return ModelConfig(
        "model",
        "python",
        (TensorSpec("x", "FP32", (-1,), allow_ragged_batch=True),),
        (TensorSpec("sum", "FP32", (1,)), TensorSpec("twice", "FP32", (-1,))),
        8,
        batch_inputs=(BatchInput(kind, ("index",), "INT32", ("x",)),),
        batch_outputs=(BatchOutput(("twice",), ("x",)),),
        **more,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_describes_the_batch(kind: str) -> None:
    shapes = [(2, 1), (1, 2), (1, 1)]
    members = [{"x": np.zeros(2, np.float32)}, {"x": np.zeros(2, np.float32)}, {"x": np.zeros(1, np.float32)}]
    made = BatchInputs(config(kind)).added(members, [{"x": shape} for shape in shapes])
    joined = np.concatenate([member["index"] for member in made])
    assert joined.dtype == np.int32
    assert joined.shape == np.array(KINDS[kind]).shape
    if kind != "max_element_count_as_shape":  # its values mean nothing
        assert joined.tolist() == KINDS[kind]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=6))
def test_a_scattered_output_returns_to_its_requests(shapes: list[tuple[int, int]]) -> None:
    outputs = BatchOutputs(config())
    total = sum(rows * length for rows, length in shapes)
    parts = outputs.scattered("twice", np.arange(total), [{"x": shape} for shape in shapes])
    assert [part.shape for part in parts] == shapes
    assert np.concatenate([part.reshape(-1) for part in parts]).tolist() == list(range(total))
    with pytest.raises(ValueError, match="another number"):
        outputs.scattered("twice", np.arange(total + 1), [{"x": shape} for shape in shapes])


MODEL = """
import numpy as np
class Model:
    def infer(self, inputs):
        x, ends = inputs["x"], inputs["index"]
        assert x.ndim == 1 and ends[-1] == x.size
        starts = [0, *ends[:-1]]
        sums = [[x[start:end].sum()] for start, end in zip(starts, ends)]
        return {"sum": np.array(sums, np.float32), "twice": x * 2}
"""


YAML = """
backend: python
max_batch_size: 8
inputs: [{name: x, datatype: FP32, dims: [-1], ragged: true}]
outputs: [{name: twice, datatype: FP32, dims: [-1]}]
batch_inputs: [{kind: item_shape, target_name: [index], datatype: INT32, source_input: [x]}]
batch_outputs: [{target_name: [twice], source_input: [x]}]
"""


def test_both_files_have_them(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(YAML)
    read = model_yaml.read(tmp_path / "model.yaml", "model")[0]
    assert read.batch_inputs == (BatchInput("item_shape", ("index",), "INT32", ("x",)),)
    message = triton.to_message(read)
    assert [made.kind for made in message.batch_input] == [4]
    again, warnings = triton.from_message(message, "model")
    assert (again.batch_inputs, again.batch_outputs, warnings) == (read.batch_inputs, read.batch_outputs, [])


def request(*values: float) -> Inference:
    array = np.array([values], np.float32)
    return Inference("model", inputs=[Tensor("x", "FP32", array.shape, array.tobytes())])


@pytest.mark.processes
async def test_requests_of_different_lengths_share_an_execution(tmp_path: Path) -> None:
    warmup = Warmup("first", 1, inputs=(WarmupInput("x", "FP32", (3,), "random"),))
    model = config(dynamic_batching=DynamicBatching(), warmup=(warmup,))
    async with running(model, write(tmp_path / "1", MODEL)) as instance:
        await warm_up(model, instance, tmp_path)
        scheduler = make_scheduler(model, [instance])
        requests = [(1, 2, 3), (4,), (5, 6, 7, 8)]
        futures = [scheduler.infer(request(*values)) for values in requests]
        results = await asyncio.gather(*futures)
        for values, (total, twice) in zip(requests, results, strict=True):
            assert np.frombuffer(total.data, np.float32).tolist() == [sum(values)]
            assert twice.shape == (1, len(values))
            assert np.frombuffer(twice.data, np.float32).tolist() == [2 * value for value in values]
        assert len({id(future.execution) for future in futures}) == 1  # type: ignore[attr-defined]
        with pytest.raises(CallerError):
            scheduler.infer(Inference("model"))
        await scheduler.aclose()
