"""Personal data in texts of the Open Inference Protocol: servers receive placeholders, and clients their values."""

import json
import threading
from typing import Literal

import pytest

from adapters.fake import Script
from adapters.requests import InferRequest
from adapters.tensors import FINAL, Inference, Inferred, Tensor, join_bytes, split_bytes
from adapters.types import OIP_GENERATE, OIP_GRPC, OIP_JSON, Form
from adapters.wire import sse
from adapters.wire.oip import request_view
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from gateway.features.guards.personal import PersonalTexts
from tests.gateway.features.pipelines.rigs import streamed
from tests.support.gateways import Rig
from tests.support.guarding import guarded
from tests.support.personal import PERSONAL, written

EMAIL = "bob@example.com"
TO = written("email", EMAIL)
ANSWER = f"I wrote to {TO}, and to {TO[1:-1].lower()}; a < b"
RESTORED = f"I wrote to {EMAIL}, and to {EMAIL}; a < b"


def text(value: str) -> Tensor:
    return Tensor("text", "BYTES", (1,), join_bytes([value.encode()]))


def generate(kind: Literal["generate", "generate_stream"], prompt: str = f"write to {EMAIL}") -> InferRequest:
    body = json.dumps({"text_input": prompt}).encode()
    return request_view.request_of(body, model="chat", version="", kind=kind)


def prompt_of(one: Rig) -> str:
    """The prompt that the server has received."""
    request = one.adapters["main"][0].calls[-1].request
    assert isinstance(request, InferRequest)
    prompt: str = json.loads(bytes(request.payload.plain))["text_input"]
    return prompt


async def test_a_whole_answer_of_generate_has_the_values_again() -> None:
    body = json.dumps({"model_name": "chat", "text_output": ANSWER}).encode()
    one = guarded(Script(chunks=(body,), form=OIP_GENERATE), guards=[PERSONAL])
    answer = await one.core.handle(one.principal, generate("generate"), {}, one.record())
    assert json.loads(answer.body or b"")["text_output"] == RESTORED
    assert prompt_of(one) == f"write to {TO}"
    one.assert_idle()


async def test_a_whole_answer_of_tensors_has_the_values_again() -> None:
    body, _ = oip_responses.encode_response(Inferred("chat", outputs=[text(ANSWER)]))
    one = guarded(Script(chunks=(body,), form=OIP_JSON), guards=[PERSONAL])
    given, _ = oip.encode_request(Inference("chat", inputs=[text(f"write to {EMAIL}")]), binary=False)
    request = request_view.request_of(given, model="chat", version="", kind="infer")
    answer = await one.core.handle(one.principal, request, {}, one.record())
    (output,) = oip_responses.decode_response(answer.body or b"", answer.form.header_length).outputs
    assert bytes(split_bytes(output.data, 1, "text")[0]).decode() == RESTORED
    sent = one.adapters["main"][0].calls[-1].request
    assert isinstance(sent, InferRequest)
    assert EMAIL.encode() not in bytes(sent.payload.plain)
    one.assert_idle()


@pytest.mark.parametrize("form", [OIP_JSON, OIP_GRPC, OIP_GENERATE], ids=["http", "grpc", "generate"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_a_stream_of_generate_has_the_values_again(form: Form, size: int) -> None:
    chunks = [ANSWER[at : at + size] for at in range(0, len(ANSWER), size)]
    last = len(chunks) - 1
    pieces = streamed(
        (Inferred("m", "1", "", {FINAL: at == last}, [text(chunk)]) for at, chunk in enumerate(chunks)), form
    )
    one = guarded(Script(chunks=pieces, form=form), guards=[PERSONAL])
    answer = await one.core.handle(one.principal, generate("generate_stream"), {}, one.record())
    left = ""
    async for piece in answer:
        for event in filter(None, piece.split(b"\n\n")):
            data = sse.data_of(event)
            if answer.form.generates:
                left += json.loads(data).get("text", "")
            else:
                (output,) = oip_responses.decode_response(data, None).outputs
                left += bytes(split_bytes(output.data, 1, "")[0]).decode()
    assert left == RESTORED
    assert prompt_of(one) == f"write to {TO}"
    one.assert_idle()


async def test_a_long_prompt_is_masked_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, masked = set[threading.Thread](), PersonalTexts.masked

    def noted(personal: PersonalTexts, text: str, key: str = "") -> str:
        threads.add(threading.current_thread())
        return masked(personal, text, key)

    monkeypatch.setattr(PersonalTexts, "masked", noted)
    body = json.dumps({"model_name": "chat", "text_output": "fine"}).encode()
    one = guarded(Script(chunks=(body,), form=OIP_GENERATE), guards=[PERSONAL])
    request = generate("generate", f"write to {EMAIL} " + "a word " * 4096)
    await one.core.handle(one.principal, request, {}, one.record())
    assert prompt_of(one).startswith(f"write to {TO} ")
    assert threads
    assert threading.current_thread() not in threads
