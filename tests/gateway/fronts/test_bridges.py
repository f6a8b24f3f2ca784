"""Clients of either wire reach servers of either wire, with everything that both have a form for."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc
import tritonclient.http.aio as triton_http
from tritonclient.grpc import service_pb2

from adapters.base import Adapter
from adapters.http1.client import Client
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from adapters.http2.channel import Channel
from adapters.tensors import Inferred, Parameter
from adapters.upstreams.oip.grpc_client import OipGrpcAdapter
from adapters.upstreams.oip.http_client import OipHttpAdapter
from adapters.wire import compression, sse
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from tests.adapters.tensor_service import Service, echo, serving
from tests.gateway.fronts.oip import TensorDoor, tensor_door
from tests.support.doors import Before

pytestmark = pytest.mark.realtime  # gRPC has threads

INPUTS = [TensorMetadata("x", "INT32", (-1, 2)), TensorMetadata("s", "BYTES", (-1, 1))]
METADATA = ModelMetadata("chat", ["1"], "test", INPUTS, INPUTS)
WORDS = np.array([[b"a"], ["é".encode()]], dtype=np.object_)
KINDS = ["http", "http without binary tensors", "http without streams", "grpc"]


class HttpEcho:
    """Answers with its inputs, twice in a stream."""

    def __init__(self, *, binary: bool = True, streams: bool = True) -> None:
        self._binary = binary
        self._streams = streams

    async def __call__(self, http: Request) -> Response:
        operation = http.path.removeprefix("/v2/models/chat").lstrip("/")
        length, body = oip.header_length(http.headers.get(oip.HEADER)), await http.read()
        coding = http.headers.get("content-encoding")
        if not self._binary and (length is not None or coding):
            return Response(422, (), b'{"error":"no such bodies here"}')
        if operation == "":
            return Response(200, (), oip_bodies.encode(METADATA))
        if operation.startswith("generate"):
            inference = oip_generate.decode_generate(body, "chat", "", {one.name: one for one in INPUTS})
        elif operation == "infer" or (operation == "infer_stream" and self._streams):
            inference = oip.decode_request(body, length, "chat")
        else:
            return Response(404)
        answer = Inferred("chat", "1", inference.id, _typed_parameters(inference.parameters), inference.inputs)
        if operation == "generate":
            return Response(200, (), oip_generate.encode_generate(answer))
        if operation == "generate_stream":
            return _events(oip_generate.encode_generate(answer))
        if operation == "infer_stream":
            return _events(oip_responses.encode_response(answer)[0])
        encoded, length = oip_responses.encode_response(answer, oip_responses.binary_outputs(inference))
        headers = [(oip.HEADER, str(length))] if length is not None else []
        if self._binary and (accepted := compression.chosen(http.headers.get("accept-encoding"))):
            encoded = compression.compress(encoded, accepted)
            headers.append(("content-encoding", accepted))
        return Response(200, headers, encoded)


def _typed_parameters(parameters: Any) -> dict[str, Parameter]:
    return {name: value for name, value in parameters.items() if name == "mine"}


def _events(body: bytes) -> Response:
    return Response(200, [("content-type", "text/event-stream")], sse.encode(body) * 2)


def grpc_echo() -> Service:
    def answer(request: Any, context: Any) -> Any:
        response = echo(request, context)
        response.model_version = "1"
        if "mine" in request.parameters:
            response.parameters["mine"].CopyFrom(request.parameters["mine"])
        return response

    def twice(request: Any, context: Any) -> Iterator[Any]:
        for _ in range(2):
            yield service_pb2.ModelStreamInferResponse(infer_response=answer(request, context))

    service = Service()
    service.behaviour, service.stream = answer, twice
    service.inputs = [(one.name, one.datatype, one.shape) for one in INPUTS]
    return service


@asynccontextmanager
async def before(adapter: Adapter) -> AsyncIterator[TensorDoor]:
    try:
        async with tensor_door(Before(adapter)) as door:
            yield door
    finally:
        await adapter.aclose()


@asynccontextmanager
async def bridged(kind: str) -> AsyncIterator[TensorDoor]:
    """A gateway before a server of that kind."""
    if kind == "grpc":
        async with serving(grpc_echo()) as url, before(OipGrpcAdapter(Channel(url))) as door:
            yield door
        return
    server = Server(HttpEcho(binary="binary" not in kind, streams="streams" not in kind))
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        async with before(OipHttpAdapter(Client(f"http://{host}:{port}"), binary="binary" not in kind)) as door:
            yield door
    finally:
        await server.aclose()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("binary", [True, False])
async def test_tritons_http_client(kind: str, binary: bool) -> None:
    async with bridged(kind) as door, triton_http.InferenceServerClient(door.address) as client:
        x = triton_http.InferInput("x", [2, 2], "INT32")
        x.set_data_from_numpy(np.array([[1, 2], [3, 4]], np.int32), binary_data=binary)
        s = triton_http.InferInput("s", [2, 1], "BYTES")
        s.set_data_from_numpy(WORDS, binary_data=binary)
        requested = [triton_http.InferRequestedOutput(name, binary_data=binary) for name in "xs"]
        for outputs, coding in ((None, None), (requested, "gzip")):
            result = await client.infer(
                "chat", [x, s], outputs=outputs, request_id="7", headers=door.keyed, parameters={"mine": 5},
                request_compression_algorithm=coding, response_compression_algorithm=coding,
            )  # fmt: skip
            assert result.as_numpy("x").tolist() == [[1, 2], [3, 4]]
            assert [
                [word.encode() if isinstance(word, str) else word for word in row] for row in result.as_numpy("s")
            ] == (WORDS.tolist())
            response = result.get_response()
            assert (response["model_name"], response["model_version"], response["id"]) == ("chat", "1", "7")
            assert response["parameters"] == {"mine": 5}


@pytest.mark.parametrize("kind", KINDS)
async def test_tritons_grpc_client(kind: str) -> None:
    async with bridged(kind) as door:
        client = triton_grpc.InferenceServerClient(door.grpc)
        try:
            x = triton_grpc.InferInput("x", [2, 2], "INT32")
            x.set_data_from_numpy(np.array([[1, 2], [3, 4]], np.int32))
            s = triton_grpc.InferInput("s", [2, 1], "BYTES")
            s.set_data_from_numpy(WORDS)
            result = await client.infer("chat", [x, s], request_id="7", headers=door.keyed, parameters={"mine": 5})
            assert result.as_numpy("x").tolist() == [[1, 2], [3, 4]]
            assert result.as_numpy("s").tolist() == WORDS.tolist()
            response = result.get_response()
            assert (response.model_version, response.id, response.parameters["mine"].int64_param) == ("1", "7", 5)

            async def requests() -> AsyncIterator[dict[str, Any]]:
                yield {"model_name": "chat", "inputs": [x, s], "request_id": "8"}

            answers = [one async for one in client.stream_infer(requests(), headers=door.keyed)]
            assert [error for _, error in answers] == [None] * (1 if "streams" in kind else 2)
            assert answers[0][0].as_numpy("x").tolist() == [[1, 2], [3, 4]]
        finally:
            await client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_prompts_and_streams_over_http(kind: str) -> None:
    async with bridged(kind) as door:
        response = await door.post("/v2/models/chat/generate", {"x": [1, 2], "s": "é", "mine": True})
        assert json.loads(await response.read()) == {
            "model_name": "chat", "model_version": "1", "mine": True, "x": [1, 2], "s": "é"
        }  # fmt: skip
        for path in ("generate_stream", "infer_stream"):
            x = {"name": "x", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}
            body = {"x": [1, 2], "s": "é"} if path == "generate_stream" else {"inputs": [x]}
            response = await door.post(f"/v2/models/chat/{path}", body)
            assert response.content_type == "text/event-stream"
            events = (await response.read()).split(b"\n\n")
            assert len(events) == (2 if path == "infer_stream" and "streams" in kind else 3)
            event = json.loads(events[0].removeprefix(b"data: "))
            assert (event["x"] if path == "generate_stream" else event["outputs"][0]["data"]) == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_undecodable_request_is_a_client_error_on_every_wire(kind: str) -> None:
    async with bridged(kind) as door:
        wrong = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1, 2], "data": [0.5, 1]}]}
        response = await door.post("/v2/models/chat/infer", wrong)
        assert response.status == 400
        assert "`x`" in json.loads(await response.read())["error"]


async def test_numbers_without_a_form_in_json_go_between_wires_that_have_one() -> None:
    """BF16, and a NaN, both from HTTP's binary form to gRPC's and back."""
    async with bridged("grpc") as door:
        tensors = [("x", "BF16", b"\x80\x3f\xc0\x7f"), ("y", "FP32", b"\0\0\xc0\x7f\0\0\x80\x3f")]
        head = json.dumps({
            "inputs": [
                {"name": name, "datatype": datatype, "shape": [2], "parameters": {"binary_data_size": len(data)}}
                for name, datatype, data in tensors
            ],
            "parameters": {"binary_data_output": True},
        }).encode()  # fmt: skip
        body = head + b"".join(data for _, _, data in tensors)
        headers = {"Inference_Header_Content_Length": str(len(head))}
        response = await door.post("/v2/models/chat/infer", body, **headers)
        length = int(response.headers["Inference-Header-Content-Length"])
        assert (await response.read())[length:] == b"".join(data for _, _, data in tensors)
