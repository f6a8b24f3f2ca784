"""The gateway's view of a request of KServe's v1 or TensorFlow Serving's REST."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError, Unsupported
from adapters.requests import InferRequest
from adapters.tensors import RequestedOutput, Tensor
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from adapters.wire.tfserving.predict_v1_view import inference, request_of

X = TensorMetadata("x", "FP32", (-1, 1))
MODEL = ModelMetadata("m", ["1"], "test", [X], [TensorMetadata("p", "FP32", (-1, 3))])


def request_for(body: Any, **more: Any) -> InferRequest:
    written = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request_of(written, model="m", version="", **more)


COUNTED: list[tuple[Any, int, bool]] = [
    ({"instances": [1, 2, 3]}, 3, True),
    ({"instances": [{"a": [[1], [2]]}, {"a": [[3], [4]]}]}, 2, True),
    ({"instances": [], "inputs": [[1], [2]]}, 1, True),
    ({"instances": "all of them"}, 1, True),
    ({"examples": [{"x": 1}] * 4, "context": {"y": 2}}, 4, True),
    ({"inputs": [[1, 2], [3, 4], [5, 6]]}, 3, False),
    ({"inputs": {"b64": "aGk="}}, 1, False),
    ({"inputs": {"a": 1, "b": [[1], [2]]}}, 2, False),
    ({"inputs": [1, 2, 3]}, 1, False),
    ({"inputs": {}}, 1, False),
    ({}, 1, True),
    (b' { "instances" : [ NaN , Infinity ] } ', 2, True),
    (b'{"inputs": {"a": [[NaN], [1]]}}', 2, False),
    (b'{"inputs": NaN}', 1, False),
]


@pytest.mark.parametrize(("body", "rows", "by_row"), COUNTED, ids=range(len(COUNTED)))
def test_rows_are_counted(body: Any, rows: int, by_row: bool) -> None:
    request = request_for(body)
    assert isinstance(request.payload, PredictV1Payload)
    assert (request.rows, request.payload.by_row) == (rows, by_row)
    assert request.wire == "predict-v1"
    assert request.size == len(request.payload.body)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"7", b"\xff", b'["\\ud800", NaN]', b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError) as refused:
        request_for(body)
    assert refused.value.code == "invalid_json"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=4)
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["instances", "inputs", "examples", "parameters"]), VALUES))
def test_any_object_is_counted_and_left_unchanged(body: dict[str, Any]) -> None:
    request = request_for(body)
    assert request.rows >= 1
    assert json.dumps(json.loads(request.payload.body)) == json.dumps(body)


def test_a_route_writes_parameters_and_the_signature() -> None:
    request = request_for({"instances": [1], "signature_name": "a", "parameters": {"k": 1}})
    fields = dict(request.codec.fields(request))
    assert {name: bytes(value) for name, value in fields.items()} == {"k": b"1", "signature_name": b'"a"'}
    fields["signature_name"] = fields.pop("k")
    request = request.codec.rewrite(request, fields)
    assert json.loads(request.payload.body) == {"instances": [1], "signature_name": 1}
    odd = request_for(b'{"instances": [NaN], "parameters": {"k": 1}}')
    odd = odd.codec.rewrite(odd, odd.codec.fields(odd))
    assert odd.payload.body == b'{"instances":[NaN],"parameters":{"k":1}}'


def test_two_requests_are_the_same_only_if_all_of_them_is() -> None:
    requests = [
        request_for({"instances": [1]}),
        request_for({"instances": [2]}),
        request_for({"instances": [1]}, verb="explain"),
        request_of(b'{"instances": [1]}', model="m", version="2"),
    ]
    assert len({request.codec.canonical(request) for request in requests}) == 4
    assert all(request.codec.is_deterministic(request) for request in requests)
    assert [request.shareable for request in requests] == [True, True, False, True]  # no explanation is shared


def test_tensors_need_the_models_metadata() -> None:
    request = request_for({"inputs": [1, 2]})
    made = inference(request, MODEL)
    assert made.inputs == [Tensor("x", "FP32", (2, 1), struct.pack("<2f", 1, 2))]
    assert (request.rows, request.row_count) == (1, 2)  # as the model has it
    classified = inference(request_for({"examples": [{"x": 1}]}, verb="classify"), MODEL)
    assert classified.outputs == [RequestedOutput("p", {"classification": 3})]


def test_only_an_explainer_explains() -> None:
    with pytest.raises(Unsupported, match="has no explainer"):
        inference(request_for({"instances": [1]}, verb="explain"), MODEL)
    assert inference(request_for({"instances": [1]}, verb="explain", explainer=True), MODEL).inputs


def test_without_metadata_the_inference_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        _ = request_for({"instances": [1]}).inference
