"""The adapter of the Open Inference Protocol over gRPC, against gRPC's own server."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from msgspec.structs import replace
from tritonclient.grpc import service_pb2

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ComputationLost,
    DeadlineError,
    InferenceError,
    ModelFailed,
    NotFound,
    NotThere,
    PoisonRequest,
    TooLarge,
    TransportError,
    Unavailable,
    Unsupported,
    UpstreamTimeout,
)
from adapters.requests import InferRequest, ModelOrder, ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.types import OIP_GRPC, OIP_JSON, Deadline, Usage
from adapters.upstreams.oip.grpc_client import OipGrpcAdapter
from adapters.wire.oip import proto_requests as oip_proto
from adapters.wire.oip import proto_responses as oip_proto_answers
from adapters.wire.oip import requests as oip
from adapters.wire.oip.bodies import GrpcPayload
from adapters.wire.oip.proto_requests import request_of as grpc_request_of
from adapters.wire.oip.proto_responses import encode_stream_error
from adapters.wire.oip.request_view import request_of
from tests.adapters.http2.channels import calling
from tests.adapters.tensor_service import PATIENCE, Service, echo, failing, serving
from tests.adapters.wire.tensors import load_body, same
from tests.support.openai_answers import chat

pytestmark = pytest.mark.realtime

X = Tensor("x", "INT32", (2, 1), b"\x01\0\0\0\x02\0\0\0")


def grpc_request(kind: Any = "infer", version: str = "", **more: Any) -> InferRequest:
    """A request that came over gRPC, under names of its client's own."""
    inference = Inference("its-client-says", "7", "id-1", inputs=[X], **more)
    message = oip_proto.encode_infer_request(inference)
    return grpc_request_of(inference, message, model="m", version=version, kind=kind)


def over_http(body: bytes, length: int | None = None, **more: Any) -> InferRequest:
    return request_of(body, model="m", version="", header_length=length, **more)


def within(seconds: float = PATIENCE) -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + seconds, PATIENCE, PATIENCE), "req-1")


@asynccontextmanager
async def adapting(service: Service, *handlers: Any, **options: Any) -> AsyncIterator[OipGrpcAdapter]:
    async with serving(service, *handlers) as url, calling(url) as channel:
        yield OipGrpcAdapter(channel, **options)


async def call(service: Service, request: Any = None, **options: Any) -> Answer:
    async with adapting(service, **options) as adapter:
        return await adapter.call(request or grpc_request(), within())


# ── tensors ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_is_forwarded_under_the_pools_names() -> None:
    service = Service()
    answer = await call(service, grpc_request(version="3"))
    request, metadata = service.received[0], service.metadata[0]
    assert (request.model_name, request.model_version, request.id) == ("m", "3", "id-1")
    assert list(request.raw_input_contents) == [X.data]
    assert metadata["x-request-id"] == "req-1"
    assert 0 < metadata["left"] <= PATIENCE + 1
    assert answer.form == OIP_GRPC
    assert answer.body is not None
    inferred = oip_proto_answers.decode_infer_response(answer.body)
    assert same(inferred.outputs[0], X)
    assert answer.usage == Usage(rows=2, bytes=len(answer.body), device_ms=1.5, exact=True)


async def test_a_pools_name_for_the_model_replaces_the_clients() -> None:
    service = Service()
    await call(service, model="theirs")
    assert (service.received[0].model_name, service.received[0].model_version) == ("theirs", "")


@pytest.mark.parametrize("binary", [True, False])
async def test_a_request_over_http_is_encoded_as_a_message(binary: bool) -> None:
    service = Service()
    answer = await call(service, over_http(*oip.encode_request(Inference("m", inputs=[X]), binary=binary)))
    assert answer.form == OIP_GRPC
    assert list(service.received[0].raw_input_contents) == [X.data]
    assert (service.received[0].model_name, dict(service.received[0].parameters)) == ("m", {})


async def test_a_raw_body_has_the_shape_that_the_server_reports() -> None:
    service = Service()
    async with adapting(service) as adapter:
        for _ in range(2):
            await adapter.call(over_http(bytes(X.data), 0), within())
    assert [type(one).__name__ for one in service.received] == ["ModelMetadataRequest", *["ModelInferRequest"] * 2]
    tensor = service.received[1].inputs[0]
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("x", "INT32", [2, 1])


async def test_a_prompt_has_the_shapes_that_the_server_reports() -> None:
    service = Service()
    answer = await call(service, over_http(b'{"x": [5, 6], "temperature": 0.5}', kind="generate"))
    request = service.received[1]
    assert list(request.raw_input_contents) == [b"\x05\0\0\0\x06\0\0\0"]
    assert request.parameters["temperature"].double_param == 0.5
    assert answer.form == OIP_GRPC
    with pytest.raises(CallerError, match="`x`"):
        await call(service, over_http(b'{"x": "five"}', kind="generate"))


async def test_a_chat_is_refused_without_a_call() -> None:
    service = Service()
    with pytest.raises(Unsupported, match="takes tensors"):
        await call(service, chat())
    assert service.received == []


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (3, CallerError, "at fault"),
        (9, CallerError, "at fault"),
        (11, CallerError, "at fault"),
        (12, Unsupported, "at fault"),
        (5, NotThere, "does not exist"),
        (14, CapacityError, "overloaded"),
        (8, CapacityError, "overloaded"),
        (4, UpstreamTimeout, "timed out"),
        (7, BackendError, "credential"),
        (16, BackendError, "credential"),
        (13, ModelFailed, r"^at fault: \[path\]$"),
        (2, ModelFailed, r"^at fault: \[path\]$"),
        (1, BackendError, "The upstream failed"),
    ],
)
@pytest.mark.parametrize("kind", ["infer", "infer_stream"])
async def test_statuses(code: int, error: type[InferenceError], words: str, kind: str) -> None:
    service = Service()
    service.behaviour = service.stream = failing(code, "at fault: /models/x.py")
    with pytest.raises(error, match=words) as caught:
        await call(service, grpc_request(kind))
    assert type(caught.value) is error
    assert ("/models" in caught.value.message) == (words == "at fault")


async def test_a_model_that_the_pool_names_is_not_the_clients_mistake() -> None:
    service = Service()
    service.behaviour = failing(5, "no such model")
    with pytest.raises(BackendError, match="does not know the model"):
        await call(service, grpc_request("infer"), model="own")


async def test_a_message_that_is_too_large_for_the_server() -> None:
    service = Service()
    service.behaviour = failing(8, "Received message larger than max (9 vs. 8)")
    with pytest.raises(TooLarge):
        await call(service)


@pytest.mark.parametrize(("pushback", "seconds"), [("1500", 1.5), ("-1", None), ("soon", None)])
async def test_a_full_server_may_set_the_retry_delay(pushback: str, seconds: float | None) -> None:
    service = Service()

    def full(request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "full")

    service.behaviour = full
    with pytest.raises(CapacityError) as caught:
        await call(service)
    assert caught.value.retry_after == seconds


async def test_an_unknown_version_was_the_callers_choice() -> None:
    service = Service()
    service.behaviour = failing(5, "no")
    with pytest.raises(NotFound, match="`m` has no version `9`"):
        await call(service, grpc_request(version="9"))


async def test_a_servers_failure_on_an_unreadable_request_is_the_callers() -> None:
    service = Service()
    service.behaviour = failing(13, "cannot parse")
    message = service_pb2.ModelInferRequest(inputs=[{"name": "x", "datatype": "INT31"}])
    request = replace(grpc_request(), payload=GrpcPayload(body=message.SerializeToString()))
    with pytest.raises(CallerError, match="INT31"):
        await call(service, request)


async def test_time_that_is_up_is_the_requests_own() -> None:
    service = Service()

    def hang(request: Any, context: Any) -> Any:
        context.add_callback(service.left.set)
        service.left.wait(PATIENCE)
        return echo(request, context)

    service.behaviour = hang
    async with adapting(service) as adapter:
        with pytest.raises(DeadlineError):
            await adapter.call(grpc_request(), within(0.2))


async def test_a_request_that_is_cancelled_is_cancelled_at_the_server() -> None:
    service = Service()
    begun = threading.Event()

    def hang(request: Any, context: Any) -> Any:
        context.add_callback(service.left.set)
        begun.set()
        service.left.wait(PATIENCE)
        return echo(request, context)

    service.behaviour = hang
    async with adapting(service) as adapter:
        task = asyncio.create_task(adapter.call(grpc_request(), within()))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(service.left.wait, PATIENCE)


async def test_a_server_that_is_not_there() -> None:
    async with calling("http://127.0.0.1:9") as channel:
        with pytest.raises(TransportError):
            await OipGrpcAdapter(channel).call(grpc_request(), within())


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────


def streamed_response(number: int, **more: Any) -> Any:
    return service_pb2.ModelStreamInferResponse(infer_response={"model_name": "m", "id": str(number), **more})


async def test_a_stream_has_one_request_and_any_number_of_responses() -> None:
    service = Service()

    def three(request: Any, context: Any) -> Iterator[Any]:
        context.set_trailing_metadata((("headrace-device-ms", "3"),))
        yield from map(streamed_response, range(3))

    service.stream = three
    async with adapting(service) as adapter:
        answer = await adapter.call(grpc_request("infer_stream"), within())
        messages = [message async for message in answer]
    assert [service_pb2.ModelStreamInferResponse.FromString(m).infer_response.id for m in messages] == ["0", "1", "2"]
    assert answer.form == OIP_GRPC
    assert (answer.ended, answer.error) == (True, None)
    assert answer.usage == Usage(rows=2, bytes=sum(map(len, messages)), device_ms=3, exact=True)
    assert service.received[0].model_name == "m"


async def test_a_stream_may_have_no_responses() -> None:
    service = Service()
    service.stream = lambda request, context: iter(())
    async with adapting(service) as adapter:
        answer = await adapter.call(grpc_request("infer_stream"), within())
        assert [message async for message in answer] == []
        assert answer.ended


async def test_a_prompt_streams_too() -> None:
    service = Service()
    request = over_http(b'{"x": 5}', kind="generate_stream")
    async with adapting(service) as adapter:
        messages = [message async for message in await adapter.call(request, within())]
    assert oip_proto_answers.split_stream_response(messages[0])[0] == ""


@pytest.mark.parametrize("with_status", [True, False])
async def test_responses_before_a_failure_are_delivered(with_status: bool) -> None:
    service = Service()

    def late(request: Any, context: Any) -> Iterator[Any]:
        yield streamed_response(1)
        if with_status:
            context.abort(grpc.StatusCode.INTERNAL, "CUDA out of memory at 10.0.0.5")
        yield service_pb2.ModelStreamInferResponse(error_message="CUDA out of memory at 10.0.0.5")

    service.stream = late
    async with adapting(service) as adapter:
        answer = await adapter.call(grpc_request("infer_stream"), within())
        await anext(answer)
        with pytest.raises(ModelFailed, match=r"^CUDA out of memory at \[address\]$") as caught:
            await anext(answer)
        assert "10.0.0.5" not in caught.value.message
        assert answer.error is caught.value


@pytest.mark.parametrize(
    ("words", "model", "version", "error"),
    [
        ("unexpected shape for input 'x'", "", "", CallerError),
        ("[request id: 7] Request for unknown model: 'm' is not found", "", "", NotThere),
        ("Request for unknown model: 'm' version 9 is not found", "", "9", NotFound),
        ("Exceeds maximum queue size", "", "", CapacityError),
        ("ValueError: bad row", "m", "", ModelFailed),
    ],
)
async def test_a_failure_before_any_response_has_no_status(
    words: str, model: str, version: str, error: type[InferenceError]
) -> None:
    """Triton's: with the model's name where the model itself has failed."""
    service = Service()
    failed = service_pb2.ModelStreamInferResponse(error_message=words, infer_response={"model_name": model})
    service.stream = lambda request, context: iter([failed])
    with pytest.raises(error) as caught:
        await call(service, grpc_request("infer_stream", version))
    assert type(caught.value) is error


@pytest.mark.parametrize("kind", ["infer", "infer_stream"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("code", "error"), [("model_failed", PoisonRequest), ("instance_lost", ComputationLost)])
async def test_a_failure_that_a_runtime_reports_is_not_retried(
    kind: str, streamed: bool, code: str, error: type[InferenceError]
) -> None:
    service = Service()

    def refused(request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("x-headrace-error", code),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "ValueError: boom")

    service.behaviour = service.stream = refused
    if streamed:
        failed = service_pb2.ModelStreamInferResponse.FromString(encode_stream_error("ValueError: boom", "7", "", code))
        service.stream = lambda request, context: iter([failed])
    with pytest.raises(error, match=r"^ValueError: boom$") as caught:
        await call(service, grpc_request(kind))
    assert (caught.value.retryable, caught.value.blames_endpoint, caught.value.code) == (False, False, code)


async def test_a_server_without_streams_has_unary_calls() -> None:
    service = Service()
    service.stream = failing(12, "Method not found!")
    async with adapting(service) as adapter:
        for _ in range(2):
            answer = await adapter.call(grpc_request("infer_stream"), within())
            (message,) = [message async for message in answer]
            response = service_pb2.ModelStreamInferResponse.FromString(message).infer_response
            assert (response.id, list(response.raw_output_contents)) == ("id-1", [X.data])
            assert answer.ended
    assert len(service.received) == 3  # no further stream is opened


async def test_a_client_that_leaves_cancels_the_upstreams_call() -> None:
    service = Service()

    def endless(request: Any, context: Any) -> Iterator[Any]:
        yield streamed_response(1)
        service.left.wait(PATIENCE)

    service.stream = endless
    async with adapting(service) as adapter:
        answer = await adapter.call(grpc_request("infer_stream"), within())
        await anext(answer)
        await answer.aclose()
        assert await asyncio.to_thread(service.left.wait, PATIENCE)
        assert answer.ended


async def test_mlservers_bare_responses_are_put_as_others_send_them() -> None:
    """Its `ModelStreamInfer` has another type of response under the same name."""
    bare = service_pb2.ModelInferResponse(model_name="m", id="4", outputs=[{"name": "y"}])

    class Bare(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: (bare.SerializeToString() for _ in requests)
            )

    async with adapting(Service(), Bare()) as adapter:
        answer = await adapter.call(grpc_request("infer_stream"), within())
        messages = [service_pb2.ModelStreamInferResponse.FromString(message) async for message in answer]
    assert messages == [service_pb2.ModelStreamInferResponse(infer_response=bare)]


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (
            "metadata",
            {
                "name": "theirs", "versions": ["1"], "platform": "test", "outputs": [],
                "inputs": [{"name": "x", "datatype": "INT32", "shape": [-1, 1]}],
            },
        ),
        ("ready", {"name": "m", "ready": True}),
    ],
)  # fmt: skip
async def test_questions_are_answered_as_over_http(about: Any, expected: dict[str, Any]) -> None:
    service = Service()
    answer = await call(service, ModelQuery(model="m", version="1", about=about), model="theirs")
    assert json.loads(answer.body or b"") == expected
    assert answer.form == OIP_JSON
    assert (service.received[0].name, service.received[0].version) == ("theirs", "1")


@pytest.mark.parametrize("code", [2, 5, 9, 13, 14])
async def test_a_server_that_fails_on_a_model_is_not_ready_for_it(code: int) -> None:
    service = Service()
    service.readiness = failing(code, "no such model")
    with pytest.raises(Unavailable, match="`m` is not ready"):
        await call(service, ModelQuery(model="m", about="ready"))
    service.readiness = failing(16, "no such key")
    with pytest.raises(BackendError, match="credential"):
        await call(service, ModelQuery(model="m", about="ready"))


async def test_configuration_and_statistics_are_as_triton_writes_them() -> None:
    config = json.loads((await call(Service(), ModelQuery(model="m", about="config"))).body or b"")
    assert (config["name"], config["max_batch_size"], config["input"]) == ("m", 8, [])
    stats = json.loads((await call(Service(), ModelQuery(model="m", about="stats"))).body or b"")
    assert stats["model_stats"][0]["inference_count"] == 2**40


async def test_orders_are_messages_and_discard_the_models_metadata() -> None:
    service = Service()
    body = load_body("{}", {"1/model.py": b"\0code"})
    async with adapting(service, model="theirs") as adapter:
        for _ in range(2):
            await adapter.call(over_http(bytes(X.data), 0), within())
        await adapter.call(ModelOrder(model="m", order="load", body=body), within())
        await adapter.call(over_http(bytes(X.data), 0), within())
        dependents = b'{"parameters":{"unload_dependents":true}}'
        answer = await adapter.call(ModelOrder(model="m", order="unload", body=dependents), within())
        assert (answer.body, answer.form) == (b"{}", OIP_JSON)
        with pytest.raises(CallerError, match="Unknown load parameter"):
            await adapter.call(ModelOrder(model="m", order="load", body=b'{"parameters":{"x":"y"}}'), within())
    metadata, infer, again, load, infer_again, _, unload = service.received
    assert [type(one).__name__ for one in (metadata, infer, again, infer_again)] == [
        "ModelMetadataRequest", "ModelInferRequest", "ModelInferRequest", "ModelMetadataRequest"
    ]  # fmt: skip
    assert (load.model_name, load.parameters["config"].string_param) == ("theirs", "{}")
    assert load.parameters["file:1/model.py"].bytes_param == b"\0code"
    assert unload.parameters["unload_dependents"].bool_param


async def test_health() -> None:
    service = Service()
    async with adapting(service) as adapter:
        await adapter.probe(PATIENCE)
        service.ready = False
        with pytest.raises(BackendError, match="not ready"):
            await adapter.probe(PATIENCE)
        with pytest.raises(Unavailable, match="`m` is not ready"):
            await adapter.call(ModelQuery(model="m", about="ready"), within())
