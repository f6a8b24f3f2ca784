"""Both adapters before a real Triton: what it answers, refuses and streams, for requests of either wire."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, NotFound, Unavailable, Unsupported
from adapters.http1.client import Client
from adapters.http2.channel import Channel
from adapters.requests import InferRequest, ModelQuery
from adapters.tensors import Inference, Inferred, Tensor
from adapters.types import Deadline
from adapters.upstreams.oip.grpc_client import OipGrpcAdapter
from adapters.upstreams.oip.http_client import OipHttpAdapter
from adapters.wire import compression, sse
from adapters.wire.oip import (
    proto_requests as oip_proto,
)
from adapters.wire.oip import (
    proto_responses as oip_proto_answers,
)
from adapters.wire.oip import (
    requests as oip,
)
from adapters.wire.oip import (
    responses as oip_responses,
)
from adapters.wire.oip.proto_request_view import request_of as grpc_request_of
from adapters.wire.oip.request_view import request_of
from tests.servers.triton import Triton

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

PATIENCE = 300.0
ONES = (1).to_bytes(4, "little") * 16
INPUTS = [Tensor("INPUT0", "INT32", (1, 16), ONES), Tensor("INPUT1", "INT32", (1, 16), ONES)]
WIRES = ["oip-http", "oip-grpc"]
THREE = b"".join(number.to_bytes(4, "little") for number in (7, 8, 9))
REPEATED = [Tensor("IN", "INT32", (3,), THREE)]


@asynccontextmanager
async def adapting(server: Triton, wire: str) -> AsyncIterator[Adapter]:
    adapter: Adapter
    if wire == "oip-http":
        adapter = OipHttpAdapter(Client(f"http://{server.http}"))
    else:
        adapter = OipGrpcAdapter(Channel(f"http://{server.grpc}"))
    try:
        yield adapter
    finally:
        await adapter.aclose()


def request_of_wire(sent: str, inference: Inference, kind: Any = "infer") -> InferRequest:
    model, version = inference.model_name, inference.model_version
    if sent == "grpc":
        message = oip_proto.encode_infer_request(inference)
        return grpc_request_of(inference, message, model=model, version=version, kind=kind)
    body, length = oip.encode_request(inference, binary=sent == "binary")
    return request_of(body, model=model, version=version, kind=kind, header_length=length)


def within() -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + PATIENCE, PATIENCE, PATIENCE))


def read(answer: Answer) -> Inferred:
    assert answer.body is not None
    if answer.form.wire == "oip-grpc":
        return oip_proto_answers.decode_infer_response(answer.body)
    return oip_responses.decode_response(answer.body, answer.form.header_length)


async def streamed(answer: Answer) -> list[Inferred]:
    """The responses of a stream."""
    if answer.form.wire == "oip-grpc":
        parts = [oip_proto_answers.split_stream_response(message) async for message in answer]
        assert [error for error, _ in parts] == [""] * len(parts)
        return [oip_proto_answers.decode_infer_response(message) for _, message in parts]
    events = b"".join([piece async for piece in answer]).split(b"\n\n")
    return [oip_responses.decode_response(sse.data_of(event), None) for event in events if event]


@pytest.mark.parametrize("sent", ["json", "binary", "grpc"])
@pytest.mark.parametrize("wire", WIRES)
async def test_sums(real_triton: Triton, wire: str, sent: str) -> None:
    async with adapting(real_triton, wire) as adapter:
        inferred = read(
            await adapter.call(request_of_wire(sent, Inference("add_sub", id="7", inputs=INPUTS)), within())
        )
    outputs = {tensor.name: bytes(tensor.data) for tensor in inferred.outputs}
    assert outputs == {"OUTPUT0": (2).to_bytes(4, "little") * 16, "OUTPUT1": bytes(64)}
    assert (inferred.model_name, inferred.model_version, inferred.id) == ("add_sub", "1", "7")


@pytest.mark.parametrize("sent", ["json", "grpc"])
@pytest.mark.parametrize("wire", WIRES)
async def test_mistakes_are_the_callers(real_triton: Triton, wire: str, sent: str) -> None:
    """Triton reports some of them as its own failures."""
    async with adapting(real_triton, wire) as adapter:
        wrong = [
            Inference("add_sub", inputs=INPUTS[:1]),
            Inference("add_sub", inputs=[INPUTS[0], Tensor("INPUT9", "INT32", (1, 16), ONES)]),
            Inference("add_sub", inputs=[Tensor(one.name, "FP32", one.shape, one.data) for one in INPUTS]),
            Inference("add_sub", inputs=[Tensor(one.name, one.datatype, (16, 1), one.data) for one in INPUTS]),
        ]
        for inference in wrong:
            with pytest.raises(CallerError):
                await adapter.call(request_of_wire(sent, inference), within())
        with pytest.raises(NotFound, match="`add_sub` has no version `9`"):
            await adapter.call(request_of_wire(sent, Inference("add_sub", "9", inputs=INPUTS)), within())
        with pytest.raises(BackendError, match="does not know the model"):
            await adapter.call(request_of_wire(sent, Inference("nobody", inputs=INPUTS)), within())
        with pytest.raises(Unsupported, match="decoupled"):
            await adapter.call(request_of_wire(sent, Inference("repeat", inputs=REPEATED)), within())


async def test_json_that_triton_blames_itself_for(real_triton: Triton) -> None:
    body, _ = oip.encode_request(Inference("add_sub", inputs=INPUTS), binary=False)
    wrong = body.replace(b"[1,1,", b"[0.5,1,", 1)
    assert wrong != body
    async with adapting(real_triton, "oip-http") as adapter:
        with pytest.raises(CallerError, match="`INPUT0` is not INT32"):
            await adapter.call(request_of(wrong, model="add_sub", version=""), within())


@pytest.mark.parametrize("wire", WIRES)
async def test_questions(real_triton: Triton, wire: str) -> None:
    async with adapting(real_triton, wire) as adapter:
        await adapter.probe(PATIENCE)
        answers_by_query: dict[str, Any] = {}
        for about in ("metadata", "config", "stats", "ready"):
            answer = await adapter.call(ModelQuery(model="add_sub", about=about), within())
            answers_by_query[about] = json.loads(answer.body or b"")
        assert answers_by_query["metadata"]["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]}
        assert answers_by_query["config"]["max_batch_size"] == 8
        assert answers_by_query["config"]["input"][0]["dims"] == [16]
        assert answers_by_query["stats"]["model_stats"][0]["name"] == "add_sub"
        assert answers_by_query["ready"] == {"name": "add_sub", "ready": True}
        with pytest.raises(Unavailable):
            await adapter.call(ModelQuery(model="nobody", about="ready"), within())


async def test_both_wires_report_the_same_of_a_model(real_triton: Triton) -> None:
    documents: list[list[Any]] = []
    for wire in WIRES:
        async with adapting(real_triton, wire) as adapter:
            answers = [
                await adapter.call(ModelQuery(model="add_sub", about=a), within()) for a in ("metadata", "config")
            ]
            documents.append([json.loads(answer.body or b"") for answer in answers])
    (metadata, config), (other_metadata, other_config) = documents
    assert metadata == other_metadata
    assert {name: other_config[name] for name in config if name in other_config} == config


async def generating(adapter: Adapter, model: str, body: Any, kind: Any) -> Answer:
    request = request_of(json.dumps(body).encode(), model=model, version="", kind=kind)
    return await adapter.call(request, within())


@pytest.mark.parametrize("wire", WIRES)
async def test_prompts(real_triton: Triton, wire: str) -> None:
    async with adapting(real_triton, wire) as adapter:
        answer = await generating(adapter, "text", {"TEXT": ["abc"], "id": "7"}, "generate")
        if wire == "oip-http":
            assert json.loads(answer.body or b"")["SAME"] == "abc"
        else:
            assert bytes(read(answer).outputs[0].data) == b"\x03\0\0\0abc"
        with pytest.raises(Unsupported):
            await generating(adapter, "repeat", {"IN": [7, 8, 9]}, "generate")
        stream = await generating(adapter, "repeat", {"IN": [7, 8, 9]}, "generate_stream")
        if wire == "oip-http":
            pieces = b"".join([piece async for piece in stream]).split(b"\n\n")
            assert [json.loads(sse.data_of(piece))["OUT"] for piece in pieces if piece] == [7, 8, 9]
        else:
            assert [bytes(one.outputs[0].data)[0] for one in await streamed(stream)] == [7, 8, 9]


@pytest.mark.parametrize("sent", ["json", "grpc"])
@pytest.mark.parametrize("wire", WIRES)
async def test_streams(real_triton: Triton, wire: str, sent: str) -> None:
    """Over HTTP, Triton has them for prompts only."""
    async with adapting(real_triton, wire) as adapter:
        alone = request_of_wire(sent, Inference("add_sub", id="7", inputs=INPUTS), "infer_stream")
        responses = await streamed(await adapter.call(alone, within()))
        assert [one.id for one in responses] == ["7"]
        repeated = request_of_wire(sent, Inference("repeat", inputs=REPEATED), "infer_stream")
        if wire == "oip-http":
            with pytest.raises(Unsupported, match="decoupled"):
                await adapter.call(repeated, within())
            return
        responses = await streamed(await adapter.call(repeated, within()))
        assert [bytes(one.outputs[0].data)[0] for one in responses] == [7, 8, 9]
        with pytest.raises(CallerError):
            await adapter.call(request_of_wire(sent, Inference("repeat", inputs=INPUTS), "infer_stream"), within())


@pytest.mark.parametrize("wire", WIRES)
async def test_responses_before_a_failure_are_delivered(real_triton: Triton, wire: str) -> None:
    async with adapting(real_triton, wire) as adapter:
        answer = await generating(adapter, "repeat", {"IN": [7, -1]}, "generate_stream")
        await anext(answer)
        with pytest.raises(BackendError):
            await anext(answer)


@pytest.mark.parametrize("wire", WIRES)
async def test_raw_bodies(real_triton: Triton, wire: str) -> None:
    async with adapting(real_triton, wire) as adapter:
        request = request_of(THREE, model="repeat", version="", header_length=0, kind="infer_stream")
        if wire == "oip-grpc":
            assert len(await streamed(await adapter.call(request, within()))) == 3
        one = request_of(b"\0\0\x80\x3f", model="picky", version="", header_length=0)
        assert bytes(read(await adapter.call(one, within())).outputs[0].data) == b"\0\0\x80\x3f"


async def test_compressed_bodies(real_triton: Triton) -> None:
    body, length = oip.encode_request(Inference("add_sub", inputs=INPUTS))
    packed = compression.compress(body, "gzip")
    async with adapting(real_triton, "oip-http") as adapter:
        request = request_of(
            packed, model="add_sub", version="", header_length=length, encoding="gzip", opened=body, accepts="gzip"
        )
        answer = await adapter.call(request, within())
        assert answer.form.encoding == "gzip"
        plain = compression.decompress(answer.body or b"", "gzip", 10_000)
        assert len(oip_responses.decode_response(plain, answer.form.header_length).outputs) == 2
