"""Both adapters before a real Triton: what it answers, refuses and streams, for requests of either wire."""

import json
from typing import Any

import pytest

from adapters.errors import BackendError, CallerError, NotFound, Unsupported
from adapters.requests import ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.upstreams.inferred import inferred
from adapters.wire import compression, sse
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.request_view import request_of
from tests.servers.pool_adapters import adapting, infer_request, outputs, prompted, streamed, within
from tests.servers.sums import ADD_SUB, DESCRIBED, OF_ANOTHER_TYPE, ONES, SUMS
from tests.servers.triton import Triton

WIRES = ["oip-http", "oip-grpc"]
THREE = b"".join(number.to_bytes(4, "little") for number in (7, 8, 9))
REPEATED = [Tensor("IN", "INT32", (3,), THREE)]


def before(server: Triton, wire: str) -> Any:
    return adapting(f"http://{server.http if wire == 'oip-http' else server.grpc}", wire)


@pytest.mark.parametrize("sent", ["json", "binary", "grpc"])
@pytest.mark.parametrize("wire", WIRES)
async def test_sums(real_triton: Triton, wire: str, sent: str) -> None:
    async with before(real_triton, wire) as adapter:
        answer = await adapter.call(infer_request(Inference("add_sub", id="7", inputs=ADD_SUB), sent), within())
    response = inferred(answer)
    assert {tensor.name: bytes(tensor.data) for tensor in response.outputs} == SUMS
    assert (response.model_name, response.model_version, response.id) == ("add_sub", "1", "7")


@pytest.mark.parametrize("sent", ["json", "grpc"])
@pytest.mark.parametrize("wire", WIRES)
async def test_mistakes_are_the_callers(real_triton: Triton, wire: str, sent: str) -> None:
    """Triton reports some of them as its own failures."""
    async with before(real_triton, wire) as adapter:
        wrong = [
            Inference("add_sub", inputs=ADD_SUB[:1]),
            Inference("add_sub", inputs=[ADD_SUB[0], Tensor("INPUT9", "INT32", (1, 16), ONES)]),
            Inference("add_sub", inputs=OF_ANOTHER_TYPE),
            Inference("add_sub", inputs=[Tensor(one.name, one.datatype, (16, 1), one.data) for one in ADD_SUB]),
        ]
        for inference in wrong:
            with pytest.raises(CallerError):
                await adapter.call(infer_request(inference, sent), within())
        with pytest.raises(NotFound, match="`add_sub` has no version `9`"):
            await adapter.call(infer_request(Inference("add_sub", "9", inputs=ADD_SUB), sent), within())
        with pytest.raises(Unsupported, match="decoupled"):
            await adapter.call(infer_request(Inference("repeat", inputs=REPEATED), sent), within())


async def test_json_that_triton_blames_itself_for(real_triton: Triton) -> None:
    body, _ = oip.encode_request(Inference("add_sub", inputs=ADD_SUB), binary=False)
    wrong = body.replace(b"[1,1,", b"[0.5,1,", 1)
    assert wrong != body
    async with before(real_triton, "oip-http") as adapter:
        with pytest.raises(CallerError, match="`INPUT0` is not INT32"):
            await adapter.call(request_of(wrong, model="add_sub", version=""), within())


async def test_both_wires_report_the_same_of_a_model(real_triton: Triton) -> None:
    documents: list[list[Any]] = []
    for wire in WIRES:
        async with before(real_triton, wire) as adapter:
            queries = [ModelQuery(model="add_sub", about=about) for about in ("metadata", "config", "stats")]
            documents.append([json.loads((await adapter.call(one, within())).body or b"") for one in queries])
    (metadata, config, stats), (other_metadata, other_config, other_stats) = documents
    assert metadata == other_metadata
    assert metadata["inputs"] == DESCRIBED
    assert {name: other_config[name] for name in config if name in other_config} == config
    assert config["max_batch_size"] == 8
    assert stats["model_stats"][0]["name"] == other_stats["model_stats"][0]["name"] == "add_sub"


@pytest.mark.parametrize("wire", WIRES)
async def test_prompts(real_triton: Triton, wire: str) -> None:
    async with before(real_triton, wire) as adapter:
        answer = await adapter.call(prompted("text", {"TEXT": ["abc"], "id": "7"}), within())
        if wire == "oip-http":
            assert json.loads(answer.body or b"")["SAME"] == "abc"
        else:
            assert bytes(outputs(answer)["SAME"].data) == b"\x03\0\0\0abc"
        with pytest.raises(Unsupported):
            await adapter.call(prompted("repeat", {"IN": [7, 8, 9]}), within())
        stream = await adapter.call(prompted("repeat", {"IN": [7, 8, 9]}, "generate_stream"), within())
        if wire == "oip-http":
            pieces = b"".join([piece async for piece in stream]).split(b"\n\n")
            assert [json.loads(sse.data_of(piece))["OUT"] for piece in pieces if piece] == [7, 8, 9]
        else:
            assert [bytes(one.outputs[0].data)[0] for one in await streamed(stream)] == [7, 8, 9]


@pytest.mark.parametrize("sent", ["json", "grpc"])
@pytest.mark.parametrize("wire", WIRES)
async def test_streams(real_triton: Triton, wire: str, sent: str) -> None:
    """Over HTTP, Triton has them for prompts only."""
    async with before(real_triton, wire) as adapter:
        alone = infer_request(Inference("add_sub", id="7", inputs=ADD_SUB), sent, "infer_stream")
        responses = await streamed(await adapter.call(alone, within()))
        assert [one.id for one in responses] == ["7"]
        repeated = infer_request(Inference("repeat", inputs=REPEATED), sent, "infer_stream")
        if wire == "oip-http":
            with pytest.raises(Unsupported, match="decoupled"):
                await adapter.call(repeated, within())
            return
        responses = await streamed(await adapter.call(repeated, within()))
        assert [bytes(one.outputs[0].data)[0] for one in responses] == [7, 8, 9]
        with pytest.raises(CallerError):
            await adapter.call(infer_request(Inference("repeat", inputs=ADD_SUB), sent, "infer_stream"), within())


@pytest.mark.parametrize("wire", WIRES)
async def test_responses_before_a_failure_are_delivered(real_triton: Triton, wire: str) -> None:
    async with before(real_triton, wire) as adapter:
        answer = await adapter.call(prompted("repeat", {"IN": [7, -1]}, "generate_stream"), within())
        await anext(answer)
        with pytest.raises(BackendError):
            await anext(answer)


@pytest.mark.parametrize("wire", WIRES)
async def test_raw_bodies(real_triton: Triton, wire: str) -> None:
    async with before(real_triton, wire) as adapter:
        request = request_of(THREE, model="repeat", version="", header_length=0, kind="infer_stream")
        if wire == "oip-grpc":
            assert len(await streamed(await adapter.call(request, within()))) == 3
        one = request_of(b"\0\0\x80\x3f", model="picky", version="", header_length=0)
        assert bytes(outputs(await adapter.call(one, within()))["ROOT"].data) == b"\0\0\x80\x3f"


async def test_compressed_bodies(real_triton: Triton) -> None:
    body, length = oip.encode_request(Inference("add_sub", inputs=ADD_SUB))
    packed = compression.compress(body, "gzip")
    async with before(real_triton, "oip-http") as adapter:
        request = request_of(
            packed, model="add_sub", version="", header_length=length, encoding="gzip", opened=body, accepts="gzip"
        )
        answer = await adapter.call(request, within())
        assert answer.form.encoding == "gzip"
        plain = compression.decompress(answer.body or b"", "gzip", 10_000)
        assert len(oip_responses.decode_response(plain, answer.form.header_length).outputs) == 2
