"""The tensors' doors over a real socket, with scripted upstreams behind them."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import InferenceError
from adapters.fake import FakeAdapter, Script
from adapters.http1.server import Limits, Server
from adapters.http2.accepted import Server as GrpcServer
from adapters.requests import InferRequest, ModelOrder, ModelQuery, ModelRequest
from adapters.types import OIP_JSON, Form, Usage
from adapters.upstreams.inference import Reader
from adapters.wire.oip.bodies import ModelMetadata, decode_metadata
from config.schema.config import HttpConfig
from gateway.fronts.errors import openai_refusal
from gateway.fronts.grpc.listener import grpc_server
from gateway.process.client_fronts import client_fronts
from tests.support.gateways import Rig, config

METADATA = {
    "name": "chat",
    "versions": ["1"],
    "platform": "python",
    "inputs": [
        {"name": "A", "datatype": "INT32", "shape": [-1, 2]},
        {"name": "B", "datatype": "INT32", "shape": [-1, 2]},
    ],
    "outputs": [{"name": "SUM", "datatype": "INT32", "shape": [-1, 2]}],
}
INFER_BODY = {
    "id": "7",
    "inputs": [
        {"name": "A", "shape": [1, 2], "datatype": "INT32", "data": [1, 2]},
        {"name": "B", "shape": [1, 2], "datatype": "INT32", "data": [3, 4]},
    ],
}
ANSWERED = {
    "id": "7",
    "model_name": "chat",
    "model_version": "1",
    "outputs": [{"name": "SUM", "datatype": "INT32", "shape": [1, 2], "data": [4, 6]}],
}
WHOLE = json.dumps(ANSWERED).encode()
SUM = Script(chunks=(WHOLE,), form=OIP_JSON, usage=Usage(rows=1, device_ms=2.5))


class TensorFake(FakeAdapter):
    """Answers questions about its model with what is written in `about` after a `pause`, or fails; and all else by its
    scripts."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__(*(scripts or (SUM,)))
        self.failing: InferenceError | None = None
        self.pause = 0.0
        self.queries: list[ModelQuery] = []
        self.orders: list[ModelOrder] = []
        self.about: dict[str, Any] = {"metadata": METADATA, "ready": {}, "config": {"name": "chat"}, "stats": {}}
        self.plain = False
        """Whether it speaks KServe's v1 and TensorFlow Serving's gRPC itself; else it reads such requests as adapters
        of other protocols do."""
        self.clock = asyncio.get_running_loop().time
        self._reader = Reader(self._metadata, lambda: self.clock())

    async def _metadata(self, model: str, version: str, call: Call) -> ModelMetadata:
        answer = await self.call(ModelQuery(model=model, version=version), call)
        return decode_metadata(answer.body or b"")

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, ModelOrder):
            self.orders.append(request)
            if self.failing is not None:
                raise self.failing
            return Answer(content_type="application/json", body=b"{}", form=OIP_JSON)
        if isinstance(request, InferRequest) and request.wire in ("predict-v1", "tfserving-grpc") and not self.plain:
            request.payload.decoded = await self._reader.inference(request, request.model, call)
        if not isinstance(request, ModelQuery):
            return await super().call(request, call)
        self.queries.append(request)
        await asyncio.sleep(self.pause)
        if self.failing is not None:
            raise self.failing
        return Answer(
            content_type="application/json", body=json.dumps(self.about[request.about]).encode(), form=OIP_JSON
        )

    @property
    def received(self) -> list[InferRequest]:
        """The inferences."""
        return [call.request for call in self.calls if isinstance(call.request, InferRequest)]


class TensorDoor:
    """A listening gateway and a plain client that holds the key of its tenant."""

    def __init__(self, rig: Rig, url: str, grpc: str, http: aiohttp.ClientSession) -> None:
        self.rig = rig
        self.grpc = grpc
        self.calls: GrpcServer
        """The server of gRPC calls."""
        self.url = url
        self.address = url.removeprefix("http://")
        self.http = http
        self.keyed = {"authorization": f"Bearer {rig.key.plaintext}"}

    @property
    def fake(self) -> TensorFake:
        """The first endpoint."""
        (first, *_) = self.rig.adapters["main"]
        assert isinstance(first, TensorFake)
        return first

    async def post(self, path: str, body: Any = None, **headers: str) -> aiohttp.ClientResponse:
        data = body if isinstance(body, bytes) else json.dumps(INFER_BODY if body is None else body).encode()
        sent = {**self.keyed, **{name.replace("_", "-"): value for name, value in headers.items()}}
        response = await self.http.post(self.url + path, data=data, headers=sent)
        await response.read()
        return response

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        response = await self.http.get(self.url + path, headers={**self.keyed, **headers})
        await response.read()
        return response


@asynccontextmanager
async def tensor_door(
    *fakes: FakeAdapter,
    limits: dict[str, Any] | None = None,
    others: Mapping[str, FakeAdapter] | None = None,
    **changes: Any,
) -> AsyncIterator[TensorDoor]:
    """One tenant with a key, one model, and its endpoints; `others` are the endpoints of other pools."""
    tenant = {"name": "acme", "models": ["*"], "limits": limits or {}}
    rig = Rig(
        config(**{"tenants": [tenant], **changes}),
        {**{name: [fake] for name, fake in (others or {}).items()}, "main": list(fakes or [TensorFake()])},
    )
    fronts = client_fronts(rig.core)
    server = Server(fronts, Limits(max_body=1_000_000), openai_refusal)
    grpc = grpc_server(fronts.door, lambda: True, HttpConfig(max_body="1MB"))
    try:
        host, port = await server.listen_tcp("127.0.0.1", 0)
        _, grpc_port = await grpc.listen_tcp("127.0.0.1", 0)
        async with aiohttp.ClientSession(auto_decompress=False) as http:
            door = TensorDoor(rig, f"http://{host}:{port}", f"{host}:{grpc_port}", http)
            door.calls = grpc
            yield door
    finally:
        await server.aclose()
        await grpc.aclose()
    rig.assert_idle()
    assert all(record.ended for record in rig.log.records)


def zipped(body: Any) -> bytes:
    """The body of a client that compresses, the same at every moment."""
    return gzip.compress(body if isinstance(body, bytes) else json.dumps(body).encode(), mtime=0)


def binary(rows: int = 1) -> tuple[bytes, int]:
    """A request whose data follows the JSON, and the JSON's length."""
    sent = [
        {"name": name, "shape": [rows, 2], "datatype": "INT32", "parameters": {"binary_data_size": 8 * rows}}
        for name in "AB"
    ]
    head = json.dumps({"inputs": sent}).encode()
    return head + b"\x01\0\0\0\x02\0\0\0" * rows * 2, len(head)


def form(**fields: Any) -> Form:
    return Form("oip-http", **fields)
