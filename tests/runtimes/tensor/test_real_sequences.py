"""A model with a memory: many streams of sound through few copies of Silero's voice activity detector."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
import tritonclient.http.aio as triton

from runtimes.tensor.catalogue.repository import add
from tests.support.tensor_runtime import TensorRuntime

pytestmark = pytest.mark.processes
Array = npt.NDArray[Any]
STEP, RATE = 512, 16_000
STEPS = 20


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in ("silero-vad", "silero-vad-jit"):
        add(name, folder)
    return folder


def sound(seed: int) -> Array:
    """Two thirds of a second of something like a vowel, another one for each seed."""
    rng = np.random.default_rng(seed)
    time = np.arange(STEPS * STEP) / RATE
    pitch = 110 + 20 * seed
    voice = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 9)) * (1 + np.sin(2 * np.pi * 4 * time))
    noise = 0.01 * rng.standard_normal(time.size)
    return np.asarray(0.1 * voice + noise, np.float32).reshape(-1, 1, STEP)


def spoken(repository: Path, steps: Array) -> list[float]:
    """The model's outputs for one stream, without a server."""
    path = repository / "silero-vad" / "1" / "silero_vad.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    state, context, actual = np.zeros((2, 1, 128), np.float32), np.zeros((1, 64), np.float32), []
    for step in steps:
        given = np.concatenate([context, step], axis=1)
        speech, state = session.run(None, {"input": given, "state": state, "sr": np.array(RATE)})
        context = given[:, -64:]
        actual.append(float(speech[0, 0]))
    return actual


async def follow(client: Any, model: str, stream: int | str, steps: Array) -> list[float]:
    answers = []
    for i, step in enumerate(steps):
        audio = triton.InferInput("audio", list(step.shape), "FP32")
        audio.set_data_from_numpy(step)
        at = {"sequence_id": stream, "sequence_start": i == 0, "sequence_end": i == len(steps) - 1}
        answers.append(float((await client.infer(model, [audio], **at)).as_numpy("speech")[0, 0]))
    return answers


async def counts(client: Any, model: str) -> tuple[int, int]:
    """Rows and executions so far."""
    reported = (await client.get_inference_statistics(model))["model_stats"][0]
    return int(reported["inference_count"]), int(reported["execution_count"])


async def answers_of_streams(
    runtime: TensorRuntime, model: str, streams: dict[int | str, Array]
) -> tuple[list[list[float]], int]:
    """The answers of all streams at once, and the number of executions."""
    client = triton.InferenceServerClient(runtime.http, conn_limit=32)
    try:
        async with asyncio.timeout(300):
            rows, executions = await counts(client, model)
            answers = await asyncio.gather(*[follow(client, model, name, steps) for name, steps in streams.items()])
            rows_after, executions_after = await counts(client, model)
    finally:
        await client.close()
    assert rows_after - rows == len(streams) * STEPS
    return answers, executions_after - executions


async def test_many_streams_share_batches(runtime: TensorRuntime, repository: Path) -> None:
    """The model's memory of each stream is a tensor, which the runtime keeps."""
    streams: dict[int | str, Array] = {seed + 1: sound(seed) for seed in range(16)}
    answers, executions = await answers_of_streams(runtime, "silero-vad", streams)
    for actual, steps in zip(answers, streams.values(), strict=True):
        np.testing.assert_allclose(actual, spoken(repository, steps), atol=1e-4)
    assert executions < 16 * STEPS


async def test_memory_inside_of_a_copy_is_one_streams(runtime: TensorRuntime, repository: Path) -> None:
    """Two copies, four streams: two of them wait until the others have ended."""
    streams: dict[int | str, Array] = {f"stream {seed}": sound(seed) for seed in range(4)}
    answers, executions = await answers_of_streams(runtime, "silero-vad-jit", streams)
    for actual, steps in zip(answers, streams.values(), strict=True):
        np.testing.assert_allclose(actual, spoken(repository, steps), atol=1e-4)
    assert executions == 4 * STEPS
