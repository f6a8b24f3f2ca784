"""Our adapters before OpenVINO Model Server's stand-in: both wires, its configuration, its texts, how it is found."""

import json
from typing import Any

import pytest

from adapters.detection.detect import detect
from adapters.errors import BackendError, CallerError, NotFound, Unavailable, Unsupported
from adapters.registry import Address
from adapters.requests import ModelOrder, ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.upstreams.oip import dialects
from adapters.wire import compression
from adapters.wire.oip import requests as oip
from adapters.wire.oip.request_view import request_of
from adapters.wire.openai import chat as openai
from tests.servers.ovms import ovms as serving
from tests.servers.pool_adapters import PATIENCE, adapting, infer_request, outputs, prompted, streamed, within
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.sums import ADD_SUB, DESCRIBED, OF_ANOTHER_TYPE, ONES, SUMS, TWOS
from tests.support.gateways import config

WIRES = ["oip-http", "oip-grpc"]
wire = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture(scope="module")
def server() -> Started:
    return shared(serving)


def before(server: Started, wire: str) -> Any:
    return adapting(server.url(WIRES.index(wire)), {"name": wire, "server": "openvino"})


@wire
@pytest.mark.parametrize("sent", ["json", "binary", "grpc"])
async def test_sums(server: Started, wire: str, sent: str) -> None:
    async with before(server, wire) as adapter:
        await adapter.probe(PATIENCE)
        for version in ("", "1"):
            inference = Inference("add_sub", version, id="7", inputs=ADD_SUB)
            actual = outputs(await adapter.call(infer_request(inference, sent), within()))
            assert {name: bytes(one.data) for name, one in actual.items()} == SUMS


async def test_compressed_bodies_and_prompts(server: Started) -> None:
    """It understands neither."""
    body, length = oip.encode_request(Inference("add_sub", inputs=ADD_SUB))
    packed = compression.compress(body, "gzip")
    async with before(server, "oip-http") as adapter:
        request = request_of(packed, model="add_sub", version="", header_length=length, encoding="gzip", opened=body)
        assert bytes(outputs(await adapter.call(request, within()))["OUTPUT0"].data) == TWOS
        answer = await adapter.call(prompted("add_sub", {"INPUT0": [1] * 16, "INPUT1": [1] * 16}), within())
        assert json.loads(answer.body or b"")["OUTPUT0"] == [2] * 16


@wire
async def test_a_model_that_is_no_graph_streams_its_one_response(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        for _ in range(2):
            request = infer_request(Inference("add_sub", inputs=ADD_SUB), kind="infer_stream")
            (response,) = await streamed(await adapter.call(request, within()))
            assert bytes(response.outputs[0].data) == TWOS
        with pytest.raises(NotFound, match="does not exist"):
            await adapter.call(infer_request(Inference("nobody", inputs=ADD_SUB), kind="infer_stream"), within())


@wire
async def test_mistakes(server: Started, wire: str) -> None:
    wrong = [
        (Inference("add_sub", inputs=ADD_SUB[:1]), "Required input: INPUT1"),
        (Inference("add_sub", inputs=OF_ANOTHER_TYPE), "precision"),
        (Inference("add_sub", inputs=[Tensor(one.name, "INT32", (2, 8), ONES) for one in ADD_SUB]), "shape"),
    ]
    async with before(server, wire) as adapter:
        for inference, words in wrong:
            with pytest.raises(CallerError, match=words):
                await adapter.call(infer_request(inference), within())
        with pytest.raises(NotFound, match="`add_sub` has no version `9`"):
            await adapter.call(infer_request(Inference("add_sub", "9", inputs=ADD_SUB)), within())


@wire
async def test_questions(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        metadata = json.loads((await adapter.call(ModelQuery(model="add_sub"), within())).body or b"")
        assert metadata["inputs"] == DESCRIBED
        with pytest.raises(Unsupported):
            await adapter.call(ModelQuery(model="add_sub", about="stats"), within())


async def test_its_configuration_is_read_again() -> None:
    """The server is its own, since loaded models stay."""
    with serving() as server:
        async with before(server, "oip-http") as adapter:
            with pytest.raises(Unavailable):
                await adapter.call(ModelQuery(model="late", about="ready"), within())
            for _ in range(2):
                await adapter.call(ModelOrder(model="late", order="load", body=b"{}"), within())
            await adapter.call(ModelQuery(model="late", about="ready"), within())
            with pytest.raises(NotFound, match="does not exist"):
                await adapter.call(ModelOrder(model="nobody", order="load"), within())
            with pytest.raises(Unsupported, match="configuration file"):
                await adapter.call(ModelOrder(model="late", order="unload"), within())
        async with before(server, "oip-grpc") as adapter:
            with pytest.raises(Unsupported):
                await adapter.call(ModelOrder(model="late", order="load"), within())


@pytest.mark.parametrize("root", ["", "/v1", "/v3"])
async def test_its_texts(server: Started, root: str) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "one two"}]}
    async with adapting(server.url() + root, {"name": "openai", "dialect": "openvino"}) as adapter:
        await adapter.probe(PATIENCE)
        whole = await adapter.call(openai.decode_chat(json.dumps(body).encode()), within())
        assert json.loads(whole.body or b"")["choices"][0]["message"]["content"] == "one two"
        stream = await adapter.call(openai.decode_chat(json.dumps({**body, "stream": True}).encode()), within())
        assert b"".join([piece async for piece in stream]).count(b"data: ") >= 3


async def test_it_is_detected(server: Started) -> None:
    pool = config(pools=[{"name": "main", "endpoints": [server.url()]}]).pools[0]
    detected = await detect(pool, Address(server.url()))
    assert detected is not None
    assert detected.system == "OpenVINO Model Server"
    assert detected.pools[0].protocol == {"name": "oip-http", "server": "openvino"}
    assert [model.name for model in detected.pools[0].models] == ["add_sub"]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"m": 3}', b"\xff", b"[" * 5000])
def test_a_state_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(BackendError):
        dialects.listed_state(body, "m")


def test_states() -> None:
    body = b'{"m": {"model_version_status": [{"version": "1", "state": "LOADING"}]}, "n": {"model_version_status": []}}'
    assert [dialects.listed_state(body, name) for name in ("m", "n", "o")] == [False, False, None]
    assert dialects.listed_state(body.replace(b"LOADING", b"AVAILABLE"), "m") is True
