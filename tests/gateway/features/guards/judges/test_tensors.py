"""Guards that judge tensors and completions."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.errors import ContentFiltered
from adapters.fake import FakeAdapter, Script
from adapters.requests import InferRequest
from adapters.tensors import FINAL, Inference, Inferred, Tensor, join_bytes
from adapters.types import OIP_GENERATE, OIP_GRPC, OIP_JSON, Form
from adapters.wire.oip import request_view
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from tests.gateway.features.pipelines.rigs import streamed
from tests.support.cut_streams import cuts_of, events_of
from tests.support.gateways import Rig
from tests.support.guarding import received
from tests.support.judging import BY_CHAT, Judging, judged

SMALL = {**BY_CHAT, "window": 4, "overlap": 2}
FORMS = pytest.mark.parametrize("form", [OIP_JSON, OIP_GRPC, OIP_GENERATE], ids=["http", "grpc", "generate"])


def text(value: str) -> Tensor:
    return Tensor("text", "BYTES", (1,), join_bytes([value.encode()]))


def infer(value: str) -> InferRequest:
    body, _ = oip.encode_request(Inference("chat", inputs=[text(value)]), binary=False)
    return request_view.request_of(body, model="chat", version="", kind="infer")


async def test_prompts_and_answers_of_tensors_are_judged() -> None:
    body, _ = oip_responses.encode_response(Inferred("chat", outputs=[text("a zebra")]))
    model = FakeAdapter(Script(chunks=(body,), form=OIP_JSON))
    one = judged(model, Judging(), BY_CHAT)
    for prompt, calls in (("a zebra", 0), ("a horse", 1)):
        with pytest.raises(ContentFiltered):
            await one.core.handle(one.principal, infer(prompt), {}, one.record())
        assert len(model.calls) == calls
    one.assert_idle()


async def left_of(one: Rig, form: Form) -> bytes:
    """What leaves a stream before its block."""
    if form.generates:
        request = request_view.request_of(b'{"text_input":"go"}', model="chat", version="", kind="generate_stream")
    else:
        request = replace(infer("go"), kind="infer_stream", stream=True)
    left = b""
    try:
        async for piece in await one.core.handle(one.principal, request, {}, one.record()):
            left += piece
    except ContentFiltered:
        return left
    raise AssertionError("nothing was blocked")


@FORMS
@settings(max_examples=40, deadline=None)
@given(ends=st.lists(st.integers(1, 60), max_size=12))
async def test_no_cut_of_a_stream_of_tensors_lets_a_letter_leave(form: Form, ends: list[int]) -> None:
    written = "so many words stand before the zebra, and so may this"
    places = sorted({end for end in ends if end < len(written)})
    chunks = [written[a:b] for a, b in zip([0, *places], [*places, len(written)], strict=True)]
    one = judged(FakeAdapter(Script(chunks=pieces(chunks, form), form=form)), Judging(), SMALL)
    left = await left_of(one, form)
    assert b"ebra" not in left
    assert b"so may this" not in left
    one.assert_idle()


def pieces(chunks: Sequence[str], form: Form) -> tuple[bytes, ...]:
    last = len(chunks) - 1
    return streamed(
        (Inferred("m", "1", "", {FINAL: at == last}, [text(chunk)]) for at, chunk in enumerate(chunks)), form
    )


async def test_completions_are_judged() -> None:
    scripts = []
    for cut in cuts_of("so many words stand before the zebra, and so may this", seed=9):
        written = [json.dumps({"choices": [{"index": 0, "text": piece, "finish_reason": None}]}) for piece in cut]
        end = json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        scripts.append(Script(chunks=tuple(f"data: {each}\n\n".encode() for each in (*written, end, "[DONE]"))))
    one = judged(FakeAdapter(*scripts), Judging(), SMALL)
    for _, body, _ in await received(one, "/v1/completions", len(scripts), prompt="x", stream=True):
        texts = "".join(each["choices"][0]["text"] for each in events_of(body) if each.get("choices"))
        assert "content_filter" in body
        assert "ebra" not in texts
        assert "so may this" not in texts
