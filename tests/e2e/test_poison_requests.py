"""Requests that their model cannot stand, through the gateway: computed once, reported in the model's own words."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from tests.support.processes import GatewayProcess, gateway
from tests.support.tensor_runtime import TensorRuntime, explicit

pytestmark = pytest.mark.timeout(1800)

MODEL = """\
import os
import time
from pathlib import Path

class Model:
    def infer(self, inputs):
        with open(Path(__file__).parents[3] / "executions", "a") as file:
            file.write("x")
        value = int(inputs["X"][0, 0])
        if value == 1:
            raise ValueError("boom at http://10.0.0.5:8000, token=abcdefgh12345678")
        if value == 2:
            os._exit(3)
        while value == 3:
            time.sleep(0.01)
        return {"Y": inputs["X"]}
"""
CONFIG = """\
backend: python
max_batch_size: 4
inputs: [{name: X, datatype: INT32, dims: [1]}]
outputs: [{name: Y, datatype: INT32, dims: [1]}]
instances: [{count: 1, placement: process}]
execution_timeout: 1s
"""
RAISES, ENDS, HANGS = 1, 2, 3
BOOM = "ValueError: boom at [address] token=[secret]"
DOORS = ("infer", "generate", "generate_stream", "infer_stream", "predict", "grpc", "grpc_stream")


class Setting:
    """A gateway over one runtime, by three pools, and the record of the model's executions."""

    def __init__(self, process: GatewayProcess, folder: Path, key: str) -> None:
        self.process = process
        self.executions = folder / "executions"
        self.folder = folder
        self.key = {"authorization": f"Bearer {key}"}

    def count(self) -> int:
        return len(self.executions.read_text()) if self.executions.exists() else 0

    async def infer(self, door: str, value: int, wire: str) -> tuple[bool, str]:
        """Whether the request succeeds, and the message where it does not."""
        headers = {**self.key, "x-wire": wire}
        if door.startswith("grpc"):
            return await self._rpc(door, value, headers)
        tensor = {"name": "X", "shape": [1, 1], "datatype": "INT32", "data": [value]}
        path, body = {
            "infer": ("v2/models/poison/infer", {"inputs": [tensor]}),
            "infer_stream": ("v2/models/poison/infer_stream", {"inputs": [tensor]}),
            "generate": ("v2/models/poison/generate", {"X": value}),
            "generate_stream": ("v2/models/poison/generate_stream", {"X": value}),
            "predict": ("v1/models/poison:predict", {"instances": [[value]]}),
        }[door]
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(f"{self.process.url}/{path}", json=body) as answer,
        ):
            text = await answer.text()
            if answer.status == 200 and '"error"' not in text:
                return True, ""
            return False, json.loads(text.removeprefix("data: "))["error"]

    async def _rpc(self, door: str, value: int, headers: dict[str, str]) -> tuple[bool, str]:
        inputs = [pb.ModelInferRequest.InferInputTensor(name="X", datatype="INT32", shape=[1, 1])]
        raw = [np.array([value], np.int32).tobytes()]
        request = pb.ModelInferRequest(model_name="poison", inputs=inputs, raw_input_contents=raw)
        async with grpc.aio.insecure_channel(self.process.grpc) as channel:
            stub, metadata = stubs.GRPCInferenceServiceStub(channel), list(headers.items())
            try:
                if door == "grpc":
                    await stub.ModelInfer(request, metadata=metadata)
                    return True, ""
                (answer,) = [one async for one in stub.ModelStreamInfer(iter([request]), metadata=metadata)]
            except grpc.aio.AioRpcError as error:
                return False, error.details() or ""
            return not answer.error_message, answer.error_message

    async def works(self) -> None:
        """Wait until the model answers: a copy that died is replaced."""
        async with asyncio.timeout(300):
            while not (await self.infer("infer", 0, "grpc"))[0]:
                await asyncio.sleep(0.05)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "access.log").read_text().splitlines()]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TensorRuntime, Path]]:
    folder = tmp_path_factory.mktemp("poison")
    version = folder / "models" / "poison" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (version.parent / "model.yaml").write_text(CONFIG)
    with explicit(folder / "models") as running:
        yield running, folder


def configuration(server: TensorRuntime) -> dict[str, Any]:
    routes = [
        {"when": {"header": {"x-wire": "http"}}, "to": "http", "retry": {"attempts": 5}},
        {"when": {"header": {"x-wire": "hidden"}}, "to": "http", "hide_model_errors": True},
        {"else": True, "to": "grpc", "retry": {"attempts": 5}},
    ]
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [
            # Two endpoints that lead to one runtime: another attempt has somewhere to go.
            {
                "name": "http",
                "protocol": "oip-http",
                "endpoints": [f"http://{server.http}", f"http://{_alias(server.http)}"],
            },
            {
                "name": "grpc",
                "protocol": "oip-grpc",
                "endpoints": [f"http://{server.grpc}", f"http://{_alias(server.grpc)}"],
            },
        ],
        "models": [{"name": "poison", "routes": routes}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


def _alias(address: str) -> str:
    return address.replace("127.0.0.1", "localhost")


@pytest.fixture
async def running(runtime: tuple[TensorRuntime, Path], tmp_path: Path) -> AsyncIterator[Setting]:
    server, folder = runtime
    async with gateway(tmp_path, configuration(server)) as made:
        setting = Setting(made, tmp_path, await made.key())
        setting.executions = folder / "executions"
        await setting.works()
        yield setting
        await made.until_idle()


@pytest.mark.parametrize("wire", ["http", "grpc"])
async def test_a_request_that_makes_the_model_raise_is_computed_once(running: Setting, wire: str) -> None:
    for door in DOORS:
        before = running.count()
        ok, message = await running.infer(door, RAISES, wire)
        assert not ok, door
        assert message == BOOM, (door, message)
        assert running.count() == before + 1, door
        assert (await running.infer(door, 0, wire))[0], door  # the endpoint is not blamed


@pytest.mark.parametrize("wire", ["http", "grpc"])
@pytest.mark.parametrize("value", [ENDS, HANGS])
async def test_a_request_that_ends_the_copy_of_the_model_is_computed_once(
    running: Setting, wire: str, value: int
) -> None:
    for door in ("infer", "grpc_stream", "predict"):
        before = running.count()
        ok, message = await running.infer(door, value, wire)
        assert not ok
        assert "died or took too long" in message, (door, message)
        assert running.count() == before + 1, door
        await running.works()


async def test_the_log_has_the_report_and_a_route_may_hide_it_from_clients(running: Setting) -> None:
    for door in ("infer", "infer_stream", "grpc", "grpc_stream"):
        ok, message = await running.infer(door, RAISES, "hidden")
        assert (ok, message) == (False, "The model failed."), door
    async with asyncio.timeout(300):
        while sum("detail" in line for line in running.logged()) < 4:
            await asyncio.sleep(0.05)
    details = {line["detail"] for line in running.logged() if "detail" in line}
    assert details == {"ValueError: boom at http://10.0.0.5:8000, token=[secret]"}
