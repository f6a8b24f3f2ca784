"""Failures that servers report, in every form of every protocol: bounded, and without addresses and secrets."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, InferenceError, ModelFailed
from adapters.http1.message import Headers
from adapters.requests import AppRequest
from adapters.upstreams.apps import ray_serve
from adapters.upstreams.failed_status import refused
from adapters.upstreams.openai.client import refusal
from adapters.wire import failure_text
from adapters.wire.anthropic import errors as anthropic
from adapters.wire.openai import chat as openai
from adapters.wire.responses import native
from adapters.wire.text import tgi
from adapters.wire.tfserving import predict_v1_upstream

JSON = Headers({b"content-type": b"application/json"})
PLAIN = Headers({b"content-type": b"text/plain; charset=utf-8"})
SECRETS = [
    "http://10.0.0.5:8000/v1",
    "10.0.0.5:9000",
    "sk-abcdefghijklmnop1234",
    "password=hunter22",
    "/srv/models/x/1",
]
TEXTS = st.lists(st.sampled_from(SECRETS) | st.text(max_size=40), max_size=80).map(" ".join)


def raised(call: Callable[..., object], *arguments: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        call(*arguments)
    return caught.value


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


FORMS: dict[str, Callable[[str], InferenceError]] = {
    "a status of OpenAI's": lambda text: refusal(500, JSON, openai.decode_error(encoded({"error": {"message": text}}))),
    "a chat with 200": lambda text: raised(openai.usage_of_body, encoded({"error": {"message": text}})),
    "an event of a chat": lambda text: raised(openai.read_event, encoded({"error": text})),
    "a Response that failed": lambda text: raised(
        native.usage_of_body, encoded({"status": "failed", "error": {"code": "server_error", "message": text}})
    ),
    "an event of Anthropic's": lambda text: anthropic.stream_error(anthropic.ErrorBody(text, "api_error")),
    "a status of TGI's": lambda text: refused(424, JSON, text),
    "a text with 200": lambda text: raised(tgi.decode_whole, encoded({"error": text})),
    "predictions with 200": lambda text: raised(predict_v1_upstream.check_response, encoded({"error": text})),
    "tensors with 200": lambda text: raised(predict_v1_upstream.decode_answer, encoded({"error": text}), (), "m", ""),
    "an app's text": lambda text: _judged(PLAIN, text.encode()),
    "an app's JSON": lambda text: _judged(JSON, encoded({"message": text})),
}


def _judged(headers: Headers, body: bytes) -> InferenceError:
    error = ray_serve.judged(AppRequest(model="m"), 500, headers, body)
    assert error is not None
    return error


@pytest.mark.parametrize("form", FORMS)
@given(text=TEXTS)
def test_a_failure_has_its_text_without_secrets(form: str, text: str) -> None:
    error = FORMS[form](text)
    if isinstance(error, ModelFailed):
        assert 0 < len(error.message) <= failure_text.MAX_TEXT
        assert 0 < len(error.detail) <= failure_text.MAX_TEXT + len("500: ")
    elif failure_text.for_clients(text) and not text.lstrip().startswith("<"):
        assert error.kind == "caller" or "too long" in text  # the text itself blames the request
    else:
        assert isinstance(error, BackendError)
    for secret in ("10.0.0.5", "hunter22", "sk-abc", "/srv/models"):
        assert secret not in error.message or error.kind == "caller"
        assert secret not in error.detail or secret in ("10.0.0.5", "/srv/models")


@pytest.mark.parametrize("form", FORMS)
def test_the_text_of_a_failure_reaches_the_client(form: str) -> None:
    error = FORMS[form]("ValueError: boom at http://10.0.0.5:8000")
    assert isinstance(error, ModelFailed)
    assert error.message == "ValueError: boom at [address]"
    assert error.detail.endswith("ValueError: boom at http://10.0.0.5:8000")
