"""Folders of TensorFlow Serving: its list of models, and the requests that warm a model up."""

import asyncio
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from loadtests.peers.tfserving import ENVIRONMENT
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.loading import read_source
from runtimes.tensor.models.repository import Repository
from tests.runtimes.tensor.loaded import answers, end, load_listed
from tests.servers.tfserving import config_of, python, small

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]  # the first run installs TensorFlow

RECORDS = """
import sys
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2 as logs

def predict(signature, **tensors):
    log = logs.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    for name, value in tensors.items():
        log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return log

def example(kind, signature):
    log = logs.PredictionLog()
    request = getattr(log, kind).request
    request.model_spec.signature_name = signature
    for name in "ab":
        request.input.example_list.examples.add().features.feature["a"].float_list.value.append(1.0)
        request.input.example_list.examples[-1].features.feature["b"].float_list.value.append(2.0)
    return log

other = logs.PredictionLog()
other.multi_inference_log.request.tasks.add()
kinds = {
    "good": [
        predict("", x=[[1.0, 2.0]]), predict("shout", text=[b"ho"], times=[2]),
        example("classify_log", "classify"), example("regress_log", "regress"), other,
    ],
    "wrong": [predict("", x=[[1.0, 2.0]]), predict("", x=[[1.0, 2.0, 3.0]])],
    "unsigned": [predict("sing", x=[[1.0, 2.0]])],
    "many": [predict("", x=[[1.0, 2.0]])] * 1001,
}
with tf.io.TFRecordWriter(sys.argv[1]) as writer:
    for log in kinds[sys.argv[2]]:
        writer.write(log.SerializeToString())
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one model of two versions."""
    base = small(tmp_path / "half")
    (base / "model.yaml").write_text(f"parameters: {{interpreter: {python()}}}\n")
    listed = config_of("half", base, old=1, new=2)
    (tmp_path / "models.config").write_text(f"model_config_list {{ {listed} }}")
    return tmp_path


def warmed(root: Path, kind: str) -> None:
    """The second version with recorded requests."""
    extra = root / "half" / "2" / "assets.extra"
    extra.mkdir(exist_ok=True)
    command = [python(), "-c", RECORDS, str(extra / "tf_serving_warmup_requests"), kind]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


async def test_every_version_of_the_list_answers(root: Path) -> None:
    source = await read_source(Repository(root), "half", None)
    assert (source.config.version_policy.kind, source.config.version_labels) == ("all", {"old": 1, "new": 2})
    for version, scale in ((1, 3.0), (2, 5.0)):
        served = await load_listed(root, "half", version)
        (got,) = await answers(served, [{"x": np.array([[1.0, 2.0]], np.float32)}])
        await end(served)
        assert got["y"].tolist() == [[scale, 2 * scale]]


async def test_recorded_requests_are_run_before_a_model_is_ready(root: Path) -> None:
    await asyncio.to_thread(warmed, root, "good")
    await end(await load_listed(root, "half", 2))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("wrong", "record 2 of .* failed"),
        ("unsigned", "record 1 of .* the signature `sing`"),
        ("many", "has more than 1000 records"),
        ("damaged", "is damaged"),
        ("noise", "is damaged"),
    ],
)
async def test_a_recorded_request_that_fails(kind: str, reason: str, root: Path) -> None:
    made = {"damaged": "good", "noise": "good"}.get(kind, kind)
    await asyncio.to_thread(warmed, root, made)
    path = root / "half/2/assets.extra/tf_serving_warmup_requests"
    if kind == "damaged":
        path.write_bytes(path.read_bytes()[:-3])
    elif kind == "noise":
        path.write_bytes(b"no record at all" * 9)
    with pytest.raises(ModelLoadError, match=reason):
        await load_listed(root, "half", 2)
