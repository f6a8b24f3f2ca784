"""SavedModels on a real TensorFlow, which lies in an environment of its own and is run from there."""

import dataclasses
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtests.venvs import InstallError, ensure
from runtimes.tensor.catalogue.repository import add
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.configuration.reading import read_model
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.wheels import ModelUnavailable
from tests.runtimes.tensor.instances.support import floats, outputs, running
from tests.support.absent import absent

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]  # the first run installs it

SAVE = """
import sys
import tensorflow as tf

class Net(tf.Module):
    def __init__(self):
        self.scale = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def scaled(self, x):
        return {"y": self.scale * x, "sum": tf.reduce_sum(x, axis=1, keepdims=True)}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string, name="text")])
    def shouted(self, text):
        return {"loud": tf.strings.join([text, "!"])}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.bfloat16, name="x")])
    def halved(self, x):
        return {"y": x / 2}

net = Net()
signatures = {"serving_default": net.scaled, "shout": net.shouted, "halve": net.halved}
tf.saved_model.save(net, sys.argv[1], signatures=signatures)
"""


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter of an environment that has TensorFlow."""
    try:
        return str(ensure("tensorflow", ["tensorflow-cpu==2.21.0", "msgspec==0.22.0"]) / "bin/python")
    except InstallError as error:
        absent(f"a real TensorFlow: {error}")


@pytest.fixture(scope="session")
def saved(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [python, "-c", SAVE, str(folder / "model.savedmodel")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def config(python: str) -> Callable[..., ModelConfig]:
    def make(signature: str = "serving_default", **more: Any) -> ModelConfig:
        parameters = {"interpreter": python, "signature": signature}
        return ModelConfig("model", "tensorflow", max_batch_size=8 if more else 0, parameters=parameters, **more)

    return make


async def test_a_signature_declares_its_tensors_and_answers(saved: Path, config: Any) -> None:
    completed = await placement.complete(config(), saved)
    assert completed.inputs == (TensorSpec("x", "FP32", (2,)),)
    assert completed.outputs == (TensorSpec("sum", "FP32", (1,)), TensorSpec("y", "FP32", (2,)))
    assert completed.max_batch_size == 8
    assert completed.dynamic_batching == DynamicBatching()
    async with running(completed, saved) as instance:
        got = await outputs(instance, {"x": floats([1, 2])}, {"x": floats([3, 4], [5, 6])})
        assert got["y"].tolist() == [[3, 6], [9, 12], [15, 18]]
        assert got["sum"].tolist() == [[3], [7], [11]]


@pytest.mark.parametrize(
    ("signature", "spec", "out", "given", "expected"),
    [
        ("shout", ("text", "BYTES", (1,)), "loud", [[b"ho"], [b"\xff"]], [[b"ho!"], [b"\xff!"]]),
        ("halve", ("x", "BF16", (2,)), "y", [[0x4000, 0x3F80]], [[0x3F80, 0x3F00]]),
    ],
)
async def test_texts_and_bf16_of_other_signatures(
    saved: Path, config: Any, signature: str, spec: Any, out: str, given: Any, expected: Any
) -> None:
    written = config(signature=signature, inputs=(TensorSpec(*spec),), outputs=(TensorSpec(out, *spec[1:]),))
    async with running(written, saved) as instance:
        got = await outputs(instance, {spec[0]: np.array(given, dtype=DTYPES[spec[1]])})
        assert got[out].tolist() == expected


async def test_a_signature_that_is_not_there_and_a_file_that_is_not(saved: Path, config: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no signature `sing`: it has halve, serving_default, shout"):
        await placement.complete(config(signature="sing"), saved)
    with pytest.raises(ModelLoadError, match=r"there is no model\.savedmodel or saved_model\.pb"):
        await placement.complete(config(), tmp_path)


async def test_two_frameworks_detect_the_same_notes(python: str, tmp_path: Path) -> None:
    """Basic Pitch as SavedModel and as ONNX, which has the same outputs in the same order."""
    answers = []
    for name in ("basic-pitch-tf", "basic-pitch"):
        try:
            folder = add(name, tmp_path)
        except ModelUnavailable as error:
            absent(error)
        config = read_model(folder, name, [folder / "1"]).config
        if config.backend == "tensorflow":
            config = dataclasses.replace(config, parameters={**config.parameters, "interpreter": python})
        config = await placement.complete(config, folder / "1")
        sound = np.random.default_rng(5).normal(scale=0.1, size=(1, *config.inputs[0].dims)).astype(np.float32)
        async with running(config, folder / "1") as instance:
            got = await outputs(instance, {config.inputs[0].name: sound})
        answers.append(sorted((array for array in got.values()), key=lambda one: (one.shape, float(one.sum()))))
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)
