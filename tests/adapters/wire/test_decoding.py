"""Malformed upstream bodies: each decoder raises `BackendError` and no other exception."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.types import Usage
from adapters.upstreams.oip import dialects
from adapters.wire import decoding, torchserve
from adapters.wire.anthropic import answers as messages
from adapters.wire.apps import bentoml_schema, ray_serve
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip import proto_responses
from adapters.wire.oip import responses as oip_responses
from adapters.wire.openai import chat, model_field
from adapters.wire.responses import native
from adapters.wire.text import tgi
from adapters.wire.tfserving import predict_v1_upstream

DECODERS: dict[str, Callable[[bytes], Any]] = {
    "chat": chat.usage_of_body,
    "chat event": chat.read_event,
    "models": model_field.decode_models,
    "message": messages.read_message,
    "chat as a message": lambda body: messages.message_of(body, Usage(), []),
    "response": native.usage_of_body,
    "response event": native.read_event,
    "metadata": oip_bodies.decode_metadata,
    "index": oip_bodies.decode_index,
    "infer": lambda body: oip_responses.decode_response(body, None),
    "binary infer": lambda body: oip_responses.decode_response(body, 7),
    "infer message": proto_responses.decode_infer_response,
    "object": oip_responses.check_object,
    "ovms": lambda body: dialects.listed_state(body, "m"),
    "predictions": lambda body: predict_v1_upstream.decode_answer(body, [], "m", ""),
    "bentoml": bentoml_schema.decode_schema,
    "ray applications": lambda body: ray_serve.status_of(body, "a"),
    "ray listing": ray_serve.decode_listing,
    "tgi": tgi.decode_whole,
    "tgi event": tgi.decode_event,
    "infer event": proto_responses.split_stream_response,
    "torchserve": torchserve.decode_described,
    "torchserve message": torchserve.decode_response,
}
VALID = b'{"choices":[{"message":{"content":"x"}}],"outputs":[{"name":"o","datatype":"FP32","shape":[1],"data":[1]}]}'
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
)
BODIES = st.one_of(
    st.binary(max_size=64),
    st.integers(0, len(VALID)).map(lambda end: VALID[:end]),
    JSON.map(msgspec.json.encode),
    st.integers(1, 5000).map(lambda depth: b'{"choices":' + b"[" * depth),
)


@given(body=BODIES)
def test_decoders_of_upstream_bodies_raise_backend_errors_only(body: bytes) -> None:
    for name, decoder in DECODERS.items():
        try:
            with suppress(BackendError):
                decoder(body)
        except Exception as error:
            error.add_note(f"decoder: {name}")
            raise


@pytest.mark.parametrize("body", [b"", b"{", b'"\xff"', b"[" * 100_000])
def test_malformed_json_raises_one_error(body: bytes) -> None:
    for decode in (decoding.decode, _guarded):
        with pytest.raises(BackendError, match="The upstream's list cannot be decoded") as failed:
            decode(msgspec.json.Decoder(list[Any]).decode, body, "list")
        assert failed.value.code == "upstream_bad_response"


def test_a_guard_converts_the_exceptions_that_it_is_given() -> None:
    with pytest.raises(BackendError), decoding.Checked(KeyError):
        raise KeyError("choices")
    with pytest.raises(KeyError), decoding.Checked(IndexError):
        raise KeyError("choices")


def _guarded(decoder: Callable[[bytes], Any], body: bytes, subject: str) -> None:
    with decoding.Checked(subject=subject):
        decoder(body)
