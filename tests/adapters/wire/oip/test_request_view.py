import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from adapters.errors import CallerError
from adapters.requests import InferRequest
from adapters.wire.oip.proto_requests import decode_infer_request, encode_infer_request
from adapters.wire.oip.proto_requests import request_of as grpc_request_of
from adapters.wire.oip.request_view import request_of, rows_of, sequence_name

INPUT = {"name": "x", "shape": [2, 1], "datatype": "INT32", "data": [1, 2]}


def http(kind: Any = "infer", **fields: Any) -> InferRequest:
    body = {"inputs": [INPUT], **fields} if kind == "infer" else {"text_input": "x", **fields}
    return request_of(json.dumps(body).encode(), model="m", version="", kind=kind)


def grpc(**fields: Any) -> InferRequest:
    message = encode_infer_request(http(**fields).inference)
    return grpc_request_of(decode_infer_request(message), message, model="m", version="", kind="infer")


def parameters_of(request: InferRequest) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in request.codec.fields(request).items()}


MAKERS = [http, grpc]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("id_", [5, 2**62, "five"], ids=repr)
def test_sequences_of_two_tenants_never_meet(make: Any, id_: int | str) -> None:
    seen = set()
    for tenant in ("acme", "beta"):
        request = make(parameters={"sequence_id": id_, "sequence_start": True, "mine": "x"})
        request = request.codec.separate(request, tenant)
        parameters = parameters_of(request)
        own = parameters.pop("sequence_id")
        assert parameters == {"sequence_start": True, "mine": "x"}
        assert type(own) is type(id_)
        assert own != id_
        assert isinstance(own, str) or 0 < own < 2**63
        seen.add(own)
        again = make(parameters={"sequence_id": id_})
        again = again.codec.separate(again, tenant)
        assert parameters_of(again)["sequence_id"] == own
        assert request.inference.inputs[0].data == bytes([1, 0, 0, 0, 2, 0, 0, 0])
    assert len(seen) == 2


@pytest.mark.parametrize("fields", [{"sequence_id": 7}, {"parameters": {"sequence_id": 7}}], ids=["beside", "within"])
def test_a_prompts_sequence_is_separated_too(fields: dict[str, Any]) -> None:
    request = http("generate", **fields)
    assert request.sequence == "7"
    request = request.codec.separate(request, "acme")
    body = json.loads(request.payload.body)
    assert body["text_input"] == "x"
    assert (body.get("parameters") or body)["sequence_id"] != 7


@pytest.mark.parametrize("make", MAKERS)
def test_parameters_are_written_and_tensors_stay(make: Any) -> None:
    request = make(parameters={"a": 1, "model": "mine"})
    assert parameters_of(request) == {"a": 1}
    request = request.codec.rewrite(request, {"b": Raw(b"true"), "model": Raw(b'"theirs"')})
    assert parameters_of(request) == {"b": True}
    assert request.model == "theirs"
    assert dict(request.inference.parameters) == {"b": True, "model": "mine"}
    assert request.inference.inputs[0].shape == (2, 1)


def test_an_object_has_no_form_over_grpc() -> None:
    request = grpc()
    with pytest.raises(CallerError, match="no form over gRPC"):
        request.codec.rewrite(request, {"b": Raw(b"{}")})


def test_a_raw_request_has_no_parameters() -> None:
    request = request_of(b"\0", model="m", version="", header_length=0)
    assert request.codec.fields(request) == {}
    with pytest.raises(CallerError, match="raw request"):
        request.codec.rewrite(request, {})


@pytest.mark.parametrize("make", MAKERS)
def test_equal_requests_have_equal_canonical_forms(make: Any) -> None:
    one, same, other = make(), make(), make(id="2")
    assert one.codec.canonical(one) == same.codec.canonical(same) != other.codec.canonical(other)
    assert one.codec.is_deterministic(one)


def test_rows_and_names() -> None:
    assert [rows_of(shape) for shape in ((), (5,), (5, 2), (0, 2))] == [1, 1, 5, 1]
    assert [sequence_name(id_) for id_ in (None, 0, "", 5, "5")] == ["", "", "", "5", '"5']


BODY = json.dumps({"inputs": [INPUT], "parameters": {"sequence_id": 5, "sequence_end": False}}).encode()


def test_noise_is_refused_and_nothing_else() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        body = bytearray(BODY)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.choice(b'{}[]",:0-e9tfn \\\x00\xff')
        for length in (None, rng.randrange(len(body) + 2)):
            with suppress(CallerError):
                request = request_of(bytes(body), model="m", version="", header_length=length)
                request.codec.rewrite(request, {**request.codec.fields(request), "a": Raw(b"1")})


@given(st.binary(max_size=80), st.sampled_from(["infer", "generate"]), st.sampled_from(["", "gzip", "deflate", "br"]))
@settings(max_examples=150)
def test_any_bytes_are_refused_or_read(body: bytes, kind: Any, encoding: str) -> None:
    with suppress(CallerError):
        request = request_of(body, model="m", version="", kind=kind, encoding=encoding, opened=body)
        request.codec.canonical(request)
        request.codec.fields(request)
