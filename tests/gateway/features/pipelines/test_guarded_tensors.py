"""A guard over a stream of tensors, in each form of its events."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.errors import ContentFiltered
from adapters.fake import FakeAdapter, Script
from adapters.tensors import FINAL, Inferred, Tensor, join_bytes, split_bytes
from adapters.types import OIP_GENERATE, OIP_GRPC, OIP_JSON, Form
from adapters.wire import sse
from adapters.wire.oip import request_view
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.proto_responses import encode_infer_response
from tests.gateway.features.pipelines.rigs import infer, rig, streamed
from tests.support.gateways import Rig
from tests.support.guards import FORBIDDEN, Classifier

COUNT = Tensor("n", "INT32", (1,), b"\1\0\0\0")
FORMS = pytest.mark.parametrize("form", [OIP_JSON, OIP_GRPC, OIP_GENERATE], ids=["http", "grpc", "generate"])


def events(texts: Sequence[bytes], form: Form, *, marks: str = "", **parameters: Any) -> tuple[bytes, ...]:
    """The pieces of a stream, one text in each. The final response is marked, has texts, or is `empty`."""
    made = []
    for index, text in enumerate(texts):
        final = {FINAL: marks == "last" and index == len(texts) - 1} if marks else {}
        outputs = [Tensor("text_output", "BYTES", (1,), join_bytes([text])), COUNT]
        made.append(Inferred("m", "1", "", {**final, **parameters}, outputs))
    if marks == "empty":
        made.append(Inferred("m", "1", "", {FINAL: True}))
    return streamed(made, form)


def guarded(chunks: tuple[bytes, ...], form: Form, window: int = 3, overlap: int = 2, **script: Any) -> Rig:
    fake = FakeAdapter(Script(chunks=chunks, form=form, **script))
    guard = {"model": "toxicity", "block_if": "score >= 0.8", "on": "answer", "input": "text"}
    steps = [
        {"name": "draft", "model": "a"},
        {"name": "guard", "guard": {**guard, "window": window, "overlap": overlap}},
    ]
    return rig({"steps": steps}, {"a": fake, "toxicity": Classifier()}, tensors=["a", "toxicity"])


async def received(one: Rig, form: Form) -> tuple[list[Any], BaseException | None]:
    """The events that leave, decoded, and the error that ends the stream."""
    if form.generates:
        request = request_view.request_of(b'{"text_input":"go"}', model="whole", version="", kind="generate_stream")
    else:
        request = replace(infer(Tensor("x", "INT32", (1,), b"\1\0\0\0")), kind="infer_stream", stream=True)
    responses: list[Any] = []
    try:
        answer = await one.core.handle(one.principal, request, {}, one.record())
        assert answer.form == (OIP_GENERATE if form.generates else OIP_JSON)
        async for piece in answer:
            for event in filter(None, piece.split(b"\n\n")):
                data = sse.data_of(event)
                responses.append(json.loads(data) if form.generates else oip_responses.decode_response(data, None))
    except ContentFiltered as block:
        return responses, block
    return responses, None


def text_of(responses: list[Any]) -> bytes:
    """The text of all events."""
    if responses and isinstance(responses[0], dict):
        return "".join(each.get("text_output", "") for each in responses).encode()
    texts = [tensor for each in responses for tensor in each.outputs if tensor.name == "text_output"]
    return b"".join(b"".join(split_bytes(tensor.data, 1, "text")) for tensor in texts)


@FORMS
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.text(st.characters(codec="utf-8"), max_size=30),
    after=st.text(st.characters(codec="utf-8"), max_size=30),
    forbidden=st.booleans(),
    places=st.lists(st.integers(0, 200), max_size=10),
    marks=st.sampled_from(["", "last", "empty"]),
)
async def test_no_cut_of_a_stream_of_tensors_lets_a_byte_leave(
    form: Form, before: str, after: str, forbidden: bool, places: list[int], marks: str
) -> None:
    """The texts are cut anywhere; over gRPC, also within a character."""
    text = before + (FORBIDDEN if forbidden else "") + after
    whole: Any = text.encode() if form is OIP_GRPC else text
    ends = [*sorted({place % (len(whole) + 1) for place in places}), len(whole)]
    cut = [whole[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    pieces = [each if isinstance(each, bytes) else each.encode() for each in cut]
    one = guarded(events(pieces, form, marks="" if form.generates else marks), form)
    responses, error = await received(one, form)
    left = text_of(responses)
    if FORBIDDEN in text:
        assert error is not None
        assert text.encode().startswith(left)
        assert len(left.decode()) <= text.index(FORBIDDEN)
    else:
        assert (left, error) == (text.encode(), None)
    one.assert_idle()


@FORMS
async def test_texts_in_parameters_do_not_leave(form: Form) -> None:
    one = guarded(events([b"fine"], form, note=FORBIDDEN, temperature=0.5, top=3), form)
    responses, error = await received(one, form)
    if form.generates:  # a parameter is a field like an output, so its text is guarded
        assert isinstance(error, ContentFiltered)
        assert text_of(responses) in (b"", b"fine")
        assert FORBIDDEN not in json.dumps(responses)
        return
    assert error is None
    assert [dict(each.parameters) for each in responses[:1]] == [{"temperature": 0.5, "top": 3}]


@FORMS
async def test_other_outputs_pass_with_each_response(form: Form) -> None:
    one = guarded(events([b"ab", b"cd", b"ef"], form), form)
    responses, _ = await received(one, form)
    if form.generates:
        assert [each["n"] for each in responses[:3]] == [1, 1, 1]
    else:
        assert [[tensor.name for tensor in each.outputs] for each in responses] == [["text_output", "n"]] * 3 + [
            ["text_output"]
        ]


@FORMS
async def test_a_stream_of_tensors_is_held_by_one_window_and_no_more(form: Form) -> None:
    one = guarded(events([b"abcd"] * 8, form), form, window=3, overlap=1, gap=1.0)
    started = one.core.clock()
    request = replace(infer(COUNT), kind="infer_stream", stream=True)
    if form.generates:
        request = request_view.request_of(b'{"text_input":"go"}', model="whole", version="", kind="generate_stream")
    answer = await one.core.handle(one.principal, request, {}, one.record())
    times = [round(one.core.clock() - started) async for piece in answer if b"abcd" in piece]
    assert times[:3] == [2, 4, 6]  # the third text of four characters fills the window


async def test_an_output_that_ends_before_the_others_leaves_whole() -> None:
    """The texts of an output that the final response does not have, and of an element that it has no longer."""
    first = Inferred("m", "1", "", {FINAL: False}, [Tensor("text_output", "BYTES", (2,), join_bytes([b"ab", b"cd"]))])
    last = Inferred("m", "1", "", {FINAL: True}, [Tensor("text_output", "BYTES", (1,), join_bytes([b"ef"]))])
    chunks = tuple(sse.encode(oip_responses.encode_response(each)[0]) for each in (first, last))
    one = guarded(chunks, OIP_JSON)
    responses, error = await received(one, OIP_JSON)
    assert error is None
    texts = [[split_bytes(tensor.data, tensor.shape[0], "") for tensor in each.outputs] for each in responses]
    assert texts == [[[b"", b""]], [[b"", b"cd"]], [[b"abef"]]]
    assert [each.parameters[FINAL] for each in responses] == [False, False, True]


@pytest.mark.parametrize("of_tensor", [False, True])
async def test_a_text_in_a_parameter_of_a_whole_answer_is_examined(of_tensor: bool) -> None:
    note = {"note": FORBIDDEN}
    tensor = Tensor("text_output", "BYTES", (1,), join_bytes([b"fine"]), note if of_tensor else {})
    inferred = Inferred("m", "1", "", {} if of_tensor else note, [tensor])
    for form, body in (
        (OIP_JSON, oip_responses.encode_response(inferred)[0]),
        (OIP_GRPC, encode_infer_response(inferred)),
    ):
        one = guarded((body,), form)
        with pytest.raises(ContentFiltered):
            await one.core.handle(one.principal, infer(COUNT), {}, one.record())
