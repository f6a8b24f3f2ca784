"""Models of TensorFlow behind a gateway process: its serving's stand-in over both wires, and our own runtime.

Every client receives the same answers from each.
"""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import tritonclient.grpc.aio as over_grpc
import tritonclient.http.aio as over_http

from loadtests.peers.tfserving import STAND_IN
from runtimes.tensor.catalogue.repository import add
from runtimes.wheels import ModelUnavailable
from tests.servers.tfserving import TfServing, config_of, python, run, small, tfserving
from tests.support.absent import absent
from tests.support.processes import GatewayProcess, gateway
from tests.support.tensor_runtime import TensorRuntime, explicit

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

X = np.array([[1, 2], [3, 4]], dtype=np.float32)
THEIRS = ("rest", "grpc")
ALL = (*THEIRS, "ours")
PITCH = "basic-pitch-tf"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models as TensorFlow Serving finds them: `half` and `pitch`."""
    folder = tmp_path_factory.mktemp("saved")
    small(folder / "half")
    try:
        source = add(PITCH, tmp_path_factory.mktemp("catalogue"))
    except ModelUnavailable as error:
        absent(error)
    shutil.copytree(source / "1/model.savedmodel", folder / "pitch/1")
    return folder


@pytest.fixture(scope="module")
def theirs(saved: Path) -> Iterator[TfServing]:
    models = [config_of("half", saved / "half", stable=1), config_of("pitch", saved / "pitch")]
    with tfserving(*models) as server:
        yield server


@pytest.fixture(scope="module")
def ours(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    """The same files, in our runtime's repository, on a TensorFlow of its own environment."""
    repository = tmp_path_factory.mktemp("repository")
    for name in ("half", "pitch"):
        (repository / name).mkdir()
        for version in (saved / name).iterdir():
            shutil.copytree(version, repository / name / version.name / "model.savedmodel")
        config = f"backend: tensorflow\nversions: all\nparameters: {{interpreter: {python()}}}\n"
        (repository / name / "model.yaml").write_text(config)
    with explicit(repository) as runtime:
        yield runtime


@pytest.fixture
async def running(theirs: TfServing, ours: TensorRuntime, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    pools = [
        {"name": "rest", "protocol": "tfserving", "endpoints": [f"http://{theirs.http}"]},
        {"name": "grpc", "protocol": "tfserving-grpc", "endpoints": [f"http://{theirs.grpc}"]},
        {"name": "ours", "protocol": "oip-grpc", "endpoints": [f"http://{ours.grpc}"]},
    ]
    routes = [{"when": {"header": {"x-server": name}}, "to": name} for name in ALL[1:]]
    configuration = {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": pools,
        "models": [{"name": name, "routes": [*routes, {"else": True, "to": "rest"}]} for name in ("half", "pitch")],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"rows": "100000/d"}}],
    }
    async with gateway(tmp_path, configuration) as made:
        yield made
        await made.until_idle()


async def tensors(running: GatewayProcess, headers: dict[str, str], wire: str, model: str, x: Any) -> dict[str, Any]:
    """The outputs of a call by Triton's own client."""
    module, address = (over_http, running.url.removeprefix("http://")) if wire == "http" else (over_grpc, running.grpc)
    name = "x" if model == "half" else "input_2"
    given = module.InferInput(name, list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    async with module.InferenceServerClient(address) as client:
        result = await client.infer(model, [given], headers=dict(headers))
        outputs = result.get_response()["outputs"] if wire == "http" else result.get_response().outputs
        names = [one["name"] if wire == "http" else one.name for one in outputs]
        return {name: result.as_numpy(name) for name in names}


async def test_every_server_answers_every_client_alike(running: GatewayProcess) -> None:
    keyed = {"authorization": f"Bearer {await running.key()}"}
    async with aiohttp.ClientSession(headers=keyed) as http:
        for server in ALL:
            headers = {**keyed, "x-server": server}
            for wire in ("http", "grpc"):
                arrays = await tensors(running, headers, wire, "half", X)
                assert {name: array.tolist() for name, array in arrays.items()} == {
                    "y": [[5, 10], [15, 20]], "sum": [3, 7],
                }, (server, wire)  # fmt: skip
            for path, scale in (("half", 5), ("half/versions/1", 3)):
                url = f"{running.url}/v1/models/{path}:predict"
                async with http.post(url, json={"instances": X.tolist()}, headers=headers) as response:
                    rows = (await response.json())["predictions"]
                    assert [row["y"] for row in rows] == (scale * X).tolist()
                    assert [row["sum"] for row in rows] == [3, 7]
            async with http.get(f"{running.url}/v1/models/half", headers=headers) as response:
                versions = (await response.json())["model_version_status"]
                assert sorted(one["version"] for one in versions) == ["1", "2"]


async def test_a_real_model_hears_the_same_everywhere(running: GatewayProcess) -> None:
    keyed = {"authorization": f"Bearer {await running.key()}"}
    sound = np.random.default_rng(5).normal(scale=0.1, size=(1, 43844, 1)).astype(np.float32)
    answers = [
        await tensors(running, {**keyed, "x-server": server}, wire, "pitch", sound)
        for server in ALL
        for wire in ("http", "grpc")
    ]
    first = answers[0]
    assert len(first) == 3
    for other in answers[1:]:
        assert other.keys() == first.keys()
        for name, array in first.items():
            np.testing.assert_allclose(other[name], array, atol=1e-5)


@pytest.mark.parametrize("server", THEIRS)
async def test_the_published_client_unchanged(running: GatewayProcess, server: str) -> None:
    """Its requests are forwarded unchanged over gRPC, and encoded anew for REST."""
    key = await running.key()
    printed = json.loads(run(f"{STAND_IN}.client", running.grpc, key, "half", server).splitlines()[-1])
    assert printed == {
        "predict": {"y": [[5, 10], [15, 20]], "sum": [3, 7]},
        "label": {"y": [[3, 6], [9, 12]], "sum": [3, 7]},
        "shout": ["hi3!"],
        "classify": [["cat", "dog", "fish"]],
        "regress": [15],
        "metadata": ["classify", "regress", "serving_default", "shout"],
        "status": [[1, "AVAILABLE"], [2, "AVAILABLE"]],
        "refused": ["UNAUTHENTICATED", "UNAUTHENTICATED"],
    }
