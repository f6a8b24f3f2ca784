"""Guards on tensors: prompts and answers of the Open Inference Protocol and of KServe's v1."""

import base64
import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.errors import ContentFiltered
from adapters.fake import Script
from adapters.requests import ExplainRequest, InferRequest
from adapters.tensors import FINAL, Inference, Inferred, Tensor, join_bytes, split_bytes
from adapters.types import OIP_GENERATE, OIP_GRPC, OIP_JSON, Form
from adapters.wire import sse
from adapters.wire.oip import request_view
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.tfserving import predict_v1_view
from tests.gateway.features.pipelines.rigs import streamed
from tests.support.gateways import Rig
from tests.support.guarding import WORDS, guarded

MASKING = {**WORDS, "action": "mask"}
FORMS = pytest.mark.parametrize("form", [OIP_JSON, OIP_GRPC, OIP_GENERATE], ids=["http", "grpc", "generate"])
COUNT = Tensor("n", "INT32", (1,), b"\1\0\0\0")


def text(value: str | bytes) -> Tensor:
    data = value if isinstance(value, bytes) else value.encode()
    return Tensor("text", "BYTES", (1,), join_bytes([data]))


def binary(*tensors: Tensor) -> InferRequest:
    body, length = oip.encode_request(Inference("chat", inputs=list(tensors)), binary=True)
    return request_view.request_of(body, model="chat", version="", kind="infer", header_length=length)


def plain(*tensors: Tensor) -> InferRequest:
    body, _ = oip.encode_request(Inference("chat", inputs=list(tensors)), binary=False)
    return request_view.request_of(body, model="chat", version="", kind="infer")


def texts_of(request: InferRequest) -> list[bytes]:
    return [bytes(each) for tensor in request.inference.inputs for each in split_bytes(tensor.data, 1, "text")]


async def sent(one: Rig, request: InferRequest) -> InferRequest:
    await one.core.handle(one.principal, request, {}, one.record())
    (call,) = one.adapters["main"][0].calls
    assert isinstance(call.request, InferRequest)
    return call.request


def whole(*outputs: Tensor) -> Script:
    body, _ = oip_responses.encode_response(Inferred("chat", outputs=list(outputs)))
    return Script(chunks=(body,), form=OIP_JSON)


@pytest.mark.parametrize("make", [plain, binary])
async def test_prompts_of_tensors_are_masked_or_blocked(make: Callable[[Tensor], InferRequest]) -> None:
    request = await sent(guarded(whole(COUNT), guards=[MASKING]), make(text("the Zebra")))
    assert texts_of(request) == ["the […]".encode()]
    one = guarded(whole(COUNT), guards=[WORDS])
    with pytest.raises(ContentFiltered):
        await one.core.handle(one.principal, make(text("the Zebra")), {}, one.record())
    assert one.adapters["main"][0].calls == []


async def test_bytes_that_are_no_text_are_sent_as_they_are() -> None:
    picture = b"\xff\xd8\xff\x00 fine \xfe"
    request = await sent(guarded(whole(COUNT), guards=[MASKING]), binary(text(picture)))
    assert texts_of(request) == [picture]
    request = await sent(guarded(whole(COUNT), guards=[MASKING]), binary(text(picture + b" zebra ")))
    assert texts_of(request) == [picture + " […] ".encode()]


@pytest.mark.parametrize("length", ["json", "binary"])
async def test_an_explanation_with_masks_is_still_one(length: str) -> None:
    made = Inference("chat", inputs=[text("the Zebra")])
    body, head = oip.encode_request(made, binary=length == "binary")
    request = request_view.request_of(body, model="chat", version="3", kind="explain", header_length=head)
    received = await sent(guarded(whole(COUNT), guards=[MASKING]), request)
    assert isinstance(received, ExplainRequest)
    assert (received.operation, received.kind, received.version) == ("explain", "explain", "3")
    assert texts_of(received) == ["the […]".encode()]


async def test_prompts_of_kserve_and_generate_are_masked() -> None:
    predict = predict_v1_view.request_of(b'{"instances":[{"id":"the zebra"}]}', model="chat", version="")
    request = await sent(guarded(whole(COUNT), guards=[MASKING]), predict)
    assert json.loads(request.payload.body) == {"instances": [{"id": "the […]"}]}
    encoded = base64.b64encode(b"the zebra").decode()
    body = json.dumps({"instances": [{"b64": encoded}]}).encode()
    request = await sent(
        guarded(whole(COUNT), guards=[MASKING]), predict_v1_view.request_of(body, model="chat", version="")
    )
    (instance,) = json.loads(request.payload.body)["instances"]
    assert base64.b64decode(instance["b64"]) == "the […]".encode()
    generate = request_view.request_of(b'{"text_input":"the zebra"}', model="chat", version="", kind="generate")
    request = await sent(guarded(whole(COUNT), guards=[MASKING]), generate)
    assert json.loads(request.payload.plain) == {"text_input": "the […]"}


async def test_whole_answers_of_tensors_are_masked_or_blocked() -> None:
    one = guarded(whole(text("the Zebra"), COUNT), guards=[MASKING])
    answer = await one.core.handle(one.principal, plain(COUNT), {}, one.record())
    assert answer.body is not None
    outputs = oip_responses.decode_response(answer.body, answer.form.header_length).outputs
    assert [bytes(each) for each in split_bytes(outputs[0].data, 1, "text")] == ["the […]".encode()]
    assert bytes(outputs[1].data) == bytes(COUNT.data)
    blocking = guarded(whole(text("the Zebra")), guards=[WORDS])
    with pytest.raises(ContentFiltered):
        await blocking.core.handle(blocking.principal, plain(COUNT), {}, blocking.record())
    blocking.assert_idle()


def pieces(chunks: Sequence[bytes], form: Form) -> tuple[bytes, ...]:
    """The pieces of a stream, one chunk of the text in each."""
    last = len(chunks) - 1
    return streamed(
        (Inferred("m", "1", "", {FINAL: at == last}, [text(chunk), COUNT]) for at, chunk in enumerate(chunks)), form
    )


async def left_of(one: Rig, form: Form) -> str:
    """The text that leaves a stream."""
    if form.generates:
        request = request_view.request_of(b'{"text_input":"go"}', model="chat", version="", kind="generate_stream")
    else:
        request = replace(plain(COUNT), kind="infer_stream", stream=True)
    answer = await one.core.handle(one.principal, request, {}, one.record())
    left = ""
    async for piece in answer:
        for event in filter(None, piece.split(b"\n\n")):
            data = sse.data_of(event)
            if form.generates:
                left += json.loads(data).get("text", "")
            else:
                outputs = oip_responses.decode_response(data, None).outputs
                named = [tensor for tensor in outputs if tensor.name == "text"]
                left += "".join(bytes(split_bytes(tensor.data, 1, "")[0]).decode() for tensor in named)
    return left


@FORMS
@settings(max_examples=40, deadline=None)
@given(ends=st.lists(st.integers(1, 40), max_size=12))
async def test_no_cut_of_a_stream_of_tensors_lets_a_letter_leave(form: Form, ends: list[int]) -> None:
    written = "tell the ＺＥ\u200bＢＲＡ and the secret plan now"
    places = sorted({end for end in ends if end < len(written)})
    chunks = [written[a:b].encode() for a, b in zip([0, *places], [*places, len(written)], strict=True)]
    if form.wire == "oip-grpc":  # where a chunk may cut a character
        data = written.encode()
        chunks = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    one = guarded(Script(chunks=pieces(chunks, form), form=form), guards=[MASKING])
    assert await left_of(one, form) == "tell the […] and the […] now"
    one.assert_idle()
