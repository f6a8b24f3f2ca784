"""The adapter of the Open Inference Protocol over HTTP, against upstreams that answer, refuse, fail and break off."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ComputationLost,
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
from adapters.http1.client import Client
from adapters.requests import Codec, InferRequest, ModelOrder, ModelQuery
from adapters.tensors import FINAL, Inference, Inferred, Tensor
from adapters.types import Deadline, Form, Usage
from adapters.upstreams.oip.http_client import OipHttpAdapter
from adapters.wire import compression
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.bodies import GrpcPayload
from adapters.wire.oip.request_view import request_of
from tests.adapters.http1.scripted import Peer, Play, ReceivedRequest, Upstream, answers, scripted
from tests.adapters.wire.tensors import same
from tests.support.openai_answers import END, HEAD, chat, http, piece

X = Tensor("x", "INT32", (2, 1), b"\x01\0\0\0\x02\0\0\0")
Y = Tensor("y", "INT32", (2, 1), b"\x03\0\0\0\x04\0\0\0")
JSON, _ = oip.encode_request(Inference("m", inputs=[X]), binary=False)
BINARY, LENGTH = oip.encode_request(Inference("m", inputs=[X]))
ANSWER, _ = oip_responses.encode_response(Inferred("m", "1", outputs=[Y]))
FINAL_ANSWER, _ = oip_responses.encode_response(Inferred("m", "1", parameters={FINAL: True}, outputs=[Y]))
BINARY_ANSWER, ANSWER_LENGTH = oip_responses.encode_response(Inferred("m", "1", outputs=[Y]), True)
LONG = 10.0


def within(total: float = LONG, first_byte: float = LONG) -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + total, first_byte, LONG), "id-1")


def http_request(
    body: bytes = JSON, length: int | None = None, model: str = "m", version: str = "", **more: Any
) -> InferRequest:
    return request_of(body, model=model, version=version, header_length=length, **more)


class FromGrpc(Codec):
    """A request that came by another wire."""

    def inference(self, request: InferRequest) -> Inference:
        return Inference(request.model, request.version, "7", {"sequence_id": 5}, [X])


def grpc(kind: Any = "infer") -> InferRequest:
    return InferRequest(
        model="m", payload=GrpcPayload(body=b"\n\x01m"), kind=kind, stream=kind != "infer", rows=2, codec=FromGrpc()
    )


@asynccontextmanager
async def adapting(play: Play, **options: Any) -> AsyncIterator[tuple[OipHttpAdapter, Upstream]]:
    async with scripted(play) as upstream:
        adapter = OipHttpAdapter(Client(upstream.url), **options)
        yield adapter, upstream
        await adapter.aclose()


async def call(answer: bytes, request: Any = None, **options: Any) -> Answer:
    """One call to an upstream that sends `answer` and closes."""
    async with adapting(answers(answer), **options) as (adapter, _):
        return await adapter.call(request or http_request(), within())


def recording(received: list[ReceivedRequest], *answer: bytes) -> Callable[[Peer], Awaitable[None]]:
    async def play(peer: Peer) -> None:
        for data in answer:
            received.append(await peer.request())
            peer.send(data)

    return play


async def sent(request: Any, answer: bytes = b"", **options: Any) -> tuple[Answer, ReceivedRequest]:
    """The decoded answer of an upstream, and the request that the upstream received."""
    received: list[ReceivedRequest] = []
    async with adapting(recording(received, answer or http(ANSWER)), **options) as (adapter, _):
        return await adapter.call(request, within()), received[0]


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_bytes_pass_unchanged_in_both_directions() -> None:
    answer = http(BINARY_ANSWER, "application/octet-stream", 200, f"Inference-Header-Content-Length: {ANSWER_LENGTH}")
    begun, received = await sent(http_request(BINARY, LENGTH), answer)
    assert received.line == "POST /v2/models/m/infer HTTP/1.1"
    assert received.body == BINARY
    assert received.headers["Inference-Header-Content-Length".lower()] == str(LENGTH)
    assert received.headers["x-request-id"] == "id-1"
    assert received.headers["content-type"] == "application/octet-stream"
    assert (begun.body, begun.form) == (BINARY_ANSWER, Form("oip-http", ANSWER_LENGTH))
    assert begun.usage == Usage(rows=2, bytes=len(BINARY_ANSWER), exact=True)


async def test_json_is_sent_as_json() -> None:
    begun, received = await sent(http_request())
    assert received.headers["content-type"] == "application/json"
    assert "inference-header-content-length" not in received.headers
    assert (begun.body, begun.form, begun.content_type) == (ANSWER, Form("oip-http"), "application/json")


async def test_names_and_versions_are_the_pools_and_the_requests() -> None:
    _, received = await sent(http_request(model="a/b c", version="3"))
    assert received.line == "POST /v2/models/a%2Fb%20c/versions/3/infer HTTP/1.1"
    _, received = await sent(http_request(), model="other")
    assert received.line == "POST /v2/models/other/infer HTTP/1.1"


async def test_compressed_bodies_pass_unchanged() -> None:
    body = compression.compress(JSON, "gzip")
    packed = compression.compress(ANSWER, "gzip")
    begun, received = await sent(
        http_request(body, encoding="gzip", opened=JSON, accepts="br, gzip"),
        http(packed, "application/json", 200, "Content-Encoding: gzip"),
    )
    assert (received.body, received.headers["content-encoding"], received.headers["accept-encoding"]) == (
        body,
        "gzip",
        "gzip",
    )
    assert (begun.body, begun.form.encoding) == (packed, "gzip")


async def test_a_request_over_grpc_is_encoded_in_binary_form() -> None:
    _, received = await sent(grpc())
    length = int(received.headers["inference-header-content-length"])
    inference = oip.decode_request(received.body, length, "m")
    assert (inference.id, inference.parameters) == ("7", {"sequence_id": 5, "binary_data_output": True})
    assert same(inference.inputs[0], X)


async def test_servers_without_binary_tensors_receive_json_and_their_clients_binary_tensors() -> None:
    begun, received = await sent(http_request(BINARY, LENGTH), binary=False)
    assert "inference-header-content-length" not in received.headers
    assert json.loads(received.body)["inputs"][0]["data"] == [1, 2]
    assert begun.form.header_length is not None
    assert begun.body is not None
    assert same(oip_responses.decode_response(begun.body, begun.form.header_length).outputs[0], Y)
    begun, received = await sent(grpc(), binary=False)
    assert received.headers["content-type"] == "application/json"
    assert begun.body == ANSWER


async def test_a_raw_body_becomes_json_with_the_shape_that_the_server_reports() -> None:
    metadata = b'{"name":"m","versions":["1"],"platform":"","inputs":[{"name":"x","datatype":"INT32","shape":[-1,1]}]}'
    received: list[ReceivedRequest] = []
    async with adapting(recording(received, http(metadata), http(ANSWER), http(ANSWER)), binary=False) as (adapter, _):
        for _ in range(2):  # the second time, the shape is known
            begun = await adapter.call(http_request(bytes(X.data), 0), within())
            assert begun.form.header_length is not None
    assert [one.line for one in received] == [
        "GET /v2/models/m HTTP/1.1", "POST /v2/models/m/infer HTTP/1.1", "POST /v2/models/m/infer HTTP/1.1"
    ]  # fmt: skip
    assert json.loads(received[1].body)["inputs"] == [
        {"name": "x", "datatype": "INT32", "shape": [2, 1], "data": [1, 2]}
    ]


async def test_a_raw_body_for_a_model_with_two_inputs_is_refused() -> None:
    inputs = [{"name": name, "datatype": "INT32", "shape": [1]} for name in "xy"]
    metadata = json.dumps({"name": "m", "inputs": inputs}).encode()
    with pytest.raises(CallerError, match="this one has 2"):
        await call(http(metadata), http_request(b"1234", 0), binary=False)


async def test_reported_device_time_is_counted() -> None:
    assert (await call(http(ANSWER, "application/json", 200, "Headrace-Device-Ms: 1.5"))).usage.device_ms == 1.5
    assert (await call(http(ANSWER, "application/json", 200, "Headrace-Device-Ms: nan"))).usage.device_ms == 0
    assert (await call(http(ANSWER, "application/json", 200, "Headrace-Device-Ms: soon"))).usage.device_ms == 0


async def test_a_chat_is_refused_without_a_call() -> None:
    async with adapting(answers()) as (adapter, upstream):
        with pytest.raises(Unsupported, match="takes tensors"):
            await adapter.call(chat(), within())
        assert upstream.accepted == 0


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (400, b'{"error":"unexpected shape"}', CallerError, "unexpected shape"),
        (400, b'data: {"error":"in an event"}\n\n', CallerError, "in an event"),
        (400, b"<html>", CallerError, "refused the request"),
        (422, b'{"detail":"binary"}', CallerError, "binary"),
        (413, b"{}", TooLarge, "refused"),
        (501, b'{"error":"decoupled"}', Unsupported, "decoupled"),
        (404, b'{"error":"unknown model"}', NotThere, "does not exist"),
        (401, b"{}", BackendError, "credential"),
        (429, b"{}", CapacityError, "overloaded"),
        (503, b'{"error":"Exceeds maximum queue size"}', CapacityError, "overloaded"),
        (504, b"", UpstreamTimeout, "timed out"),
        (500, b'{"error":"at /models/x.py"}', ModelFailed, r"^at \[path\]$"),
        (500, b"<html>at /models/x.py</html>", BackendError, "The upstream failed"),
        (302, b"", BackendError, "The upstream failed"),
    ],
)
async def test_statuses(status: int, body: bytes, error: type[InferenceError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        await call(http(body, "application/json", status))
    assert type(caught.value) is error
    assert "/models" not in caught.value.message


async def test_a_model_that_the_pool_names_is_not_the_clients_mistake() -> None:
    with pytest.raises(BackendError, match="does not know the model"):
        await call(http(b'{"error":"unknown model"}', "application/json", 404), model="own")


async def test_a_500_for_an_unreadable_request_is_the_callers() -> None:
    """Triton's answer to a wrong element; its breaker is not to open for that."""
    wrong = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[1,1],"data":[0.5]}]}'
    with pytest.raises(CallerError, match="`x` is not INT32"):
        await call(http(b'{"error":"unable to parse"}', "application/json", 500), http_request(wrong))


async def test_an_unknown_version_was_the_callers_choice() -> None:
    with pytest.raises(NotFound, match="`m` has no version `9`"):
        await call(http(b'{"error":"not found"}', "application/json", 404), http_request(version="9"))


async def test_a_failure_in_a_200() -> None:
    with pytest.raises(ModelFailed, match=r"^x$"):
        await call(http(b'{"error":"x"}'))


@pytest.mark.parametrize(("header", "device_ms"), [("250.000", 250.0), ("much", 0.0)])
async def test_a_refusal_has_the_time_that_the_model_computed_before_it(header: str, device_ms: float) -> None:
    answer = http(b'{"error":"not finite"}', "application/json", 400, f"headrace-device-ms: {header}")
    with pytest.raises(CallerError, match="not finite") as caught:
        await call(answer)
    assert caught.value.device_ms == device_ms


@pytest.mark.parametrize(("code", "error"), [("model_failed", PoisonRequest), ("instance_lost", ComputationLost)])
@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_failure_that_a_runtime_reports_is_not_retried(
    code: str, error: type[InferenceError], status: int
) -> None:
    answer = http(b'{"error":"ValueError: boom"}', "application/json", status, f"x-headrace-error: {code}")
    with pytest.raises(error, match=r"^ValueError: boom$") as caught:
        await call(answer)
    assert (caught.value.retryable, caught.value.blames_endpoint, caught.value.code) == (False, False, code)


async def test_generate_of_several_responses_is_refused() -> None:
    words = b'{"error":"generate expects model to produce exactly 1 response"}'
    with pytest.raises(Unsupported, match="exactly 1"):
        await call(http(words), http_request(b'{"text_input":"a"}', kind="generate"))


async def test_a_header_that_is_no_length() -> None:
    with pytest.raises(BackendError, match="cannot be decoded"):
        await call(http(ANSWER, "application/json", 200, "Inference-Header-Content-Length: x"))


async def test_a_broken_connection_may_be_tried_elsewhere() -> None:
    with pytest.raises(TransportError):
        await call(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc")


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────

ONE, TWO = (b'data: {"model_name":"m","model_version":"1","outputs":[],"id":"%d"}' % i for i in (1, 2))
FAILED = b'data: {"error":"CUDA out of memory at 10.0.0.5"}'


def streaming(kind: Any = "generate_stream", body: bytes = b'{"text_input":"a"}') -> InferRequest:
    return http_request(body, kind=kind)


async def read(answer: bytes, request: InferRequest | None = None) -> list[bytes]:
    async with adapting(answers(answer)) as (adapter, _):
        begun = await adapter.call(request or streaming(), within())
        assert begun.form == Form("oip-http", generates=(request or streaming()).kind == "generate_stream")
        events = [event async for event in begun]
        assert begun.ended
        assert begun.error is None
        return events


async def test_events_are_forwarded_unchanged_until_the_body_ends() -> None:
    assert b"".join(await read(HEAD + piece(ONE) + piece(TWO) + END)) == ONE + b"\n\n" + TWO + b"\n\n"


async def test_keepalive_comments_are_forwarded_too() -> None:
    begun = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + piece(ONE))
        await begun.wait()
        peer.send(piece(b": still here", TWO) + END)

    async with adapting(play) as (adapter, _):
        answer = await adapter.call(streaming(), within())
        begun.set()
        events = b"".join([event async for event in answer])
    assert events == ONE + b"\n\n: still here\n\n" + TWO + b"\n\n"


async def test_a_stream_may_have_no_events() -> None:
    assert await read(HEAD + END) == []


async def test_a_failure_before_any_response_may_be_tried_elsewhere() -> None:
    with pytest.raises(ModelFailed, match=r"\[address\]") as caught:
        await read(HEAD + piece(FAILED) + END)
    assert "10.0.0.5" not in caught.value.message


@pytest.mark.parametrize(
    "rest",
    [piece(ONE, FAILED) + END, piece(ONE) + piece(FAILED) + END, piece(ONE)],
    ids=["in one piece", "in two", "cut off"],
)
async def test_responses_before_a_failure_are_delivered(rest: bytes) -> None:
    answer = HEAD + rest
    async with adapting(answers(answer)) as (adapter, _):
        begun = await adapter.call(streaming(), within())
        assert await anext(begun) == ONE + b"\n\n"
        with pytest.raises((BackendError, TransportError)):
            await anext(begun)
        assert begun.error is not None


async def test_a_client_that_leaves_closes_the_upstreams_connection() -> None:
    left = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + piece(ONE))
        await peer.left()
        left.set()

    async with adapting(play) as (adapter, _):
        begun = await adapter.call(streaming(), within())
        await anext(begun)
        await begun.aclose()
        async with asyncio.timeout(LONG):
            await left.wait()


async def test_a_server_without_streams_of_responses_has_unary_calls() -> None:
    received: list[ReceivedRequest] = []
    none, one = http(b"", "text/plain", 404), http(ANSWER)
    async with adapting(recording(received, none, one, one)) as (adapter, _):
        for request in (http_request(BINARY, LENGTH, kind="infer_stream"), grpc("infer_stream")):
            begun = await adapter.call(request, within())
            assert [event async for event in begun] == [b"data: " + FINAL_ANSWER + b"\n\n"]
            assert (begun.form, begun.ended) == (Form("oip-http"), True)
    assert [line.line.split()[1].rpartition("/")[2] for line in received] == ["infer_stream", "infer", "infer"]
    assert "inference-header-content-length" not in received[1].headers


async def test_an_unknown_model_does_not_disprove_streams() -> None:
    received: list[ReceivedRequest] = []
    none = http(b'{"error":"unknown model"}', "application/json", 404)
    # The third request is for the repository's index.
    async with adapting(recording(received, none, none, none, HEAD + piece(ONE) + END)) as (adapter, _):
        with pytest.raises(NotThere, match="does not exist"):
            await adapter.call(grpc("infer_stream"), within())
        begun = await adapter.call(grpc("infer_stream"), within())
        assert [event async for event in begun] == [ONE + b"\n\n"]


async def test_a_stream_that_is_none() -> None:
    with pytest.raises(BackendError, match="wrong content type"):
        await read(http(ANSWER))
    with pytest.raises(CallerError, match="no such input"):
        await read(http(b'{"error":"no such input"}', "application/json", 400))


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("about", "path"), [("metadata", ""), ("config", "/config"), ("stats", "/stats")])
async def test_questions_are_answered_by_the_server(about: Any, path: str) -> None:
    body = b'{"name":"m"}'
    begun, received = await sent(ModelQuery(model="m", version="2", about=about), http(body))
    assert received.line == f"GET /v2/models/m/versions/2{path} HTTP/1.1"
    assert (begun.body, begun.form) == (body, Form("oip-http"))


async def test_readiness_is_a_status() -> None:
    begun = await call(http(b"", "text/plain"), ModelQuery(model="m", about="ready"))
    assert json.loads(begun.body or b"") == {"name": "m", "ready": True}
    for status in (400, 404, 503):
        with pytest.raises(Unavailable, match="`m` is not ready"):
            await call(
                http(b"{}", "application/json", status, "Connection: close"), ModelQuery(model="m", about="ready")
            )


@pytest.mark.parametrize("order", ["load", "unload"])
async def test_orders_are_carried_out_by_the_server(order: Any) -> None:
    begun, received = await sent(ModelOrder(model="m", order=order, body=b'{"parameters":{}}'), http(b""))
    assert (received.line, received.body) == (f"POST /v2/repository/models/m/{order} HTTP/1.1", b'{"parameters":{}}')
    assert begun.form == Form("oip-http")
    with pytest.raises(CallerError, match="no config"):
        await call(http(b'{"error":"no config"}', "application/json", 400), ModelOrder(model="m", order=order))


async def test_questions_that_are_refused() -> None:
    with pytest.raises(Unsupported, match="does not report its config"):
        await call(http(b"{}", "application/json", 404), ModelQuery(model="m", about="config"))
    with pytest.raises(NotThere, match="does not exist"):
        await call(http(b"{}", "application/json", 404), ModelQuery(model="m"))
    with pytest.raises(Unsupported, match="versioning"):
        await call(http(b'{"error":"no versioning"}', "application/json", 501), ModelQuery(model="m", version="2"))


async def test_the_health_check_requests_readiness() -> None:
    received: list[ReceivedRequest] = []
    async with adapting(recording(received, http(b""), http(b"", "text/plain", 400))) as (adapter, _):
        await adapter.probe(LONG)
        with pytest.raises(BackendError, match="answered 400"):
            await adapter.probe(LONG)
    assert received[0].line == "GET /v2/health/ready HTTP/1.1"
