"""Several workers behind one gRPC port."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from adapters.http1.message import Response
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)

ANSWER = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[1],"data":[7]}]}'


def configuration(url: str) -> dict[str, Any]:
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "workers": 2,
        "pools": [{"name": "main", "protocol": "oip-http", "endpoints": [url]}],
        "models": [{"name": "m", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def infer(running: GatewayProcess, key: str) -> list[int]:
    """Send a request over a connection of its own."""
    async with grpc.aio.insecure_channel(running.grpc) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        response = await stub.ModelInfer(
            pb.ModelInferRequest(model_name="m"), metadata=[("authorization", f"Bearer {key}")], timeout=60
        )
        return list(response.raw_output_contents[0])


async def test_every_worker_answers_and_a_rolling_restart_loses_no_request(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up.url)) as running:
        up.behaviour = lambda _: asyncio.sleep(0, Response(200, [("content-type", "application/json")], ANSWER))
        await running.printed("Ready.")
        key = await running.key()
        assert await asyncio.gather(*(infer(running, key) for _ in range(16))) == [[7, 0, 0, 0]] * 16
        running.process.send_signal(signal.SIGUSR2)
        while "all workers restarted" not in running.output:
            assert await infer(running, key) == [7, 0, 0, 0]
        assert await running.stop() == 0
