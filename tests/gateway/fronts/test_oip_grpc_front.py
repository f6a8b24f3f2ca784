"""The gRPC door, by Triton's own client and by gRPC's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    NotFound,
    TransportError,
    Unavailable,
    Unsupported,
    UpstreamTimeout,
)
from adapters.fake import Script
from adapters.requests import ModelRequest
from adapters.tensors import FINAL, Inferred, Tensor
from adapters.types import OIP_GRPC, OIP_JSON, Usage
from adapters.wire import sse
from adapters.wire.oip.proto_responses import (
    encode_infer_response,
    encode_stream_error,
    encode_stream_response,
    final_marker,
)
from adapters.wire.oip.responses import encode_response
from adapters.wire.protos import health
from tests.adapters.http1.raw import until
from tests.gateway.fronts.oip import METADATA, WHOLE, TensorFake
from tests.support.grpc_doors import DATA, SUM, failing, grpc_door, message, response

pytestmark = pytest.mark.realtime  # gRPC has threads


async def test_messages_pass_unchanged_both_ways() -> None:
    async with grpc_door() as g:
        call = g.stub.ModelInfer(message(id="7"), metadata=g.metadata)
        answer = await call
        assert answer.SerializeToString() == pb.ModelInferResponse.FromString(response()).SerializeToString()
        trailers = dict(await call.trailing_metadata())
        assert trailers["x-headrace-endpoint"] == "main/0"
        assert trailers["x-request-id"].startswith("req_")
        (request,) = g.door.fake.received
        assert (request.wire, request.model, request.version, request.rows) == ("oip-grpc", "chat", "", 1)
        assert pb.ModelInferRequest.FromString(request.payload.body) == message(id="7")
    (record,) = g.rig.log.records
    assert (record.operation, record.usage, record.status) == ("infer", Usage(rows=1, device_ms=2.5), 200)


async def test_an_answer_of_the_other_wire_is_written_anew() -> None:
    async with grpc_door(TensorFake(Script(chunks=(WHOLE,), form=OIP_JSON))) as g:
        answer = await g.infer()
        assert (answer.model_name, answer.id, answer.raw_output_contents[0]) == ("chat", "7", DATA)
        assert list(answer.outputs[0].shape) == [1, 2]


async def test_grpc_answers_are_transcoded_for_http() -> None:
    async with grpc_door() as g:
        answer = await (await g.door.post("/v2/models/chat/infer")).json()
        assert answer["outputs"] == [{"name": "SUM", "datatype": "INT32", "shape": [1, 2], "data": [4, 6]}]
        request_body = {"inputs": [], "parameters": {"binary_data_output": True}}
        http = await g.door.post("/v2/models/chat/infer", request_body)
        body, length = await http.read(), int(http.headers["Inference-Header-Content-Length"])
        assert body[length:] == DATA
        assert http.content_type == "application/octet-stream"


async def test_grpc_streams_are_transcoded_for_http() -> None:
    chunks = (encode_stream_response(response()), encode_stream_error("It broke."))
    async with grpc_door(TensorFake(Script(chunks=chunks, form=OIP_GRPC))) as g:
        http = await g.door.post("/v2/models/chat/infer_stream")
        first, second, _ = (await http.read()).split(b"\n\n")
        assert b'"data":[4,6]' in first
        assert second == b'data: {"error":"It broke."}'
        http = await g.door.post("/v2/models/chat/generate_stream", {"A": [1]})
        assert (await http.read()).startswith(b'data: {"model_name":"chat","model_version":"1","SUM":[4,6]}\n\n')


async def test_without_a_key_only_liveness_is_answered() -> None:
    async with grpc_door() as g:
        g.metadata = []
        assert (await g.stub.ServerLive(pb.ServerLiveRequest())).live
        assert (await g.stub.ServerReady(pb.ServerReadyRequest())).ready
        calls: list[tuple[Any, Any]] = [
            (g.stub.ServerMetadata, pb.ServerMetadataRequest()),
            (g.stub.ModelReady, pb.ModelReadyRequest(name="chat")),
            (g.stub.ModelInfer, message()),
            (g.stub.RepositoryIndex, pb.RepositoryIndexRequest()),
        ]
        for method, request in calls:
            assert (await failing(method(request))).code() == grpc.StatusCode.UNAUTHENTICATED
        g.metadata = [("x-api-key", g.rig.key.plaintext)]
        await g.infer()


QUERIES: list[tuple[str, Any, Callable[[Any], Any], Any]] = [
    ("ModelMetadata", pb.ModelMetadataRequest, lambda a: [list(i.shape) for i in a.inputs], [[-1, 2], [-1, 2]]),
    ("ModelReady", pb.ModelReadyRequest, lambda a: a.ready, True),
    ("ModelConfig", pb.ModelConfigRequest, lambda a: a.config.max_batch_size, 8),
    ("ModelStatistics", pb.ModelStatisticsRequest, lambda a: [s.inference_count for s in a.model_stats], [2**40]),
]


@pytest.mark.parametrize(("name", "request_of", "read", "expected"), QUERIES, ids=[name for name, *_ in QUERIES])
async def test_questions_about_a_model_reach_its_server(
    name: str, request_of: Any, read: Callable[[Any], Any], expected: Any
) -> None:
    fake = TensorFake(SUM)
    fake.about["config"] = {"name": "chat", "max_batch_size": 8, "unknown_to_us": 1}
    fake.about["stats"] = {"model_stats": [{"name": "chat", "version": "1", "inference_count": 2**40}]}
    async with grpc_door(fake) as g:
        answer = await getattr(g.stub, name)(request_of(name="chat", version="3"), metadata=g.metadata)
        assert read(answer) == expected
        assert [query.version for query in fake.queries] == ["3"]
        refused = await failing(getattr(g.stub, name)(request_of(name="nobody"), metadata=g.metadata))
        assert refused.code() == grpc.StatusCode.NOT_FOUND


async def test_a_model_that_is_not_ready_is_no_failure_of_the_question() -> None:
    fake = TensorFake(SUM)
    fake.failing = Unavailable("not ready")
    async with grpc_door(fake) as g:
        answer = await g.stub.ModelReady(pb.ModelReadyRequest(name="chat"), metadata=g.metadata)
        assert not answer.ready
        failed = await failing(g.stub.ModelMetadata(pb.ModelMetadataRequest(name="chat"), metadata=g.metadata))
        assert failed.code() == grpc.StatusCode.UNAVAILABLE


async def test_statistics_without_a_model_are_those_of_every_model() -> None:
    fake = TensorFake(SUM)
    fake.about["stats"] = {"model_stats": [{"name": "chat", "version": "1", "inference_count": 7}]}
    pools = [{"name": "main", "protocol": "oip-grpc", "endpoints": ["http://127.0.0.1:9"]}]
    async with grpc_door(fake, pools=pools) as g:
        statistics = await g.stub.ModelStatistics(pb.ModelStatisticsRequest(), metadata=g.metadata)
        assert [(one.name, one.inference_count) for one in statistics.model_stats] == [("chat", 7)]
        http = await g.door.get("/v2/models/stats")
        assert (http.status, await http.json()) == (200, fake.about["stats"])
        fake.failing = Unavailable("gone")
        assert not (await g.stub.ModelStatistics(pb.ModelStatisticsRequest(), metadata=g.metadata)).model_stats
        assert await (await g.door.get("/v2/models/stats")).json() == {"model_stats": []}


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("", grpc.StatusCode.OK),
        ("inference.GRPCInferenceService", grpc.StatusCode.OK),
        ("tensorflow.serving.PredictionService", grpc.StatusCode.OK),
        ("inference.Nobody", grpc.StatusCode.NOT_FOUND),
        ("x" * 1000, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_the_health_of_an_unknown_service_is_not_found(service: str, code: grpc.StatusCode) -> None:
    async with grpc_door() as g, grpc.aio.insecure_channel(g.door.grpc) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health.HealthCheckRequest.SerializeToString,
            health.HealthCheckResponse.FromString,
        )
        call = check(health.HealthCheckRequest(service=service))
        assert await call.code() is code
        if code is grpc.StatusCode.OK:
            assert (await call).status == 1


@pytest.mark.parametrize(("service", "status"), [("", 1), ("tensorflow.serving.ModelService", 1), ("nobody", 3)])
async def test_a_watch_begins_with_the_state_of_its_service(service: str, status: int) -> None:
    async with grpc_door() as g, grpc.aio.insecure_channel(g.door.grpc) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            health.HealthCheckRequest.SerializeToString,
            health.HealthCheckResponse.FromString,
        )
        call = watch(health.HealthCheckRequest(service=service))
        assert (await anext(aiter(call))).status == status
        call.cancel()


FAILURES: list[tuple[InferenceError, grpc.StatusCode]] = [
    (CallerError("wrong shape"), grpc.StatusCode.INVALID_ARGUMENT),
    (NotFound("no such version"), grpc.StatusCode.NOT_FOUND),
    (Unsupported("decoupled"), grpc.StatusCode.UNIMPLEMENTED),
    (CapacityError("full"), grpc.StatusCode.UNAVAILABLE),
    (BackendError("failed"), grpc.StatusCode.INTERNAL),
    (TransportError("reset"), grpc.StatusCode.UNAVAILABLE),
    (UpstreamTimeout("silent"), grpc.StatusCode.DEADLINE_EXCEEDED),
]


@pytest.mark.parametrize(("error", "code"), FAILURES, ids=lambda value: type(value).__name__)
async def test_a_failure_has_its_status(error: InferenceError, code: grpc.StatusCode) -> None:
    routes = [{"to": "main", "retry": {"attempts": 1}}]
    async with grpc_door(TensorFake(Script(fault=error)), models=[{"name": "chat", "routes": routes}]) as g:
        failed = await failing(g.infer())
        assert (failed.code(), failed.details()) == (code, error.message)


REFUSED: list[tuple[pb.ModelInferRequest, grpc.StatusCode, str]] = [
    (message(model_name="nobody"), grpc.StatusCode.NOT_FOUND, "nobody"),
    (message(raw_input_contents=[b"1"] * 2), grpc.StatusCode.INVALID_ARGUMENT, "1 bytes"),
    (message(raw_input_contents=[b"1" * 8] * 3), grpc.StatusCode.INVALID_ARGUMENT, "more than inputs"),
    (message(parameters={"sequence_id": True}), grpc.StatusCode.INVALID_ARGUMENT, "sequence_id"),
    (message(raw_input_contents=[b"1" * 2_000_000]), grpc.StatusCode.RESOURCE_EXHAUSTED, ""),
]


@pytest.mark.parametrize(("invalid", "code", "reason"), REFUSED, ids=range(len(REFUSED)))
async def test_an_invalid_request_is_refused_with_a_reason(
    invalid: pb.ModelInferRequest, code: grpc.StatusCode, reason: str
) -> None:
    async with grpc_door() as g:
        failed = await failing(g.infer(invalid))
        assert failed.code() == code
        assert reason in (failed.details() or "")
        await g.infer()


async def test_a_message_that_is_none_and_a_method_that_is_none() -> None:
    async with grpc_door() as g, grpc.aio.insecure_channel(g.door.grpc) as channel:
        for name, code in (("ModelInfer", "INVALID_ARGUMENT"), ("Nothing", "INVALID_ARGUMENT")):
            call = channel.unary_unary(f"/inference.GRPCInferenceService/{name}")
            failed = await failing(call(b"\xff\xff", metadata=g.metadata))
            assert failed.code().name in (code, "UNIMPLEMENTED")


@pytest.mark.parametrize("role", ["user", "tenant-admin", "operator"])
async def test_no_role_gives_orders_to_models_and_servers_on_the_grpc_listener(role: str) -> None:
    async with grpc_door() as g:
        g.rig.hold(roles=frozenset({"user", role}))
        for method, request in (
            (g.stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name="chat")),
            (g.stub.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name="chat")),
            (g.stub.TraceSetting, pb.TraceSettingRequest(model_name="chat")),
            (g.stub.LogSettings, pb.LogSettingsRequest()),
            (g.stub.SystemSharedMemoryRegister, pb.SystemSharedMemoryRegisterRequest(name="r")),
        ):
            failed = await failing(method(request, metadata=g.metadata))
            assert failed.code() == grpc.StatusCode.PERMISSION_DENIED
        assert not g.door.fake.orders


async def test_limits_are_reported_and_enforced() -> None:
    async with grpc_door(limits={"requests": "1/h"}) as g:
        await g.infer()
        failed = await failing(g.infer())
        assert failed.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(failed.trailing_metadata())["x-ratelimit-remaining-requests"] == "0"
    assert [record.status for record in g.rig.log.records] == [200, 429]


async def test_the_clients_deadline_is_the_requests() -> None:
    async with grpc_door() as g:
        await g.infer(timeout=100.0)
        await g.infer()
        first, second = (request.timeout for request in g.door.fake.received)
        assert first is not None
        assert 0 < first <= 101
        assert second is None


async def test_a_client_that_cancels_stops_its_inference() -> None:
    async with grpc_door(TensorFake(Script(latency=60.0))) as g:
        call = g.stub.ModelInfer(message(), metadata=g.metadata)
        task = asyncio.ensure_future(call.wait_for_connection())
        await until(lambda: bool(g.door.fake.calls))
        call.cancel()
        await until(lambda: g.door.fake.calls[0].end == "cancelled")
        task.cancel()
        await g.rig.until_idle()


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────


def streamed(*answers: bytes, **options: Any) -> Script:
    return Script(chunks=tuple(encode_stream_response(answer) for answer in answers), form=OIP_GRPC, **options)


async def test_each_request_of_a_stream_has_its_answers() -> None:
    async with grpc_door(TensorFake(streamed(response("a"), response("a")), streamed(), streamed(response("c")))) as g:
        answers = await g.stream(message(id="a"), message(id="b"), message(id="c"))
        assert [answer.infer_response.id for answer in answers] == ["a", "a", "c"]
        assert all(request.kind == "infer_stream" for request in g.door.fake.received)
    assert [record.status for record in g.rig.log.records] == [200] * 3


async def test_first_answers_are_in_the_order_of_the_requests() -> None:
    slow, quick = streamed(response("slow"), latency=0.3), streamed(response("quick"))
    async with grpc_door(TensorFake(slow, quick)) as g:
        answers = await g.stream(message(id="slow"), message(id="quick"))
        assert [answer.infer_response.id for answer in answers] == ["slow", "quick"]


async def test_a_failure_names_its_request_and_the_stream_continues() -> None:
    broken = streamed(response("b"), fault=BackendError("It broke."), fault_after=1)
    async with grpc_door(TensorFake(streamed(response("a")), broken, streamed(response("d")))) as g:
        answers = await g.stream(
            message(id="a"), message(id="b"), message(id="c", model_name="nobody"), message(id="d")
        )
        received = [(answer.infer_response.id, answer.error_message) for answer in answers]
        assert received[:3] == [("a", ""), ("b", ""), ("b", "It broke.")] or ("b", "It broke.") in received
        assert [one for one in received if one[0] in "cd"][-1] == ("d", "")
        assert next(text for id_, text in received if id_ == "c").startswith("The model `nobody`")
    assert sorted(record.status for record in g.rig.log.records) == [200, 200, 200, 404]


async def test_a_failure_can_be_the_status_of_the_call() -> None:
    async with grpc_door(TensorFake(streamed(response()))) as g:
        failed = await failing(g.stream(message(model_name="nobody"), triton_grpc_error="true"))
        assert failed.code() == grpc.StatusCode.NOT_FOUND


async def test_requests_of_one_sequence_are_sent_one_after_another() -> None:
    class Counting(TensorFake):
        most = 0

        async def call(self, request: ModelRequest, call: Call) -> Answer:
            self.most = max(self.most, self.in_flight + 1)
            return await super().call(request, call)

    fake = Counting(streamed(response(), latency=0.1))
    async with grpc_door(fake) as g:
        messages = [message(id=str(i), parameters={"sequence_id": 5, "sequence_start": i == 0}) for i in range(4)]
        answers = await g.stream(*messages)
        assert (len(answers), fake.most) == (4, 1)
        assert [request.inference.id for request in g.door.fake.received] == ["0", "1", "2", "3"]
        assert [request.starts for request in g.door.fake.received] == [True, False, False, False]


def _streams() -> Iterator[tuple[str, int, Script]]:
    """The responses that an upstream streams, the number of their tensors, and the script that sends them."""
    for count in range(4):
        unmarked: list[tuple[dict[str, Any], bool]] = [({}, True)] * count
        marked: list[tuple[dict[str, Any], bool]] = [({FINAL: False}, True)] * count
        yield "unmarked", count, _events(unmarked)
        yield "unmarked", count, _messages(unmarked)
        for final in ([*marked[:-1], ({FINAL: True}, True)] if count else [], marked):
            yield "marked", count, _events(final)
            yield "marked", count, _messages(final)
    yield "marked", 1, Script(chunks=(only_message(),), form=OIP_GRPC)


def _responses(parts: list[tuple[dict[str, Any], bool]]) -> list[Inferred]:
    tensors = [Tensor("SUM", "INT32", (1, 2), DATA)]
    return [Inferred("chat", "1", "7", parameters, tensors if full else []) for parameters, full in parts]


def _events(parts: list[tuple[dict[str, Any], bool]]) -> Script:
    return Script(chunks=tuple(sse.encode(encode_response(one)[0]) for one in _responses(parts)), form=OIP_JSON)


def _messages(parts: list[tuple[dict[str, Any], bool]]) -> Script:
    chunks = tuple(encode_stream_response(encode_infer_response(one)) for one in _responses(parts))
    return Script(chunks=chunks, form=OIP_GRPC)


def only_message() -> bytes:
    return encode_stream_response(response("7")) + final_marker(True)


async def test_whatever_an_upstream_marks_each_response_is_marked_and_only_the_last_is_final() -> None:
    scripts = list(_streams())
    for enabled in (False, True):
        async with grpc_door(TensorFake(*(script for _, _, script in scripts))) as g:
            for upstream, count, script in scripts:
                parameters = {"triton_enable_empty_final_response": True} if enabled else {}
                answers = [one.infer_response for one in await g.stream(message(id="7", parameters=parameters))]
                assert all(FINAL in answer.parameters for answer in answers), (upstream, script)
                finals = [answer.parameters[FINAL].bool_param for answer in answers]
                assert not any(finals[:-1]), (upstream, script)
                assert sum(bool(answer.outputs) for answer in answers) == count, (upstream, script)
                if upstream == "unmarked":
                    assert len(answers) == count + enabled, (upstream, script)
                    assert not enabled or finals[-1], (upstream, script)
                assert all(answer.raw_output_contents[0] == DATA for answer in answers if answer.outputs)


async def test_a_client_that_leaves_a_stream_stops_all_of_it() -> None:
    async with grpc_door(TensorFake(streamed(response(), latency=60.0))) as g:

        async def requests() -> AsyncIterator[pb.ModelInferRequest]:
            yield message()
            yield message()
            await asyncio.Event().wait()

        call = g.stub.ModelStreamInfer(requests(), metadata=g.metadata)
        await until(lambda: len(g.door.fake.calls) == 2)
        call.cancel()
        await until(lambda: all(one.end == "cancelled" for one in g.door.fake.calls))
        await g.rig.until_idle()


async def test_tritons_client_works_as_it_is() -> None:
    fake = TensorFake(SUM, SUM, streamed(response("s")))
    fake.about["config"] = {"name": "chat", "max_batch_size": 8}
    async with grpc_door(fake) as g:
        client = triton.InferenceServerClient(g.door.grpc)
        try:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("chat", headers=g.door.keyed)
            assert (await client.get_server_metadata(headers=g.door.keyed)).name == "headrace"
            metadata = await client.get_model_metadata("chat", headers=g.door.keyed, as_json=True)
            assert metadata["platform"] == METADATA["platform"]
            assert (await client.get_model_config("chat", headers=g.door.keyed)).config.max_batch_size == 8
            inputs = [triton.InferInput(name, [1, 2], "INT32") for name in "AB"]
            for one in inputs:
                one.set_data_from_numpy(np.array([[1, 2]], dtype=np.int32))
            for compression in (None, "gzip"):
                result = await client.infer(
                    "chat", inputs, headers=g.door.keyed, compression_algorithm=compression, client_timeout=20.0
                )
                assert result.as_numpy("SUM").tolist() == [[4, 6]]
            with pytest.raises(InferenceServerException, match="does not exist"):
                await client.infer("nobody", inputs, headers=g.door.keyed)

            async def requests() -> AsyncIterator[dict[str, Any]]:
                yield {"model_name": "chat", "inputs": inputs, "request_id": "s"}

            async for result, error in client.stream_infer(requests(), headers=g.door.keyed):
                assert error is None
                assert result.as_numpy("SUM").tolist() == [[4, 6]]
        finally:
            await client.close()
