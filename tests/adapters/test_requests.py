"""Properties of all codecs: deriving a request leaves the request itself unchanged."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from adapters.requests import AppRequest, ModelRequest
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.oip import proto_requests, request_view
from adapters.wire.openai import chat, model_field
from adapters.wire.responses import requests as responses
from adapters.wire.tfserving import predict as tfserving_predict
from adapters.wire.tfserving import predict_v1_view, predict_view

HI = [{"role": "user", "content": "hi"}]
TENSORS = {
    "inputs": [{"name": "x", "shape": [2, 1], "datatype": "INT32", "data": [1, 2]}],
    "parameters": {"sequence_id": 5, "a": 1},
}


def _oip(body: bytes = json.dumps(TENSORS).encode()) -> Any:
    return request_view.request_of(body, model="m", version="")


def _grpc() -> ModelRequest:
    message = proto_requests.encode_infer_request(_oip().inference)
    inference = proto_requests.decode_infer_request(message)
    return proto_requests.request_of(inference, message, model="m", version="", kind="infer")


def _predict() -> ModelRequest:
    message = tfserving_predict.encode_request(_oip().inference, "m")
    return predict_view.request_of(predict_view.summarize(message), message, model="m", version="")


def _app() -> ModelRequest:
    body = json.dumps({"model": "m", "query": "q", "documents": ["d"]}).encode()
    return AppRequest(model="m", path="/v1/rerank", content_type="application/json", body=body, codec=model_field.CODEC)


MAKERS: dict[str, Callable[[], ModelRequest]] = {
    "chat": lambda: chat.decode_chat(json.dumps({"model": "m", "messages": HI, "user": "u"}).encode()),
    "completion": lambda: chat.decode_completion(b'{"model": "m", "prompt": "hi"}'),
    "embedding": lambda: chat.decode_embedding(b'{"model": "m", "input": "hi"}'),
    "responses": lambda: responses.decode_native(b'{"model": "m", "input": "hi"}'),
    "message": lambda: anthropic.decode_message(
        json.dumps({"model": "m", "messages": HI, "max_tokens": 5, "metadata": {"user_id": "u"}}).encode()
    ),
    "count": lambda: anthropic.decode_count(json.dumps({"model": "m", "messages": HI}).encode()),
    "oip-http": _oip,
    "oip-grpc": _grpc,
    "predict-v1": lambda: predict_v1_view.request_of(
        b'{"instances": [[1]], "parameters": {"a": 1}}', model="m", version=""
    ),
    "tfserving-grpc": _predict,
    "app": _app,
}


def _state(request: ModelRequest) -> Any:
    """The encoded state of a request, to compare it with a later state."""
    fields = {name: bytes(raw) for name, raw in request.codec.fields(request).items()}
    values = {name: getattr(request, name) for name in request.__struct_fields__ if name not in ("payload", "chat")}
    return fields, values, [bytes(part) for part in request.codec.canonical(request)]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@settings(max_examples=25, deadline=None)
@given(model=st.text("abc", min_size=1), value=st.integers(0, 100), order=st.permutations(["rename", "rewrite"]))
def test_a_derived_request_shares_nothing_that_changes(
    make: Callable[[], ModelRequest], model: str, value: int, order: list[str]
) -> None:
    first = make()
    before, derived = _state(first), first
    for step in order:
        if step == "rename":
            derived = derived.codec.rename(derived, model)
            assert derived.model == model
        else:
            fields = {**derived.codec.fields(derived), "seed": Raw(msgspec.json.encode(value))}
            derived = derived.codec.rewrite(derived, fields)
            assert bytes(derived.codec.fields(derived)["seed"]) == b"%d" % value
        assert type(derived) is type(first)
    assert derived.model == model
    assert _state(first) == before
    if first.sequence:
        separated = derived.codec.separate(derived, "acme")
        assert separated.codec.fields(separated) != derived.codec.fields(derived)
        assert _state(first) == before


def test_a_renamed_message_reaches_a_chat_with_its_name() -> None:
    message = anthropic.decode_message(json.dumps({"model": "m", "messages": HI, "max_tokens": 5}).encode())
    assert bytes(message.fields["model"]) == b'"m"'
    renamed = message.codec.rename(message, "other")
    assert renamed.payload.chat is not None  # the translation is not repeated
    assert bytes(renamed.fields["model"]) == bytes(renamed.payload.native["model"]) == b'"other"'
    assert bytes(message.fields["model"]) == b'"m"'
