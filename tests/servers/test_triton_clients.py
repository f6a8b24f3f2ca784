"""The examples of Triton's client repository, unchanged, against models written for Triton in our runtime, and those
that can send a key through the gateway too."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.tensors.targets import Target
from tests.servers import repositories
from tests.servers.gateways import address, in_front
from tests.servers.headrace import Headrace, headrace
from tests.servers.triton_python import repository

CLIENTS = Path(__file__).parent / "triton_clients"
SOURCES = Path(__file__).parent / "python_models"
SECONDS = 60


def tensors(kind: str, names: list[str], datatype: str, length: int) -> str:
    each = [f'{kind} {{ name: "{name}" data_type: {datatype} dims: [ {length} ] }}' for name in names]
    return "\n".join([*each, ""])


def add_sub(datatype: str) -> str:
    both = tensors("input", ["INPUT0", "INPUT1"], datatype, 16) + tensors(
        "output", ["OUTPUT0", "OUTPUT1"], datatype, 16
    )
    return f'backend: "python"\nmax_batch_size: 8\n{both}'


MODELS = {
    "simple": ("add_sub", add_sub("TYPE_INT32")),
    "simple_int8": ("add_sub", add_sub("TYPE_INT8")),
    "simple_string": ("add_sub", add_sub("TYPE_STRING")),
    "simple_identity": (
        "identity",
        'backend: "python"\nmax_batch_size: 8\n'
        + tensors("input", ["INPUT0"], "TYPE_STRING", -1) + tensors("output", ["OUTPUT0"], "TYPE_STRING", -1),
    ),
    "simple_sequence": (
        "sequence",
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
        shutil.copy(SOURCES / f"{source}.py", folder / name / "1/model.py")
        (folder / name / "config.pbtxt").write_text(config)
    with headrace(folder) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(server: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with in_front(server, tmp_path_factory.mktemp("gateway"), ["add_sub", *MODELS]) as target:
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
    done = run(CLIENTS / f"{name}.py", address(gateway, "http"), "-H", f"Authorization:Bearer {gateway.keys['http']}")
    assert done.stdout.count("15 - -1 = 16") >= 2, done.stderr
    assert done.stdout.rstrip().endswith("improper error message for wrong model name")
