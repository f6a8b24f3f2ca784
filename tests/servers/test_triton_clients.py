"""The examples of Triton's client repository, unchanged, against models written for Triton in our runtime, and those
that can send a key through the gateway too."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.tensors.headrace import running_gateway
from loadtests.tensors.targets import Door, Target
from tests.servers import repositories
from tests.servers.headrace import Headrace, headrace
from tests.servers.triton_python import repository

pytestmark = pytest.mark.timeout(1800)
CLIENTS = Path(__file__).parent / "triton_clients"
SECONDS = 60
WORDS = ("input", "output")
ADD_SUB = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.response(request) for request in requests]

    def response(self, request):
        one, other = (pb_utils.get_input_tensor_by_name(request, f"INPUT{i}").as_numpy() for i in (0, 1))
        outputs = self.calculated(one, other)
        return pb_utils.InferenceResponse([pb_utils.Tensor(f"OUTPUT{i}", array) for i, array in enumerate(outputs)])

    def calculated(self, one, other):
        if one.dtype != object:
            return one + other, one - other
        results = self.calculated(one.astype(np.int32), other.astype(np.int32))
        return [array.astype(str).astype(object) for array in results]
"""
IDENTITY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", request.inputs()[0].as_numpy())])
                for request in requests]
"""
SEQUENCE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.response(request) for request in requests]

    def response(self, request):
        first = request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
        array = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() + first
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", array.astype("int32"))])
"""


def tensors(kind: str, names: list[str], datatype: str, length: int) -> str:
    each = [f'{kind} {{ name: "{name}" data_type: {datatype} dims: [ {length} ] }}' for name in names]
    return "\n".join([*each, ""])


def add_sub(datatype: str) -> str:
    both = tensors("input", ["INPUT0", "INPUT1"], datatype, 16) + tensors(
        "output", ["OUTPUT0", "OUTPUT1"], datatype, 16
    )
    return f'backend: "python"\nmax_batch_size: 8\n{both}'


MODELS = {
    "simple": (ADD_SUB, add_sub("TYPE_INT32")),
    "simple_int8": (ADD_SUB, add_sub("TYPE_INT8")),
    "simple_string": (ADD_SUB, add_sub("TYPE_STRING")),
    "simple_identity": (
        IDENTITY,
        'backend: "python"\nmax_batch_size: 8\n'
        + tensors("input", ["INPUT0"], "TYPE_STRING", -1) + tensors("output", ["OUTPUT0"], "TYPE_STRING", -1),
    ),
    "simple_sequence": (
        SEQUENCE,
        'backend: "python"\nmax_batch_size: 8\nsequence_batching { max_sequence_idle_microseconds: 5000000 }\n'
        + tensors("input", ["INPUT"], "TYPE_INT32", 1) + tensors("output", ["OUTPUT"], "TYPE_INT32", 1),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    folder = repository(tmp_path_factory.mktemp("models"), ["repeat_int32"])
    repositories.for_headrace(folder, ["add_sub"])  # the gateway's start is checked with it
    for name, (source, config) in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text(source)
        (folder / name / "config.pbtxt").write_text(config)
    with headrace(folder) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(server: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("gateway")
    doors = {"http": Door(server.ports.http, server.pid), "grpc": Door(server.ports.grpc, server.pid)}
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    with running_gateway("gateway", Target("headrace", doors, folder), cores, folder, ["add_sub", *MODELS]) as target:
        yield target


def run(script: Path, address: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(script), "-u", address, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("script", sorted(CLIENTS.glob("*.py")), ids=lambda script: script.stem)
def test_an_example_succeeds(server: Headrace, script: Path) -> None:
    done = run(script, server.grpc if "grpc" in script.stem else server.http)
    assert done.returncode == 0, f"{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


@pytest.mark.parametrize("name", ["simple_http_infer_client", "simple_http_aio_infer_client"])
def test_an_example_with_a_key_infers_through_the_gateway(gateway: Target, name: str) -> None:
    """Its last step requests a missing model without the key and expects Triton's own text."""
    address = f"127.0.0.1:{gateway.doors['http'].port}"
    done = run(CLIENTS / f"{name}.py", address, "-H", f"Authorization:Bearer {gateway.keys['http']}")
    assert done.stdout.count("15 - -1 = 16") >= 2, done.stderr
    assert done.stdout.rstrip().endswith("improper error message for wrong model name")
