"""Large inputs of each kind of model: no turn of the event loop copies a large input, for any configuration of the
model."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from adapters.tensors import Inference, Tensor
from runtimes.tensor.api.service import InferenceService
from tests.support.process_ensembles import serving
from tests.support.turns import Turns, most_seconds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
MiB = 1 << 20
TENSORS = "inputs: [{name: IN, datatype: %s, dims: [-1]}]\noutputs: [{name: OUT, datatype: %s, dims: [-1]}]\n"
BATCHED = "backend: python\nmax_batch_size: 4\n"
PADDED = "dynamic_batching: {pad_to: {IN: [1000, 5000000]}}\n"
FILLED = "dynamic_batching: {pad_to: {IN: [1000, 5000000]}, allowed_batch_sizes: [4]}\n"
TEXTS_PADDED = "dynamic_batching: {pad_to: {IN: [1000, 300000, 1000000]}}\n"
THREAD = "instances: [{placement: thread}]\n"
FLOATS = TENSORS % ("FP32", "FP32")
ECHO = """
class Model:
    def infer(self, inputs):
        return {"OUT": inputs["IN"]}
"""
TWICE = """
class Model:
    def infer(self, inputs):
        for _ in range(2):
            yield {"OUT": inputs["IN"]}
"""
WHOLE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in inputs]
"""
CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            inputs = [pb_utils.get_input_tensor_by_name(request, "IN")]
            call = pb_utils.InferenceRequest(model_name="process", requested_output_names=["OUT"], inputs=inputs)
            responses.append(pb_utils.InferenceResponse(call.exec().output_tensors()))
        return responses
"""
STEPS = """
max_batch_size: 4
ensemble:
  steps:
    - {model: process, inputs: {IN: IN}, outputs: {OUT: middle}}
    - {model: thread, inputs: {IN: middle}, outputs: {OUT: OUT}}
"""
SEQUENCES = BATCHED + "sequence_batching: {}\n"
MODELS = {
    "process": (ECHO, BATCHED + PADDED + FLOATS),
    "thread": (ECHO, BATCHED + PADDED + THREAD + FLOATS),
    "filled": (ECHO, BATCHED + FILLED + FLOATS),
    "cached": (ECHO, BATCHED + PADDED + FLOATS + "cache: {ttl: 60s}\n"),
    "streamed by a process": (TWICE, BATCHED + PADDED + FLOATS + "decoupled: true\n"),
    "streamed by a thread": (TWICE, BATCHED + PADDED + THREAD + FLOATS + "decoupled: true\n"),
    "whole": (WHOLE, BATCHED + PADDED + FLOATS),
    "caller": (CALLER, BATCHED + PADDED + FLOATS),
    "ensemble": ("", STEPS + FLOATS),
    "sequence": (ECHO, SEQUENCES + FLOATS),
    "flags": (ECHO, BATCHED + PADDED + TENSORS % ("BOOL", "BOOL")),
    "flags on a thread": (ECHO, BATCHED + PADDED + THREAD + TENSORS % ("BOOL", "BOOL")),
    "texts": (ECHO, BATCHED + TEXTS_PADDED + TENSORS % ("BYTES", "BYTES")),
    "texts without batches": (ECHO, "backend: python\n" + TEXTS_PADDED + TENSORS % ("BYTES", "BYTES")),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, (source, config) in MODELS.items():
        folder = root / name.replace(" ", "_") / "1"
        folder.mkdir(parents=True)
        (folder.parent / "model.yaml").write_text(config)
        if source:
            (folder / "model.py").write_text(textwrap.dedent(source))
    return root


@contextlib.asynccontextmanager
async def served(repository: Path, model: str) -> AsyncIterator[InferenceService]:
    """The service of one model, and of those that it calls."""
    async with serving(repository, cache=64 * MiB) as server:
        await server.load(*(("process", model) if model == "caller" else (model,)))
        yield server.service


async def responses(service: InferenceService, inference: Inference) -> list[list[Tensor]]:
    async with contextlib.aclosing(service.stream(inference)) as stream:
        return [computed.outputs async for computed in stream]


def request(model: str, rows: int, size: int) -> Inference:
    """About so many bytes, at an odd place of their buffer, as in the body of a request."""
    name = model.replace(" ", "_")
    if model.startswith("texts"):
        length = size // 5 // rows
        return Inference(
            name, inputs=[Tensor("IN", "BYTES", _shape(model, rows, length), b"\1\0\0\0x" * rows * length)]
        )
    datatype, item = ("BOOL", 1) if model.startswith("flags") else ("FP32", 4)
    length = size // item // rows
    values = memoryview(b"x" + np.arange(rows * length, dtype="<f4").tobytes())[1:]
    if datatype == "BOOL":
        values = memoryview(b"\1\0\1" * rows * length)[1 : 1 + rows * length]
    parameters = {"sequence_id": 1, "sequence_start": True, "sequence_end": True} if model == "sequence" else {}
    return Inference(name, parameters=parameters, inputs=[Tensor("IN", datatype, _shape(model, rows, length), values)])


def _shape(model: str, rows: int, length: int) -> tuple[int, ...]:
    return (rows * length,) if model == "texts without batches" else (rows, length)


SHORT = frozenset({"process", "thread", "ensemble"})
"""Models that receive two mebibytes too; the others differ in what they do with many."""
CASES = [
    *[(model, 3, 40) for model in MODELS if not model.startswith(("texts", "sequence"))],
    *[(model, 3, 2) for model in MODELS if model in SHORT],
    *[("sequence", 1, size) for size in (2, 60)],
    *[(model, 3, size) for model in MODELS if model.startswith("texts") for size in (1, 4)],
    # More rows than a batch has: the response is joined of parts.
    *[(model, 6, 40) for model in ("process", "thread", "cached", "filled")],
    ("texts", 6, 4),
]


@pytest.mark.parametrize(("model", "rows", "size"), CASES, ids=[f"{m}, {r} rows, {s} MiB" for m, r, s in CASES])
async def test_no_turn_copies_a_large_input_or_output(repository: Path, model: str, rows: int, size: int) -> None:
    inference = request(model, rows, size * MiB)
    (tensor,) = inference.inputs
    expected = tensor.shape, bytes(tensor.data)
    async with served(repository, inference.model_name) as service:
        with Turns() as turns:
            got = await responses(service, inference)
    assert [[output.shape for output in outputs] for outputs in got] == [[tensor.shape]] * (1 + ("stream" in model))
    assert all((output.shape, bytes(output.data)) == expected for (output,) in got)
    assert turns.longest < most_seconds()
