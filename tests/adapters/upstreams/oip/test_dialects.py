"""The requests to servers that differ from Triton."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.call import Call
from adapters.errors import CallerError, NotFound, Unavailable
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.requests import ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.wire import compression
from adapters.wire.oip import requests as oip
from adapters.wire.oip.request_view import request_of
from tests.servers.pool_adapters import adapting, infer_request, within

ONE = Tensor("x", "FP32", (1,), bytes(4))
ANSWER = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}]}


class Router:
    """Records its requests, and answers 200 or the configured status."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.answer = Response(200, [("content-type", "application/json")], json.dumps(ANSWER).encode())

    async def __call__(self, http: Request) -> Response:
        self.received.append((http.path, dict(http.headers), await http.read()))
        return self.answer


@asynccontextmanager
async def routed(protocol: dict[str, Any], **fields: Any) -> AsyncIterator[tuple[Router, Any]]:
    router = Router()
    server = Server(router)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        async with adapting(f"http://{host}:{port}", protocol, **fields) as adapter:
            yield router, adapter
    finally:
        await server.aclose()


@pytest.mark.parametrize(
    ("model", "header", "path"),
    [
        (None, "m", "/v2/models/m/infer"),
        ("income", "income", "/v2/models/income/infer"),
        ("income.pipeline", "income.pipeline", "/v2/models/income/infer"),
    ],
)
async def test_seldons_router_receives_the_model(model: str | None, header: str, path: str) -> None:
    async with routed({"name": "oip-http", "server": "seldon"}, model=model) as (router, adapter):
        await adapter.call(infer_request(Inference("m", inputs=[ONE])), within())
        await adapter.call(ModelQuery(model="m", about="ready"), within())
    assert [(received[0], received[1]["seldon-model"]) for received in router.received] == [
        (path, header),
        (path.replace("infer", "ready"), header),
    ]


async def test_other_servers_do_not_receive_it() -> None:
    async with routed({"name": "oip-http", "server": "mlserver"}) as (router, adapter):
        await adapter.call(infer_request(Inference("m", inputs=[ONE])), within())
    assert "seldon-model" not in router.received[0][1]


@pytest.mark.parametrize("sent", ["json", "binary"])
@pytest.mark.parametrize("id_", ["", "7"])
async def test_kserve_gets_an_id(sent: str, id_: str) -> None:
    async with routed({"name": "oip-http", "server": "kserve"}) as (router, adapter):
        request = infer_request(Inference("m", id=id_, inputs=[ONE]), sent)
        await adapter.call(request, Call(within().deadline, "r"))
    _, headers, body = router.received[0]
    head, rest = oip.split(body, oip.header_length(headers.get(oip.HEADER)))
    assert json.loads(bytes(head))["id"] == (id_ or "r")
    assert len(rest) == (4 if sent == "binary" else 0)


async def test_kserve_has_no_versions() -> None:
    async with routed({"name": "oip-http", "server": "kserve"}) as (router, adapter):
        for request in (infer_request(Inference("m", "3", inputs=[ONE])), ModelQuery(model="m", version="3")):
            with pytest.raises(NotFound, match="has no version `3`"):
                await adapter.call(request, within())
    assert not router.received


async def test_a_server_without_extensions_receives_none() -> None:
    """Bodies that are only a tensor, and compressed bodies, are converted."""
    async with routed({"name": "oip-http", "server": "openvino"}) as (router, adapter):
        body, length = oip.encode_request(Inference("m", inputs=[ONE]), binary=True)
        packed = compression.compress(body, "gzip")
        request = request_of(packed, model="m", version="", header_length=length, encoding="gzip", opened=body)
        await adapter.call(request, within())
    assert "content-encoding" not in router.received[0][1]
    assert router.received[0][2] == body


async def test_a_model_that_is_not_ready_is_no_mistake() -> None:
    async with routed({"name": "oip-http", "server": "mlserver"}) as (router, adapter):
        for words, error in (("Model m is not ready yet.", Unavailable), ("m is odd", CallerError)):
            router.answer = Response(400, [("content-type", "application/json")], json.dumps({"error": words}).encode())
            with pytest.raises(error):
                await adapter.call(infer_request(Inference("m", inputs=[ONE])), within())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"id": 3}', b"\xff", b"[" * 5000])
def test_an_id_is_not_added_to_a_malformed_request(body: bytes) -> None:
    with pytest.raises(CallerError):
        oip.with_id(body, None, "1")


def test_an_id_that_is_none_is_replaced() -> None:
    body, length = oip.with_id(b'{"id": null, "inputs": []}tail', 26, "1")
    assert length is not None
    assert json.loads(body[:length]) == {"id": "1", "inputs": []}
    assert body[length:] == b"tail"


async def test_an_added_id_does_not_stay_in_the_request() -> None:
    request = infer_request(Inference("m", inputs=[ONE]), "grpc")
    async with routed({"name": "oip-http", "server": "kserve"}) as (router, adapter):
        for id_ in ("first", "second"):
            call = within()
            call.id = id_
            await adapter.call(request, call)
    lengths = [int(headers[oip.HEADER]) for _, headers, _ in router.received]
    sent = [json.loads(body[:length]) for length, (_, _, body) in zip(lengths, router.received, strict=True)]
    assert [head["id"] for head in sent] == ["first", "second"]
    assert request.inference.id == ""
