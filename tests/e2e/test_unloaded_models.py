"""Servers of other protocols whose model could not be loaded: every door reports it, with the server's reason."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from adapters.wire.protos.tfserving import MODEL, PREDICTION, serving
from tests.servers.stand_ins.unloaded import REASON, servers
from tests.support.processes import GatewayProcess, gateway

_ONE = {"datatype": "FP32", "shape": [1]}
DECLARED = {"inputs": [{"name": "x", **_ONE}], "outputs": [{"name": "y", **_ONE}]}
TENSORS = {"inputs": [{"name": "x", **_ONE, "data": [1.0]}]}
REASONS = {
    "tfserving": REASON,
    "tfserving-grpc": REASON,
    "torchserve": "none of its 2 workers is ready: UNLOADING",
    "bentoml": REASON,
    "ray-serve": REASON,
    "kserve-v1": REASON,
}
"""The reason that each server reports. TorchServe's management API has no reason, only the state of its workers."""


def pools(url: str, rpc: str) -> list[dict[str, Any]]:
    port = int(url.rpartition(":")[2])
    alive = {"path": "/torchserve/ping"}
    return [
        {"name": "tfserving", "protocol": "tfserving", "endpoints": [f"{url}/tfserving"]},
        {"name": "tfserving-grpc", "protocol": "tfserving-grpc", "endpoints": [f"http://{rpc}"]},
        {
            "name": "torchserve",
            "protocol": {"name": "torchserve", "management_port": port, **DECLARED},
            "endpoints": [f"{url}/torchserve"],
        },
        {"name": "bentoml", "protocol": "bentoml", "endpoints": [f"{url}/bentoml"], "probe": alive},
        {
            "name": "ray-serve",
            "protocol": {"name": "ray-serve", "dashboard_port": port, **DECLARED},
            "endpoints": [f"{url}/ray"],
            "probe": alive,
        },
        {"name": "kserve-v1", "protocol": {"name": "kserve-v1", **DECLARED}, "endpoints": [f"{url}/kserve"]},
    ]


def configuration(url: str, rpc: str) -> dict[str, Any]:
    made = pools(url, rpc)
    for pool in made:
        pool["model"] = "broken"
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": made,
        "models": [{"name": pool["name"], "routes": [{"to": pool["name"]}]} for pool in made],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


def has(name: str, text: str) -> bool:
    """Whether a text has the server's reason, without addresses and paths."""
    return REASONS[name] in text and "10.0.0.5" not in text and "/srv" not in text


async def test_every_door_reports_the_reason(tmp_path: Path) -> None:
    async with servers() as addresses, gateway(tmp_path, configuration(*addresses)) as running:
        headers = {"authorization": f"Bearer {await running.key()}"}
        async with aiohttp.ClientSession(running.url, headers=headers) as http:
            async with http.post("/v2/repository/index") as answer:
                entries = {entry["name"]: entry for entry in await answer.json()}
            for name in REASONS:
                assert entries[name]["state"] == "UNAVAILABLE", entries[name]
                assert has(name, entries[name]["reason"]), entries[name]
                await _over_http(http, name)
        await _over_grpc(running, headers)


async def _over_http(http: aiohttp.ClientSession, name: str) -> None:
    async with http.get(f"/v2/models/{name}/ready") as answer:
        assert answer.status == 503
        assert has(name, (await answer.json())["error"])
    async with http.get(f"/v1/models/{name}") as answer:
        status = await answer.json()
    (version,) = status["model_version_status"]
    assert (status["ready"], version["state"]) == (False, "END"), status
    assert has(name, version["status"]["error_message"])
    for path, body in ((f"/v2/models/{name}/infer", TENSORS), (f"/v1/models/{name}:predict", {"instances": [[1.0]]})):
        async with http.post(path, json=body) as answer:
            text = await answer.text()
            assert (answer.status, answer.headers.get("x-headrace-error")) == (503, "model_not_ready"), (path, text)
            assert has(name, json.loads(text)["error"]), (path, text)


async def _over_grpc(running: GatewayProcess, headers: dict[str, str]) -> None:
    metadata = list(headers.items())
    async with grpc.aio.insecure_channel(running.grpc) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        index = await stub.RepositoryIndex(pb.RepositoryIndexRequest(), metadata=metadata)
        entries = {entry.name: entry for entry in index.models}
        status_of = MODEL["GetModelStatus"]
        status = channel.unary_unary(status_of.path, lambda m: m.SerializeToString(), status_of.response.FromString)
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", **_ONE)
        for name in REASONS:
            assert entries[name].state == "UNAVAILABLE"
            assert has(name, entries[name].reason)
            infer = pb.ModelInferRequest(model_name=name, inputs=[tensor], raw_input_contents=[bytes(4)])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.ModelInfer(infer, metadata=metadata)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert has(name, caught.value.details() or "")
            spec = serving.GetModelStatusRequest()
            spec.model_spec.name = name
            (version,) = (await status(spec, metadata=metadata)).model_version_status
            assert version.State.Name(version.state) == "END"
            assert has(name, version.status.error_message)
        predict = PREDICTION["Predict"]
        call = channel.unary_unary(predict.path, lambda m: m.SerializeToString(), predict.response.FromString)
        request = predict.request()
        request.model_spec.name = "tfserving-grpc"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request, metadata=metadata)
        assert has("tfserving-grpc", caught.value.details() or "")
