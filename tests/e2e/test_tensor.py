"""Triton's clients, unchanged, through the gateway to the real tensor runtime, over every pair of wires."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
import tritonclient.grpc.aio as over_grpc
import tritonclient.http.aio as over_http
from tritonclient.utils import InferenceServerException

from tests.servers.repositories import for_headrace
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.tensor_runtime import explicit

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

NAMES = ("accumulate", "add_sub", "repeat", "text")
RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)
WIRES = ("http", "grpc")


def configuration(http: str, grpc: str) -> dict[str, Any]:
    """Each model behind both wires of one runtime; a header chooses which."""
    routes = [{"when": {"header": {"x-wire": "grpc"}}, "to": "grpc"}, {"else": True, "to": "http"}]
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [
            {"name": "http", "protocol": "oip-http", "endpoints": [f"http://{http}"]},
            {"name": "grpc", "protocol": "oip-grpc", "endpoints": [f"http://{grpc}"]},
        ],
        "models": [{"name": name, "routes": routes} for name in NAMES],
        "tenants": [
            {"name": "acme", "models": ["*"], "limits": {"rows": "1000/d", "device_ms": "100000/d"}},
            {"name": "few", "models": ["text"]},
        ],
    }


class Setting:
    """A gateway before a runtime, and the headers of a client."""

    def __init__(self, process: GatewayProcess, headers: dict[str, str]) -> None:
        self.process = process
        self.headers = headers

    def to(self, wire: str) -> dict[str, str]:
        """Metadata that routes to the servers of that wire."""
        return {**self.headers, "x-wire": wire}

    @asynccontextmanager
    async def http(self) -> AsyncIterator[over_http.InferenceServerClient]:
        async with over_http.InferenceServerClient(self.process.url.removeprefix("http://"), conn_timeout=60) as client:
            yield client

    @asynccontextmanager
    async def grpc(self) -> AsyncIterator[over_grpc.InferenceServerClient]:
        async with over_grpc.InferenceServerClient(self.process.grpc) as client:
            yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    folder = tmp_path_factory.mktemp("tensor")
    with explicit(for_headrace(folder / "models", NAMES)) as runtime:
        async with gateway(folder, configuration(runtime.http, runtime.grpc)) as made:
            yield Setting(made, {"authorization": f"Bearer {await made.key()}"})
            await made.until_idle()


def given(client: Any, **tensors: np.ndarray[Any, Any]) -> list[Any]:
    kinds = {"i": "INT32", "O": "BYTES"}
    inputs = [client.InferInput(name, list(array.shape), kinds[array.dtype.kind]) for name, array in tensors.items()]
    for one, array in zip(inputs, tensors.values(), strict=True):
        one.set_data_from_numpy(array)
    return inputs


async def test_every_bridge_answers_the_same(running: Setting) -> None:
    texts = np.array([["Bäche".encode(), b"\xff\0"]], dtype=np.object_)
    async with running.http() as http, running.grpc() as grpc:
        for client, module in ((http, over_http), (grpc, over_grpc)):
            for wire in WIRES:
                headers = running.to(wire)
                for binary in (True, False) if client is http else (True,):
                    options = {"binary_data": binary} if client is http else {}
                    outputs = [module.InferRequestedOutput(name, **options) for name in ("OUTPUT0", "OUTPUT1")]
                    inputs = given(module, INPUT0=RAMP, INPUT1=RAMP)
                    response = await client.infer("add_sub", inputs, outputs=outputs, headers=headers, request_id="r")
                    assert (response.as_numpy("OUTPUT0") == RAMP * 2).all()
                    assert (response.as_numpy("OUTPUT1") == 0).all()
                response = await client.infer("text", given(module, TEXT=texts), headers=headers)
                assert response.as_numpy("SAME").tolist() == texts.tolist()
                wrong = given(module, INPUT0=RAMP, INPUT1=RAMP[:, :8])
                with pytest.raises(InferenceServerException, match="INPUT1"):
                    await client.infer("add_sub", wrong, headers=headers)
                with pytest.raises(InferenceServerException, match="does not exist"):
                    await client.infer("nobody", given(module, INPUT0=RAMP), headers=headers)
                assert await client.is_model_ready("add_sub", headers=headers)
    acme, _ = (await running.process.state())["tenants"]
    (limit,) = acme["limits"]
    assert limit["remaining"]["rows"] < 999
    assert limit["remaining"]["device_ms"] < 100_000


async def test_decoupled_models_stream_over_every_bridge(running: Setting) -> None:
    async with running.grpc() as grpc:
        for wire in WIRES:

            async def requests() -> AsyncIterator[dict[str, Any]]:
                for number, values in enumerate(([1, 2, 3], [], [7])):
                    inputs = given(over_grpc, IN=np.array(values, dtype=np.int32))
                    yield {"model_name": "repeat", "inputs": inputs, "request_id": str(number)}

            values_by_id: dict[str, list[int]] = {}
            async for streamed, error in grpc.stream_infer(requests(), headers=running.to(wire)):
                assert error is None
                values_by_id.setdefault(streamed.get_response().id, []).extend(streamed.as_numpy("OUT").tolist())
            assert {id_: values for id_, values in values_by_id.items() if values} == {"0": [1, 2, 3], "2": [7]}
    body = {"inputs": [{"name": "IN", "shape": [2], "datatype": "INT32", "data": [4, 5]}]}
    async with aiohttp.ClientSession() as http:
        for wire in WIRES:
            url = f"{running.process.url}/v2/models/repeat/infer_stream"
            async with http.post(url, json=body, headers=running.to(wire)) as response:
                assert response.content_type == "text/event-stream"
                events = [json.loads(line[6:]) for line in (await response.text()).splitlines() if line]
            values = [event["outputs"][0]["data"] for event in events if event["outputs"]]
            assert values == [[4], [5]]


async def test_sequences_keep_their_state_over_every_bridge(running: Setting) -> None:
    async with running.http() as http, running.grpc() as grpc:
        number = 100
        for client, module in ((http, over_http), (grpc, over_grpc)):
            for wire in WIRES:
                number += 1
                sums = []
                for i in range(4):
                    inputs = given(module, INPUT=np.array([[i + 1]], dtype=np.int32))
                    response = await client.infer(
                        "accumulate",
                        inputs,
                        sequence_id=number,
                        sequence_start=i == 0,
                        sequence_end=i == 3,
                        headers=running.to(wire),
                    )
                    sums.append(int(response.as_numpy("SUM")[0, 0]))
                assert sums == [1, 3, 6, 10]
                alone = given(module, INPUT=np.array([[1]], dtype=np.int32))
                with pytest.raises(InferenceServerException):  # no state remains
                    await client.infer("accumulate", alone, sequence_id=number, headers=running.to(wire))


async def test_operators_load_and_unload_on_the_admin_listener(running: Setting) -> None:
    admin = running.process.admin.removeprefix("http://")
    as_json = {"content-type": "application/json"}
    async with running.http() as http, over_http.InferenceServerClient(admin) as operator:
        with pytest.raises(InferenceServerException, match="on the admin listener"):
            await http.unload_model("text", headers=running.headers)
        for wire in WIRES:
            await operator.unload_model("text", headers=as_json)
            async with asyncio.timeout(300):
                while await http.is_model_ready("text", headers=running.to(wire)):
                    await asyncio.sleep(0.05)
            await operator.load_model("text", headers=as_json)
            assert await http.is_model_ready("text", headers=running.to(wire))
    config = str(running.process.config)
    async with asyncio.timeout(300):
        while await _audited(config) != ["model.unload", "model.load"] * len(WIRES):  # entries are written behind
            await asyncio.sleep(0.1)


async def _audited(config: str) -> list[str]:
    """The entries of the audit log about models, oldest first."""
    _, listed, _ = await command("audit", "list", "--limit", "100", "--json", "--config", config)
    return [entry["action"] for entry in json.loads(listed)[::-1] if entry["action"].startswith("model.")]


async def test_each_tenant_sees_its_models(running: Setting) -> None:
    few = {"authorization": f"Bearer {await running.process.key('few')}"}
    async with running.http() as http, running.grpc() as grpc:
        for headers, names in ((running.headers, set(NAMES)), (few, {"text"})):
            index = await http.get_model_repository_index(headers=headers)
            assert {entry["name"] for entry in index} == names
            response = await grpc.get_model_repository_index(headers=headers)
            assert {entry.name for entry in response.models} == names
        with pytest.raises(InferenceServerException, match="does not exist"):
            await http.get_model_metadata("add_sub", headers=few)
