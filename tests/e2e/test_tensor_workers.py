"""Several workers behind one gRPC port, over TLS."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as stubs

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.tls import make_certificate

pytestmark = pytest.mark.timeout(1800)

ANSWER = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[1],"data":[7]}]}'


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """One that knows a single answer."""

    async def answer(http: Request) -> Response:
        await http.read()
        return Response(200, [("content-type", "application/json")], ANSWER)

    made = Server(answer)
    host, port = await made.listen_tcp("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await made.aclose()


def configuration(url: str, **changes: Any) -> dict[str, Any]:
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "workers": 2,
        "pools": [{"name": "main", "protocol": "oip-http", "endpoints": [url]}],
        "models": [{"name": "m", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **changes,
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
    async with server() as url, gateway(tmp_path, configuration(url)) as running:
        await running.printed("Ready.")
        key = await running.key()
        assert await asyncio.gather(*(infer(running, key) for _ in range(16))) == [[7, 0, 0, 0]] * 16
        running.process.send_signal(signal.SIGUSR2)
        while "all workers restarted" not in running.output:
            assert await infer(running, key) == [7, 0, 0, 0]
        assert await running.stop() == 0


async def test_grpc_is_served_over_tls_where_http_is(tmp_path: Path) -> None:
    files = make_certificate(tmp_path / "tls")
    tls = {"cert": str(files / "cert.pem"), "key": str(files / "key.pem")}
    async with server() as url:
        listen = {**configuration(url)["listen"], "tls": tls}
        async with gateway(tmp_path, configuration(url, listen=listen, workers=1)) as running:
            status, key, err = await command("keys", "create", "--config", str(running.config), "--tenant", "acme")
            assert status == 0, err
            credentials = grpc.ssl_channel_credentials((files / "cert.pem").read_bytes())
            async with grpc.aio.secure_channel(running.grpc, credentials) as channel:
                stub = stubs.GRPCInferenceServiceStub(channel)
                assert (await stub.ServerLive(pb.ServerLiveRequest(), timeout=60)).live
                assert await _answered(stub, key.strip()) == b"\7\0\0\0"


async def _answered(stub: Any, key: str) -> bytes:
    """A new key counts a moment after it was made."""
    async with asyncio.timeout(300):
        while True:
            metadata = [("authorization", f"Bearer {key}")]
            try:
                response = await stub.ModelInfer(pb.ModelInferRequest(model_name="m"), metadata=metadata, timeout=60)
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                    raise
                await asyncio.sleep(0.05)
            else:
                return bytes(response.raw_output_contents[0])
