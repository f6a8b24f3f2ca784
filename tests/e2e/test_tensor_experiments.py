"""An experiment on versions of a tensor model: values for requests over HTTP, gRPC and gRPC streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from tests.support.processes import GatewayProcess, gateway
from tests.support.scorers import repository

pytestmark = pytest.mark.timeout(900)
ROWS = [1.0, 2.0, 3.0, 4.0]
INPUTS = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": ROWS}]}


def configuration(models: Path) -> dict[str, Any]:
    arms = [{"pool": "models", "version": version} for version in "12"]
    written = {"name": "e", "arms": arms, "metric": "solved", "warmup": "0s", "then": "winner"}
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "feedback": [{"name": "solved"}],
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(models)}}],
        "models": [{"name": "scorer", "routes": [{"experiment": written}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


class Clients:
    """A client of each door. Each returns the id of its request for feedback, and the arm."""

    def __init__(self, g: GatewayProcess, key: str, http: aiohttp.ClientSession, channel: grpc.aio.Channel) -> None:
        self._g, self._http, self._stub = g, http, GRPCInferenceServiceStub(channel)
        self._metadata = (("authorization", f"Bearer {key}"),)
        message = pb.ModelInferRequest(model_name="scorer")
        tensor = message.inputs.add(name="x", datatype="FP32", shape=[len(ROWS)])
        tensor.contents.fp32_contents.extend(ROWS)
        self._message = message

    async def http(self) -> tuple[str, str]:
        async with self._http.post(f"{self._g.url}/v2/models/scorer/infer", json=INPUTS) as response:
            assert response.status == 200, await response.text()
            return response.headers["x-request-id"], response.headers["x-headrace-arm"]

    async def unary(self) -> tuple[str, str]:
        call = self._stub.ModelInfer(self._message, metadata=self._metadata)
        await call
        trailers = dict(await call.trailing_metadata())
        return trailers["x-request-id"], trailers["x-headrace-arm"]

    async def named(self) -> tuple[str, str]:
        """With an id of the client, which stays the id of the request. After the end no id is signed."""
        call = self._stub.ModelInfer(self._message, metadata=(*self._metadata, ("x-request-id", "mine")))
        await call
        trailers = dict(await call.trailing_metadata())
        assert trailers["x-request-id"] == "mine"
        return trailers.get("x-headrace-feedback-id", "none"), trailers["x-headrace-arm"]

    async def stream(self) -> tuple[str, str]:
        async def messages() -> AsyncIterator[pb.ModelInferRequest]:
            yield self._message

        async for answer in self._stub.ModelStreamInfer(messages(), metadata=self._metadata):
            assert not answer.error_message
            parameters = answer.infer_response.parameters
            return parameters["x-request-id"].string_param, parameters["x-headrace-arm"].string_param
        raise AssertionError("the stream has no answer")

    async def report(self, id: str, *, value: bool) -> int:
        body = {"id": id, "metric": "solved", "value": value}
        async with self._http.post(f"{self._g.url}/v1/feedback", json=body) as response:
            await response.read()
            return response.status


@asynccontextmanager
async def clients(folder: Path) -> AsyncIterator[tuple[GatewayProcess, Clients]]:
    file = configuration(repository(folder / "models", "x * 2", "x * 3"))
    async with gateway(folder, file) as g:
        await g.printed("Ready.")
        key = await g.key()
        session = aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"})
        async with session as http, grpc.aio.insecure_channel(g.grpc) as channel:
            made = Clients(g, key, http, channel)
            async with asyncio.timeout(300):
                while len((await made.http())[0]) != 44:  # signed as soon as it counts
                    await asyncio.sleep(0.05)
            yield g, made


async def test_values_for_tensors_of_every_door_decide(tmp_path: Path) -> None:
    async with clients(tmp_path) as (g, made):
        doors = (made.http, made.unary, made.named, made.stream)
        reported = {"models:1": 0, "models:2": 0}
        for door in doors:
            id, arm = await door()
            assert await made.report(id, value=arm == "models:2") == 200, door
            assert await made.report(id + "A", value=True) == 404
            reported[arm] += 1
        async with asyncio.timeout(300):
            view: dict[str, Any] = {}
            while view.get("status") != "decided":
                for door in doors:
                    id, arm = await door()
                    if await made.report(id, value=arm == "models:2") == 200:
                        reported[arm] += 1
                async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/admin/experiments/e") as response:
                    view = await response.json()
        assert view["winner"] == "models:2"
        samples = [arm["samples"] for arm in view["metrics"]["solved"]["arms"]]
        assert all(0 < sample <= count for sample, count in zip(samples, reported.values(), strict=True))
        async with asyncio.timeout(300):
            while {(await door())[1] for door in (made.http, made.unary)} != {"models:2"}:
                await asyncio.sleep(0.05)
