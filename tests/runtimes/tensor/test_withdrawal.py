"""A client that disconnects removes its request from the queue, over HTTP and gRPC."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from adapters.http1.server import Server as HttpServer
from adapters.http2.accepted import Server as GrpcServer
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.grpc import GrpcDoor
from runtimes.tensor.api.http import HttpDoor
from runtimes.tensor.api.log_settings import LogSettings
from runtimes.tensor.api.metrics import Metrics
from runtimes.tensor.api.restrictions import Restrictions
from runtimes.tensor.api.service import InferenceService
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.api.trace import Tracer, TraceSettings
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.interfaces import LoadReport
from runtimes.tensor.models.manager import ManagerOptions, ModelManager
from runtimes.tensor.models.repository import Repository
from runtimes.tensor.models.served_model import ModelScheduler, ServedModel
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.statistics import ModelStatistics
from tests.support.conditions import until

pytestmark = [pytest.mark.plain, pytest.mark.realtime]  # gRPC has threads
CONFIG = ModelConfig(
    "m",
    "python",
    inputs=(TensorSpec("IN", "INT32", (1,)),),
    outputs=(TensorSpec("OUT", "INT32", (1,)),),
    max_batch_size=8,
)
BODY = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}).encode()
TENSOR = pb.ModelInferRequest.InferInputTensor(name="IN", datatype="INT32", shape=[1, 1])
MESSAGE = pb.ModelInferRequest(model_name="m", inputs=[TENSOR], raw_input_contents=[b"\1\0\0\0"]).SerializeToString()
PATIENCE = 300.0


class Replaced:
    """A copy that is being replaced: every request to it waits."""

    name = "m"
    ready = False
    restarts = 0
    report = LoadReport()
    on_ready: Callable[[], None]
    on_stuck: Callable[[float], None]


class Running:
    """Both doors over one model that never answers."""

    def __init__(self, folder: Path) -> None:
        self.statistics = ModelStatistics()
        copy: Any = Replaced()
        self.scheduler: ModelScheduler = make_scheduler(CONFIG, [copy], self.statistics)
        self.served = ServedModel("m", "1", CONFIG, self.scheduler, [copy], folder, self.statistics)
        parts: Any = None  # nothing is loaded
        manager = ModelManager(Repository(folder), parts, ManagerOptions())
        manager.table.leases["m", ""] = self.served
        memory, tracer, logs = SharedMemory(), Tracer(TraceSettings()), LogSettings()
        service = InferenceService(manager, memory, tracer, logs)
        control = Control(manager, memory, tracer, logs)
        self.http = HttpServer(HttpDoor(service, control, Metrics(manager), Restrictions()))
        self.grpc = GrpcServer(GrpcDoor(service, control, Restrictions()))

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        host, port = await self.grpc.listen_tcp("127.0.0.1", 0)
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            yield channel

    async def until_waiting(self, count: int) -> None:
        await until(lambda: self.scheduler.waiting == count)

    async def until_unused(self) -> None:
        """Nothing waits, and every lease has been given back."""
        await self.until_waiting(0)
        await until(lambda: not self.served.leases)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    made = Running(tmp_path)
    yield made
    await asyncio.gather(made.http.aclose(), made.grpc.aclose())
    await made.scheduler.aclose()


async def test_a_connection_that_closes(running: Running) -> None:
    host, port = await running.http.listen_tcp("127.0.0.1", 0)
    _, writer = await asyncio.open_connection(host, port)
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode() + BODY)
    await running.until_waiting(1)
    writer.close()
    await running.until_unused()
    assert sum(running.statistics.failures["CANCELED"].counts) == 1


async def test_a_call_that_is_cancelled(running: Running) -> None:
    async with running.channel() as channel:
        unary = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        call = unary(MESSAGE, timeout=PATIENCE)
        await running.until_waiting(1)
        call.cancel()
        await running.until_unused()


async def test_a_stream_that_is_cancelled(running: Running) -> None:
    async with running.channel() as channel:
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(timeout=PATIENCE)
        for _ in range(3):
            await stream.write(MESSAGE)
        await running.until_waiting(3)
        stream.cancel()
        await running.until_unused()


async def test_a_deadline(running: Running) -> None:
    async with running.channel() as channel:
        unary = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unary(MESSAGE, timeout=0.3)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await running.until_unused()


async def test_the_requests_own_timeout(running: Running) -> None:
    sent = json.loads(BODY) | {"parameters": {"timeout": 20_000}}
    host, port = await running.http.listen_tcp("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps(sent).encode()
    writer.write(f"POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    async with asyncio.timeout(PATIENCE):
        status = await reader.readline()
    assert status.split()[1] in (b"503", b"504")
    writer.close()
    await running.until_unused()
