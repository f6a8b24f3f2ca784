"""Our adapters before a real KServe: v2 over both wires, and v1 with transformer and explainer."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.errors import BackendError, CallerError, ModelFailed, NotFound, Unavailable, Unsupported
from adapters.requests import AppRequest, InferRequest, ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.wire.tfserving import predict_v1_view
from tests.servers.kserve import DECLARED, kserve
from tests.servers.pool_adapters import (
    PATIENCE,
    adapting,
    infer_request,
    outputs,
    prompted,
    streamed,
    with_body,
    within,
)
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.sums import ADD_SUB, DESCRIBED, ONES, SUMS, TWOS

WIRES = ["oip-http", "oip-grpc"]
wire = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture(scope="module")
def server() -> Started:
    return shared(kserve)


def before(server: Started, wire: str) -> Any:
    return adapting(server.url(WIRES.index(wire)), {"name": wire, "server": "kserve"})


@wire
@pytest.mark.parametrize("sent", ["json", "binary", "grpc"])
@pytest.mark.parametrize("id_", ["", "7"])
async def test_sums(server: Started, wire: str, sent: str, id_: str) -> None:
    """KServe requires an id, and clients need not send one."""
    async with before(server, wire) as adapter:
        await adapter.probe(PATIENCE)
        inference = Inference("add_sub", id=id_, inputs=ADD_SUB)
        actual = outputs(await adapter.call(infer_request(inference, sent), within()))
        assert {name: bytes(tensor.data) for name, tensor in actual.items()} == SUMS


@wire
async def test_streams_and_prompts(server: Started, wire: str) -> None:
    """It has neither: a stream is its one response, and a prompt is made tensors of."""
    async with before(server, wire) as adapter:
        request = infer_request(Inference("add_sub", inputs=ADD_SUB), kind="infer_stream")
        (response,) = await streamed(await adapter.call(request, within()))
        assert [bytes(tensor.data) for tensor in response.outputs] == [TWOS, bytes(64)]
        answer = await adapter.call(prompted("add_sub", {"INPUT0": [1] * 16, "INPUT1": [1] * 16}), within())
        if wire == "oip-http":
            assert json.loads(answer.body or b"")["OUTPUT0"] == [2] * 16
        else:
            assert bytes(outputs(answer)["OUTPUT0"].data) == TWOS


@wire
async def test_mistakes_and_failures(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        with pytest.raises(CallerError, match="it refuses all"):
            await adapter.call(infer_request(Inference("refuses", inputs=ADD_SUB)), within())
        with pytest.raises(CallerError):
            await adapter.call(misshapen(), within())
        # It blames itself for these, and for a failure of its model's, which it is.
        with pytest.raises(CallerError, match="expected 2 inputs but got 1 inputs"):
            await adapter.call(infer_request(Inference("add_sub", inputs=ADD_SUB[:1])), within())
        narrow = [Tensor(one.name, "INT32", (1, 8), ONES[:32]) for one in ADD_SUB]
        narrow[0].shape = (2, 4)
        with pytest.raises(CallerError, match="unexpected shape for input"):
            await adapter.call(infer_request(Inference("add_sub", inputs=narrow)), within())
        for model in ("nobody", "absent"):
            with pytest.raises(NotFound, match="does not exist"):
                await adapter.call(infer_request(Inference(model, inputs=ADD_SUB)), within())
        with pytest.raises(BackendError, match=r"The upstream failed|Internal server error") as caught:
            await adapter.call(infer_request(Inference("fails", inputs=ADD_SUB)), within())
        assert "secret" not in caught.value.message
        with pytest.raises(NotFound, match="`add_sub` has no version `1`"):
            await adapter.call(infer_request(Inference("add_sub", "1", inputs=ADD_SUB)), within())


def misshapen() -> InferRequest:
    request = infer_request(Inference("add_sub", inputs=ADD_SUB))
    return with_body(request, request.payload.body.replace(b"[1,16]", b"[1,17]"))


@wire
async def test_questions(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        response = json.loads((await adapter.call(ModelQuery(model="add_sub"), within())).body or b"")
        assert response["inputs"] == DESCRIBED
        with pytest.raises(Unavailable):
            await adapter.call(ModelQuery(model="absent", about="ready"), within())


# ── v1 ────────────────────────────────────────────────────────────────────────────────────────────────

ROW = {"INPUT0": [1, 2, 3], "INPUT1": [1, 1, 1]}
PREDICTIONS = {"predictions": [{"OUTPUT0": [2, 3, 4], "OUTPUT1": [0, 1, 2]}]}


@pytest.fixture(scope="module")
def transformer(server: Started) -> Iterator[Started]:
    with kserve(server) as running:
        yield running


def rows(model: str, *instances: Any, verb: Any = "predict") -> InferRequest:
    body = json.dumps({"instances": instances}).encode()
    return predict_v1_view.request_of(body, model=model, version="", verb=verb)


async def test_its_own_clients_bodies_go_on_as_they_came(server: Started) -> None:
    async with adapting(server.url(), "kserve-v1") as adapter:
        await adapter.probe(PATIENCE)
        answer = await adapter.call(rows("add_sub", ROW), within())
        assert (answer.form.wire, json.loads(answer.body or b"")) == ("predict-v1", PREDICTIONS)
        answer = await adapter.call(rows("add_sub", ROW, ROW, verb="explain"), within())
        assert json.loads(answer.body or b"") == {"explanations": {"reason": "they were added", "rows": 2}}


@pytest.mark.parametrize("sent", ["json", "grpc"])
async def test_tensors_that_are_declared(server: Started, sent: str) -> None:
    async with adapting(server.url(), DECLARED) as adapter:
        actual = outputs(await adapter.call(infer_request(Inference("add_sub", inputs=ADD_SUB), sent), within()))
        assert {name: bytes(tensor.data) for name, tensor in actual.items()} == SUMS
        response = json.loads((await adapter.call(ModelQuery(model="add_sub"), within())).body or b"")
        assert [tensor["name"] for tensor in response["inputs"]] == ["INPUT0", "INPUT1"]
        with pytest.raises(CallerError, match="expected 2 inputs but got 1 inputs"):
            await adapter.call(infer_request(Inference("add_sub", inputs=ADD_SUB[:1])), within())


async def test_tensors_that_are_not_declared(server: Started) -> None:
    async with adapting(server.url(), "kserve-v1") as adapter:
        with pytest.raises(Unsupported, match="No tensors are declared"):
            await adapter.call(infer_request(Inference("add_sub", inputs=ADD_SUB)), within())


async def test_a_transformer_is_an_endpoint_and_explanations_come_from_the_explainer(
    server: Started, transformer: Started
) -> None:
    protocol = {"name": "kserve-v1", "explainer": server.url()}
    async with adapting(transformer.url(), protocol, model="add_sub") as adapter:
        await adapter.probe(PATIENCE)
        response = json.loads((await adapter.call(rows("sums", ROW), within())).body or b"")
        assert response == {"predictions": [{"OUTPUT0": [4, 6, 8], "OUTPUT1": [0, 2, 4]}]}
        response = json.loads((await adapter.call(rows("sums", ROW, verb="explain"), within())).body or b"")
        assert response["explanations"]["rows"] == 1
    async with adapting(transformer.url(), "kserve-v1") as adapter:
        with pytest.raises(Unsupported, match="explainer"):
            await adapter.call(rows("add_sub", ROW, verb="explain"), within())


async def test_an_explainer_that_is_gone_is_not_the_endpoints_fault(server: Started) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        async with adapting(server.url(), {"name": "kserve-v1", "explainer": nowhere}) as adapter:
            with pytest.raises(Unavailable, match="explainer gave no answer") as caught:
                await adapter.call(rows("add_sub", ROW, verb="explain"), within())
            assert not caught.value.blames_endpoint
            assert (await adapter.call(rows("add_sub", ROW), within())).status == 200


async def test_refusals_of_v1(server: Started) -> None:
    async with adapting(server.url(), "kserve-v1") as adapter:
        with pytest.raises(CallerError, match="it refuses all"):
            await adapter.call(rows("refuses", ROW), within())
        with pytest.raises(CallerError, match="Send `instances`"):
            await adapter.call(predict_v1_view.request_of(b"{}", model="add_sub", version=""), within())
        with pytest.raises(BackendError, match="does not know the model"):
            await adapter.call(rows("nobody", ROW), within())
        with pytest.raises(ModelFailed, match=r"^RuntimeError : a secret of the server's$"):
            await adapter.call(rows("fails", ROW), within())
        with pytest.raises(Unsupported):
            await adapter.call(rows("add_sub", ROW, verb="classify"), within())
        versioned = replace(rows("add_sub", ROW), version="2")
        with pytest.raises(NotFound):
            await adapter.call(versioned, within())
        with pytest.raises(BackendError, match="cannot be decoded"):
            await adapter.call(rows("streams", ROW), within())
        with pytest.raises(Unavailable):
            await adapter.call(ModelQuery(model="absent", about="ready"), within())


async def test_its_paths_are_an_app(server: Started) -> None:
    """Streams of a model are available through them."""
    async with adapting(server.url(), "kserve-v1") as adapter:
        call = AppRequest(
            model="m", path="/v1/models/streams:predict", body=b'{"instances": []}', content_type="application/json"
        )
        answer = await adapter.call(call, within())
        assert b"".join([piece async for piece in answer]) == b"abc"
