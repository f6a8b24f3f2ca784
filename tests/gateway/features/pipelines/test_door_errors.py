"""Failures of steps on every API: their status, and the steps that did not run as configured."""

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import grpc
import pytest

from adapters.errors import (
    BackendError,
    CallerError,
    ContextTooLong,
    InferenceError,
    ModelFailed,
    NotFound,
    Overloaded,
    TransportError,
    Unavailable,
    UpstreamTimeout,
)
from adapters.fake import FakeAdapter, Script
from adapters.tensors import FINAL, Inferred, Tensor
from adapters.types import ERROR_CODE, OIP_GRPC, OIP_JSON
from adapters.wire.oip.proto_responses import encode_infer_response, encode_stream_response
from adapters.wire.protos import METHODS, inference
from adapters.wire.protos.tfserving import PREDICTION, serving
from tests.gateway.features.pipelines.rigs import chat_script, chunks, rig
from tests.gateway.fronts.oip import SUM, TensorDoor, TensorFake, tensor_door
from tests.support.gateways import listening

pytestmark = pytest.mark.realtime

STEPS = "x-headrace-steps"
DATA = struct.pack("<2i", 4, 6)

# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────

HINTED = {
    "steps": [
        {"name": "hint", "model": "bad", "on_error": {"use": {"text": "none"}}},
        {"name": "final", "model": "b", "in": {"prompt": "hint.text"}},
    ]
}
VECTOR = json.dumps({"data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 2}}).encode()
COMPLETION = json.dumps({"choices": [{"index": 0, "text": "done", "finish_reason": "stop"}], "usage": {}}).encode()
COMPLETED = (b'data: {"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n")
EMBEDDED = {
    "steps": [
        {"name": "hint", "model": "bad", "on_error": {"use": {"text": "none"}}},
        {"name": "final", "model": "b", "in": {"input": "hint.text"}},
    ]
}


@pytest.mark.parametrize(
    ("path", "body", "answer", "stream"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}, chat_script("x"), False),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}, chunks("x"), True),
        ("/v1/completions", {"prompt": "hi"}, Script(chunks=(COMPLETION,)), False),
        ("/v1/completions", {"prompt": "hi"}, COMPLETED, True),
        ("/v1/embeddings", {"input": "hi"}, Script(chunks=(VECTOR,)), False),
        ("/v1/responses", {"input": "hi", "store": False}, chat_script("x"), False),
        ("/v1/responses", {"input": "hi", "store": False}, chunks("x"), True),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}, chat_script("x"), False),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}, chunks("x"), True),
    ],
)
async def test_every_api_of_texts_names_the_steps_that_did_not_run(
    path: str, body: dict[str, Any], answer: Any, stream: bool
) -> None:
    script = answer if isinstance(answer, Script) else Script(chunks=answer)
    bad = FakeAdapter(Script(fault=BackendError("broken")))
    one = rig(EMBEDDED if path == "/v1/embeddings" else HINTED, {"bad": bad, "b": FakeAdapter(script)})
    fields = {"model": "whole", **body, **({"stream": True} if stream else {})}
    async with listening(one) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        async with http.post(url + path, json=fields, headers=headers) as response:
            await response.read()
            assert (response.status, response.headers.get(STEPS)) == (200, "hint=used")


async def test_a_step_embeds_or_chats_for_a_client_of_any_api() -> None:
    """An `input` makes an embedding for a client of chats; a chat without a prompt is an error that names the step."""
    reported = {
        "steps": [
            {"name": "vector", "model": "a", "in": {"input": "request.text"}},
            {"name": "say", "template": "{{ v }}", "in": {"v": "vector.embedding"}},
            {"name": "final", "model": "b", "in": {"prompt": "say.text"}},
        ]
    }
    one = rig(reported, {"a": FakeAdapter(Script(chunks=(VECTOR,))), "b": FakeAdapter(chat_script("x"))})
    async with listening(one) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        body = {"model": "whole", "messages": [{"role": "user", "content": "hi"}]}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
        (played,) = one.adapters["a"][0].calls
        assert json.loads(bytes(played.request.codec.fields(played.request)["input"])) == "hi"
    promptless = {"steps": [{"name": "final", "model": "b", "in": {"user": "request.user"}}]}
    one = rig(promptless, {"b": FakeAdapter(chat_script("x"))})
    async with listening(one) as url, aiohttp.ClientSession() as http:
        body = {"model": "whole", "input": "hi", "user": "me"}
        async with http.post(f"{url}/v1/embeddings", json=body, headers=headers) as response:
            assert response.status == 401
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        async with http.post(f"{url}/v1/embeddings", json=body, headers=headers) as response:
            error = (await response.json())["error"]
            assert response.status == 502
            assert error["message"] == "The step `final` cannot use its input: a chat needs a `prompt` or `messages`."


# ── tensors ───────────────────────────────────────────────────────────────────────────────────────────────

MENDED = {
    "steps": [
        {"name": "left", "model": "bad", "on_error": {"use": {"SUM": [1, 2]}}},
        {"name": "sum", "model": "chat", "in": {"A": "left.SUM", "B": "request.B"}},
    ]
}
PLAIN: dict[str, Any] = {"steps": [{"name": "sum", "model": "chat"}]}
MADE = {
    "steps": [
        {"name": "first", "model": "good"},
        {"name": "sum", "model": "chat", "in": {"A": "first.SUM", "B": "first.SUM"}},
    ]
}
TENSORS: dict[str, Any] = {
    "inputs": [
        {"name": "A", "shape": [1, 2], "datatype": "INT32", "data": [1, 2]},
        {"name": "B", "shape": [1, 2], "datatype": "INT32", "data": [3, 4]},
    ]
}


@asynccontextmanager
async def opened(pipeline: dict[str, Any], fake: TensorFake, limits: Any = None) -> AsyncIterator[TensorDoor]:
    """A door with the pipeline `whole`. The model `bad` fails, `good` answers, and `chat` is the given fake."""
    fakes: dict[str, FakeAdapter] = {"main": fake, "bad": TensorFake(Script(fault=ModelFailed("broken", detail="")))}
    fakes["good"] = TensorFake(SUM)
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"], "protocol": "oip-http"} for name in fakes]
    route = {"retry": {"attempts": 1}}
    names = {"chat": "main", "bad": "bad", "good": "good"}
    models: list[dict[str, Any]] = [{"name": "whole", "pipeline": pipeline}]
    models += [{"name": name, "routes": [{"to": pool, **route}]} for name, pool in names.items()]
    async with tensor_door(fake, models=models, pools=pools, others=fakes, limits=limits) as door:
        yield door
        await door.rig.until_idle()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/whole/infer", TENSORS),
        ("/v2/models/whole/generate", {"A": [1, 2], "B": [3, 4]}),
        ("/v2/models/whole/infer_stream", TENSORS),
        ("/v2/models/whole/generate_stream", {"A": [1, 2], "B": [3, 4]}),
        ("/v1/models/whole:predict", {"instances": [{"A": [1, 2], "B": [3, 4]}]}),
        ("/v1/models/whole:predict", {"inputs": {"A": [[1, 2]], "B": [[3, 4]]}}),
    ],
)
async def test_every_api_of_tensors_over_http_names_the_steps_that_did_not_run(path: str, body: Any) -> None:
    async with opened(MENDED, TensorFake(SUM)) as door:
        response = await door.post(path, body)
        assert (response.status, response.headers.get(STEPS)) == (200, "left=used"), await response.text()


def infer_message(model: str = "whole") -> bytes:
    message = inference.ModelInferRequest(model_name=model)
    for name in "AB":
        message.inputs.add(name=name, datatype="INT32", shape=[1, 2])
        message.raw_input_contents.append(DATA)
    return bytes(message.SerializeToString())


def predict_message() -> bytes:
    message = serving.PredictRequest()
    message.model_spec.name = "whole"
    for name in "AB":
        message.inputs[name].dtype = 3
        for size in (1, 2):
            message.inputs[name].tensor_shape.dim.add(size=size)
        message.inputs[name].tensor_content = DATA
    return bytes(message.SerializeToString())


UNARY: dict[str, tuple[Any, Any]] = {
    "oip": (METHODS["ModelInfer"], infer_message),
    "tfserving": (PREDICTION["Predict"], predict_message),
}


async def unary(door: TensorDoor, api: str, **options: Any) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    """Send one call; return its code, its message and its trailers."""
    method, message = UNARY[api]
    async with grpc.aio.insecure_channel(door.grpc) as channel:
        call = channel.unary_unary(method.path, response_deserializer=method.response.FromString)
        sent = call(message(), metadata=list(door.keyed.items()), **{"timeout": 30, **options})
        code, details = await sent.code(), await sent.details()
        return code, details or "", dict(await sent.trailing_metadata() or ())


@pytest.mark.parametrize("api", UNARY)
async def test_apis_over_grpc_name_the_steps_in_their_trailers(api: str) -> None:
    async with opened(MENDED, TensorFake(SUM)) as door:
        code, message, trailers = await unary(door, api)
        assert (code, trailers.get(STEPS)) == (grpc.StatusCode.OK, "left=used"), message


SUMMED = Inferred("chat", "1", "", {}, [Tensor("SUM", "INT32", (1, 2), DATA)])
WHOLE_GRPC = Script(chunks=(encode_infer_response(SUMMED),), form=OIP_GRPC)
STREAMED = Script(chunks=(encode_stream_response(encode_infer_response(SUMMED)),) * 2, form=OIP_GRPC)
EVENTS = Script(chunks=(b"data: " + SUM.chunks[0] + b"\n\n",) * 2, form=OIP_JSON)
BOTH = {**MENDED, "out": {"total": "sum.SUM", "left": "left.SUM"}}


@pytest.mark.parametrize(
    ("pipeline", "script", "count"),
    [(MENDED, STREAMED, 2), (MENDED, EVENTS, 2), (BOTH, SUM, 1), (BOTH, WHOLE_GRPC, 1)],
    ids=["messages", "events", "whole", "whole-grpc"],
)
async def test_a_stream_over_grpc_names_the_steps_in_its_first_response(
    pipeline: dict[str, Any], script: Script, count: int
) -> None:
    method = METHODS["ModelStreamInfer"]
    async with opened(pipeline, TensorFake(script)) as door, grpc.aio.insecure_channel(door.grpc) as channel:
        stub = channel.stream_stream(method.path, response_deserializer=method.response.FromString)
        call = stub(iter([infer_message()]), metadata=list(door.keyed.items()), timeout=30)
        responses = [each.infer_response async for each in call]
        assert [each.parameters[STEPS].string_param for each in responses] == ["left=used", ""][:count]
        assert [FINAL in each.parameters for each in responses] == [True] * count
        assert all(each.raw_output_contents for each in responses)


ERRORS: list[tuple[InferenceError, grpc.StatusCode, int]] = [
    (CallerError("wrong"), grpc.StatusCode.INVALID_ARGUMENT, 400),
    (ContextTooLong("long"), grpc.StatusCode.INVALID_ARGUMENT, 400),
    (NotFound("no such model"), grpc.StatusCode.INTERNAL, 502),
    (ModelFailed("broken", detail=""), grpc.StatusCode.INTERNAL, 502),
    (BackendError("strange"), grpc.StatusCode.INTERNAL, 502),
    (TransportError("gone"), grpc.StatusCode.UNAVAILABLE, 502),
    (UpstreamTimeout("slow"), grpc.StatusCode.DEADLINE_EXCEEDED, 504),
    (Overloaded("full", retry_after=1), grpc.StatusCode.UNAVAILABLE, 503),
    (Unavailable("away", retry_after=1), grpc.StatusCode.UNAVAILABLE, 503),
]


@pytest.mark.parametrize(("error", "code", "status"), ERRORS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("api", UNARY)
async def test_each_class_of_failures_has_its_code(
    api: str, error: InferenceError, code: grpc.StatusCode, status: int
) -> None:
    async with opened(PLAIN, TensorFake(Script(fault=error))) as door:
        got, message, _ = await unary(door, api)
        assert got == code
        assert error.message in message
        if not isinstance(error, CallerError) or isinstance(error, NotFound):
            assert message.startswith("The step `sum` failed: ")
        response = await door.post("/v2/models/whole/infer", TENSORS)
        assert response.status == status
        response = await door.post("/v1/models/whole:predict", {"instances": [{"A": [1, 2], "B": [3, 4]}]})
        assert response.status == status


@pytest.mark.parametrize("api", UNARY)
async def test_a_mistake_of_an_earlier_step_is_an_internal_error(api: str) -> None:
    async with opened(MADE, TensorFake(Script(fault=CallerError("wrong")))) as door:
        code, message, _ = await unary(door, api)
        assert (code, message) == (grpc.StatusCode.INTERNAL, "The step `sum` failed: wrong")
        response = await door.post("/v2/models/whole/infer", TENSORS)
        assert (response.status, response.headers[ERROR_CODE]) == (502, "pipeline_step_failed")


@pytest.mark.parametrize("api", UNARY)
async def test_the_pipeline_s_and_the_client_s_deadline(api: str) -> None:
    hanging = Script(latency=3600.0)
    async with opened({**PLAIN, "deadline": "100ms"}, TensorFake(hanging)) as door:
        code, message, _ = await unary(door, api)
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "`sum`" in message
        assert (await door.post("/v2/models/whole/infer", TENSORS)).status == 504
    async with opened(PLAIN, TensorFake(hanging)) as door:
        code, _, _ = await unary(door, api, timeout=0.2)
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("api", UNARY)
async def test_a_limit_is_an_exhausted_resource(api: str) -> None:
    async with opened(PLAIN, TensorFake(SUM), limits=[{"requests": "1/h", "models": ["chat"]}]) as door:
        assert (await unary(door, api))[0] == grpc.StatusCode.OK
        code, message, _ = await unary(door, api)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED, message
