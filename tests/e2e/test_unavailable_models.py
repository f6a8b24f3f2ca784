"""A model that cannot be loaded: every door of the gateway reports that, with the reason of the model's server."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from adapters.wire.protos.tfserving import MODEL, serving
from tests.servers.repositories import MODELS, for_triton
from tests.servers.triton import EXPLICIT, triton
from tests.support.processes import GatewayProcess, gateway
from tests.support.tensor_runtime import explicit

pytestmark = pytest.mark.timeout(1800)

REASON = "the weights are gone"
BROKEN = f"raise RuntimeError({REASON!r} + ' from /srv/models/x and http://10.0.0.5:9000')\n"
NAMES = ("broken", "add_sub")
TENSORS = [{"name": f"INPUT{i}", "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for i in (0, 1)]


def broken(folder: Path) -> None:
    """Beside a model that works, the same whose code raises."""
    shutil.copytree(folder / "add_sub", folder / "broken")
    config = folder / "broken" / "config.pbtxt"
    config.write_text(config.read_text())
    for file in (folder / "broken" / "1").iterdir():
        file.write_text(BROKEN)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "add_sub" / "1").mkdir(parents=True)
    shutil.copy(MODELS / "add_sub" / "model.py", folder / "add_sub" / "1")
    shutil.copy(MODELS / "add_sub" / "config.pbtxt", folder / "add_sub")
    broken(folder)
    with explicit(folder) as server:
        yield server.http, server.grpc


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = for_triton(tmp_path_factory.mktemp("triton"), ["add_sub"])
    broken(folder)
    with triton(folder, (*EXPLICIT, "--exit-on-error=false", "--strict-readiness=false")) as server:
        yield server.http, server.grpc


def configuration(protocol: str, addresses: tuple[str, str]) -> dict[str, Any]:
    address = addresses[0] if protocol == "oip-http" else addresses[1]
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [{"name": "models", "protocol": protocol, "endpoints": [f"http://{address}"]}],
        "models": [{"name": name, "routes": [{"to": "models"}]} for name in NAMES],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


def has_reason(reason: str) -> bool:
    """Whether a text has the server's reason, and neither addresses nor paths."""
    return REASON in reason and "10.0.0.5" not in reason and "/srv" not in reason


@pytest.mark.parametrize("protocol", ["oip-http", "oip-grpc"])
@pytest.mark.parametrize("server", ["runtime", pytest.param("foreign", marks=pytest.mark.servers)])
async def test_every_door_reports_a_model_that_cannot_be_loaded(
    request: pytest.FixtureRequest, tmp_path: Path, server: str, protocol: str
) -> None:
    addresses = request.getfixturevalue(server)
    async with gateway(tmp_path, configuration(protocol, addresses)) as running:
        headers = {"authorization": f"Bearer {await running.key()}"}
        await running.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        async with aiohttp.ClientSession(running.url, headers=headers) as http:
            await _over_http(http, ours=server == "runtime")
        await _over_grpc(running, headers, ours=server == "runtime")


async def _over_http(http: aiohttp.ClientSession, *, ours: bool) -> None:
    async with http.post("/v2/repository/index") as answer:
        entries = {entry["name"]: entry for entry in await answer.json()}
    assert entries["add_sub"]["state"] == "READY"
    assert entries["broken"]["state"] == "UNAVAILABLE"
    assert has_reason(entries["broken"]["reason"])
    async with http.post("/v2/repository/index", json={"ready": True}) as answer:
        assert [entry["name"] for entry in await answer.json()] == ["add_sub"]
    async with http.get("/v2/models/broken/ready") as answer:
        assert answer.status == 503
        assert has_reason((await answer.json())["error"])
    requests: list[tuple[str, Any]] = [("/v2/models/broken/infer", {"inputs": TENSORS})]
    if ours:
        requests.append(("/v1/models/broken:predict", {"instances": [{"INPUT0": [1] * 16, "INPUT1": [1] * 16}]}))
        requests.append(("/v2/models/broken/infer_stream", {"inputs": TENSORS}))
    for path, body in requests:
        async with http.post(path, json=body) as answer:
            text = (await answer.json())["error"]
            assert (answer.status, answer.headers["x-headrace-error"]) == (503, "model_not_ready"), (path, text)
            assert has_reason(text) or not ours, text
            assert "retry-after" not in answer.headers or not ours
    async with http.get("/v1/models/broken") as answer:
        status = await answer.json()
    assert (status["ready"], status["model_version_status"][0]["state"]) == (False, "END")
    assert has_reason(status["model_version_status"][0]["status"]["error_message"])
    async with http.get("/v1/models/add_sub") as answer:
        assert (await answer.json())["ready"]
    async with http.post("/v2/models/add_sub/infer", json={"inputs": TENSORS}) as answer:
        assert answer.status == 200


async def _over_grpc(running: GatewayProcess, headers: dict[str, str], *, ours: bool) -> None:
    metadata = list(headers.items())
    async with grpc.aio.insecure_channel(running.grpc) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        index = await stub.RepositoryIndex(pb.RepositoryIndexRequest(), metadata=metadata)
        entries = {entry.name: entry for entry in index.models}
        assert (entries["add_sub"].state, entries["broken"].state) == ("READY", "UNAVAILABLE")
        assert has_reason(entries["broken"].reason)
        assert not (await stub.ModelReady(pb.ModelReadyRequest(name="broken"), metadata=metadata)).ready
        inputs = [
            pb.ModelInferRequest.InferInputTensor(name=t["name"], datatype="INT32", shape=[1, 16]) for t in TENSORS
        ]
        request = pb.ModelInferRequest(model_name="broken", inputs=inputs, raw_input_contents=[bytes(64)] * 2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ModelInfer(request, metadata=metadata)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert has_reason(caught.value.details() or "") or not ours
        (answer,) = [one async for one in stub.ModelStreamInfer(iter([request]), metadata=metadata)]
        assert has_reason(answer.error_message) or not ours
        method = MODEL["GetModelStatus"]
        status = channel.unary_unary(method.path, lambda m: m.SerializeToString(), method.response.FromString)
        spec = serving.GetModelStatusRequest()
        spec.model_spec.name = "broken"
        (version,) = (await status(spec, metadata=metadata)).model_version_status
        assert version.State.Name(version.state) == "END"
        assert has_reason(version.status.error_message)
