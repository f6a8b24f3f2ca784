"""Large requests of tensors are rewritten and separated off the event loop, as small ones are on the loop."""

from collections.abc import Callable
from typing import Any

import pytest

from adapters import offload
from adapters.errors import CallerError
from adapters.offload import codecs
from adapters.requests import InferRequest, ModelRequest
from adapters.tensors import Inference, Tensor
from adapters.wire.oip import proto_requests, request_view
from adapters.wire.oip import requests as oip
from adapters.wire.oip.proto_requests import encode_infer_request
from adapters.wire.tfserving import predict, predict_v1_view, predict_view
from config.schema.config import RewriteConfig
from gateway.request import path_parts
from policies.routing.rewrite import Rewrite
from tests.support.turns import Turns, most_seconds

pytestmark = pytest.mark.processes

MiB = 1024 * 1024
SIZES = (1, 1 * MiB, 31 * MiB)
REWRITE = Rewrite(RewriteConfig(model="other", force={"a": 1}, drop=["b"], defaults={"sequence_start": True}))


def inference(size: int) -> Inference:
    data = b"x" * size
    return Inference("m", "", "1", {"sequence_id": 7, "b": 2}, [Tensor("x", "UINT8", (1, size), data)])


def as_json(size: int) -> InferRequest:
    text = b'{"parameters": {"sequence_id": 7, "b": 2}, "inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 1],'
    body = text + b' "data": ["%b"]}]}' % (b"x" * size)
    return request_view.request_of(body, model="m", version="", accepts="gzip")


def as_binary(size: int) -> InferRequest:
    body, length = oip.encode_request(inference(size))
    return request_view.request_of(body, model="m", version="", header_length=length)


def as_grpc(size: int) -> InferRequest:
    decoded = inference(size)
    body = encode_infer_request(decoded)
    return proto_requests.request_of(decoded, body, model="m", version="", kind="infer", timeout=3.0)


def as_prediction(size: int) -> InferRequest:
    message = predict.encode_request(inference(size), "m")
    return predict_view.request_of(predict_view.summarize(message), message, model="m", version="")


def as_rows(size: int) -> InferRequest:
    body = b'{"signature_name": "s", "instances": ["%b"]}' % (b"x" * size)
    look = predict_v1_view.summarize(body)
    return predict_v1_view.request_of(body, model="m", version="", verb="predict", look=look)


WIRES: dict[str, Callable[[int], InferRequest]] = {
    "JSON": as_json,
    "binary": as_binary,
    "gRPC": as_grpc,
    "prediction": as_prediction,
    "rows": as_rows,
}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the calls that left the process."""
    sizes: list[int] = []
    run: Any = offload.worker_queue.run

    async def counted(size: int, *args: Any, **kwargs: Any) -> Any:
        if size >= offload.LARGE:
            sizes.append(size)
        return await run(size, *args, **kwargs)

    monkeypatch.setattr("adapters.offload.worker_queue.run", counted)
    return sizes


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wire", list(WIRES))
async def test_no_turn_rewrites_a_large_request(wire: str, size: int, worker: list[int]) -> None:
    request, plain = WIRES[wire](size), WIRES[wire](size)
    with Turns() as turns:
        got = await path_parts.rewritten(REWRITE, request)
    fields = REWRITE(plain.codec.fields(plain), lambda name: plain.codec.accepts(plain, name))
    assert same(got, plain.codec.rewrite(plain, fields))
    assert bool(worker) == (size > offload.SCANNED)
    assert turns.longest < most_seconds()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wire", ["JSON", "binary", "gRPC"])
async def test_no_turn_separates_a_large_request(wire: str, size: int, worker: list[int]) -> None:
    request, plain = WIRES[wire](size), WIRES[wire](size)
    with Turns() as turns:
        got = await path_parts.separated(request, "acme")
    assert same(got, plain.codec.separate(plain, "acme"))
    assert bool(worker) == (size > offload.SCANNED)
    assert turns.longest < most_seconds()


async def test_a_large_request_that_a_route_cannot_rewrite_is_refused() -> None:
    body = b"x" * (offload.SCANNED + 1)
    raw = request_view.request_of(body, model="m", version="", header_length=0)
    with pytest.raises(CallerError, match="takes no raw request"):
        await path_parts.rewritten(REWRITE, raw)


def same(one: ModelRequest, other: ModelRequest) -> bool:
    """Equal for an upstream. The parameters of a message of gRPC have any order."""
    assert isinstance(one, InferRequest)
    assert isinstance(other, InferRequest)
    return type(one.codec) is type(other.codec) and parts(one) == parts(other)


def parts(request: InferRequest) -> list[Any]:
    payload = request.payload
    fields = [getattr(request, name) for name in request.__struct_fields__ if name not in ("codec", "payload")]
    if payload.wire == "oip-grpc":
        return [*fields, request.codec.inference(request)]
    return [*fields, *(getattr(payload, name) for name in payload.__struct_fields__ if name != "decoded")]


async def test_the_tensors_of_a_step_are_encoded_in_small_steps() -> None:
    whole = inference(31 * MiB)
    with Turns() as turns:
        got = await codecs.request_from(whole, 5)
    assert turns.longest < most_seconds()
    assert turns.number >= 31
    expected = request_view.request_from(whole, 5)
    assert parts(got) == parts(expected)
