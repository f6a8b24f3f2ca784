"""Each protocol of a pool reaches a server that speaks it."""

import sys
from typing import Any

import pytest

from adapters.call import Call
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.tensors import Inferred
from adapters.types import Deadline
from adapters.wire.oip import proto_responses as oip_proto_answers
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.request_view import request_of
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.member import FleetError, tls_of
from tests.adapters.http1.raw import until
from tests.adapters.tensor_service import Service, serving
from tests.support.gateways import config

pytestmark = pytest.mark.realtime

REQUEST = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[1,2]}]}'


class Echo:
    """Echoes its inputs over HTTP, and records its requests."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str | None]] = []

    async def __call__(self, http: Request) -> Response:
        self.received.append((http.path, http.headers.get("authorization")))
        if http.path == "/v2/health/ready":
            return Response(200)
        length = oip.header_length(http.headers.get(oip.HEADER))
        inference = oip.decode_request(await http.read(), length, "m")
        body, length = oip_responses.encode_response(
            Inferred("m", "1", outputs=inference.inputs), oip_responses.binary_outputs(inference)
        )
        return Response(200, [(oip.HEADER, str(length))] if length is not None else [], body)


@pytest.mark.realtime  # gRPC has threads
@pytest.mark.parametrize("more", [{}, {"model": "theirs", "key": "secret-of-theirs"}])
async def test_oip_grpc(fleet: Fleet, more: dict[str, Any]) -> None:
    service = Service()
    async with serving(service) as url:
        written = {"name": "main", "protocol": "oip-grpc", "endpoints": [url], **more}
        pool = fleet.commit(fleet.prepare(config(pools=[written])))["main"]
        await until(lambda: pool.endpoints[0].health == "healthy")
        answer = await pool.call(request_of(REQUEST, model="chat", version=""), Call(Deadline(1e9, 30.0, 30.0)))
        assert answer.body is not None
        inferred = oip_proto_answers.decode_infer_response(answer.body)
        assert bytes(inferred.outputs[0].data) == bytes([1, 0, 0, 0, 2, 0, 0, 0])
        request = next(one for one in service.received if type(one).__name__ == "ModelInferRequest")
        assert request.model_name == more.get("model", "chat")
        authorizations = {metadata.get("authorization") for metadata in service.metadata}
        assert authorizations == {f"Bearer {more['key']}" if "key" in more else None}


def test_the_alpn_protocols_are_offered_to_servers_of_one_protocol_only() -> None:
    """gRPC's channel offers HTTP/2 by ALPN, which connections of other protocols must not offer."""
    (pool,) = config(pools=[{"name": "main", "protocol": "oip-grpc", "endpoints": ["https://127.0.0.1:9"]}]).pools
    contexts = {id(tls_of(pool, spoken)) for spoken in ("openai", "oip-http", "oip-grpc", "metrics", "oip-grpc")}
    assert len(contexts) == 4


async def test_a_missing_package_is_named_with_the_command_that_installs_it(fleet: Fleet, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "adapters.upstreams.oip.grpc_client", None)
    with pytest.raises(FleetError, match=r"pool main: oip-grpc needs .*pip install --editable '\.\[grpc\]'"):
        fleet.prepare(config(pools=[{"name": "main", "protocol": "oip-grpc", "endpoints": ["http://127.0.0.1:9"]}]))


@pytest.mark.parametrize(
    "more", [{}, {"protocol": {"name": "oip-http", "binary": False}}, {"model": "theirs", "key": "secret-of-theirs"}]
)
async def test_oip_http(fleet: Fleet, more: dict[str, Any]) -> None:
    echo = Echo()
    server = Server(echo)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    written = {"name": "main", "protocol": "oip-http", "endpoints": [f"http://{host}:{port}"], **more}
    pool = fleet.commit(fleet.prepare(config(pools=[written])))["main"]
    await until(lambda: pool.endpoints[0].health == "healthy")
    answer = await pool.call(request_of(REQUEST, model="chat", version=""), Call(Deadline(1e9, 30.0, 30.0)))
    assert answer.body is not None
    assert bytes(oip_responses.decode_response(answer.body, answer.form.header_length).outputs[0].data) == bytes(
        [1, 0, 0, 0, 2, 0, 0, 0]
    )
    key = f"Bearer {more['key']}" if "key" in more else None
    assert ("/v2/health/ready", key) in echo.received
    assert (f"/v2/models/{more.get('model', 'chat')}/infer", key) in echo.received
    await server.aclose()
