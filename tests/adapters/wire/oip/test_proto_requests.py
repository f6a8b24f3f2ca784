"""Inference over gRPC: the same messages as tritonclient's own, both ways."""

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inference, Inferred, RequestedOutput, Tensor, join_bytes
from adapters.wire.oip import proto_contents as oip_contents
from adapters.wire.oip import proto_requests as oip_proto
from adapters.wire.oip import proto_responses as oip_proto_answers
from adapters.wire.proto_fields import tag
from tests.adapters.wire.tensors import NAMES, WORDS, lists, parameters, same
from tests.support import typed_contents

TYPED = ["BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP32", "FP64", "BYTES"]
WHERE: dict[str, str | int | float | bool] = {"shared_memory_region": "r", "shared_memory_byte_size": 8}


@st.composite
def inferences(draw: st.DrawFn) -> Inference:
    outputs = [RequestedOutput(name, draw(parameters())) for name in draw(st.lists(NAMES, max_size=2, unique=True))]
    return Inference(draw(NAMES), draw(WORDS), draw(WORDS), draw(parameters()), draw(lists()), outputs)


@st.composite
def inferreds(draw: st.DrawFn, *, raw: bool) -> Inferred:
    """Typed contents pass through Python's numbers, which have only one kind of NaN."""
    return Inferred(draw(NAMES), draw(WORDS), draw(WORDS), draw(parameters()), draw(lists(text=not raw)))


def plain(parameters: Any) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in parameters.items()}


def request(**fields: Any) -> Any:
    """tritonclient's message: one input."""
    tensor = {"name": "x", "datatype": "INT32", "shape": [2]} | {k: v for k, v in fields.items() if k != "raw"}
    return service_pb2.ModelInferRequest(model_name="m", inputs=[tensor], raw_input_contents=fields.get("raw", []))


@given(inferences())
def test_requests_are_tritonclients_and_are_read_again(inference: Inference) -> None:
    encoded = oip_proto.encode_infer_request(inference)
    theirs = service_pb2.ModelInferRequest.FromString(encoded)
    assert (theirs.model_name, theirs.model_version, theirs.id) == (
        inference.model_name, inference.model_version, inference.id
    )  # fmt: skip
    assert plain(theirs.parameters) == dict(inference.parameters)
    assert list(theirs.raw_input_contents) == [bytes(tensor.data) for tensor in inference.inputs]
    assert [(t.name, t.datatype, tuple(t.shape), plain(t.parameters)) for t in theirs.inputs] == [
        (t.name, t.datatype, t.shape, dict(t.parameters)) for t in inference.inputs
    ]
    assert [(o.name, plain(o.parameters)) for o in theirs.outputs] == [
        (o.name, dict(o.parameters)) for o in inference.outputs
    ]
    for again in map(oip_proto.decode_infer_request, (encoded, theirs.SerializeToString())):
        assert all(map(same, again.inputs, inference.inputs))
        assert len(again.inputs) == len(inference.inputs)
        assert (again.id, dict(again.parameters)) == (inference.id, dict(inference.parameters))
        assert again.outputs == inference.outputs


def _with_typed_contents(response: Any, inferred: Inferred) -> bytes:
    del response.raw_output_contents[:]
    for output, tensor in zip(response.outputs, inferred.outputs, strict=True):
        if "shared_memory_region" not in tensor.parameters:
            typed_contents.write(output.contents, tensor)
    encoded: bytes = response.SerializeToString()
    return encoded


@given(st.data(), st.booleans())
def test_responses_are_tritonclients_and_are_read_again(data: st.DataObject, raw: bool) -> None:
    inferred = data.draw(inferreds(raw=raw))
    encoded = oip_proto_answers.encode_infer_response(inferred)
    theirs = service_pb2.ModelInferResponse.FromString(encoded)
    if not raw and all(tensor.datatype in TYPED for tensor in inferred.outputs):
        encoded = _with_typed_contents(theirs, inferred)
    assert (theirs.model_name, theirs.model_version, theirs.id) == (
        inferred.model_name, inferred.model_version, inferred.id
    )  # fmt: skip
    assert plain(theirs.parameters) == dict(inferred.parameters)
    for again in map(oip_proto_answers.decode_infer_response, (encoded, theirs.SerializeToString())):
        assert all(map(same, again.outputs, inferred.outputs))
        assert len(again.outputs) == len(inferred.outputs)
        assert (again.id, dict(again.parameters)) == (inferred.id, dict(inferred.parameters))


@given(lists(text=True))
def test_typed_contents_hold_the_same_tensors(tensors: list[Tensor]) -> None:
    message = service_pb2.ModelInferRequest(model_name="m")
    typed = [tensor for tensor in tensors if tensor.datatype in TYPED]
    for tensor in typed:
        theirs = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        theirs.contents.SetInParent()
        typed_contents.write(theirs.contents, tensor)
    again = oip_proto.decode_infer_request(message.SerializeToString())
    assert [(t.datatype, t.shape, t.data) for t in again.inputs] == [
        (t.datatype, t.shape, bytes(t.data)) for t in typed
    ]


def test_a_decoded_tensor_is_a_view_of_the_message() -> None:
    message = request(raw=[b"12345678"]).SerializeToString()
    data = oip_proto.decode_infer_request(message).inputs[0].data
    assert isinstance(data, memoryview)
    assert data.obj is message


def test_calls_that_differ_in_id_and_data_alone_are_parsed_once() -> None:
    oip_proto._cached_read.cache_clear()
    for number in range(5):
        message = service_pb2.ModelInferRequest(
            model_name="m", id=str(number), inputs=[{"name": "x", "datatype": "UINT8", "shape": [1]}],
            raw_input_contents=[bytes([number])],
        )  # fmt: skip
        inference = oip_proto.decode_infer_request(message.SerializeToString())
        assert (inference.id, bytes(inference.inputs[0].data)) == (str(number), bytes([number]))
    assert oip_proto._cached_read.cache_info().misses == 1


def test_fields_after_an_unknown_field_are_decoded() -> None:
    unknown = bytes([13 << 3 | 0, 5])  # a number, where the messages have none
    message = unknown + request(raw=[b"12345678"]).SerializeToString()
    assert bytes(oip_proto.decode_infer_request(message).inputs[0].data) == b"12345678"
    long = bytes([0x82, 0x01, 2]) + b"ab" + request(raw=[b"12345678"]).SerializeToString()
    assert bytes(oip_proto.decode_infer_request(long).inputs[0].data) == b"12345678"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"raw": [b"1234567"]}, r"`x` has 7 bytes, and INT32 of shape \[2\] has 8"),
        ({"raw": [b"12345678", b""]}, "2 `raw_input_contents`, more than inputs"),
        ({}, "neither `contents` nor `raw_input_contents`"),
        ({"datatype": "BYTES"}, "neither"),
        ({"raw": [b"12345678"], "contents": {"int_contents": [1, 2]}}, "both `contents` and `raw_input_contents`"),
        ({"contents": {"int_contents": [1]}}, "1 elements in `int_contents`, and 2 in its shape"),
        ({"contents": {"fp32_contents": [1, 2]}}, "not in `int_contents`, where INT32 belongs"),
        ({"contents": {"int_contents": [300, 1]}, "datatype": "INT8"}, "does not fit into INT8"),
        ({"contents": {"uint_contents": [70000, 1]}, "datatype": "UINT16"}, "does not fit into UINT16"),
        ({"contents": {"fp32_contents": [1, 2]}, "datatype": "FP16"}, "FP16 has no typed contents"),
        ({"contents": {"fp32_contents": [1, 2]}, "datatype": "BF16"}, "BF16 has no typed contents"),
        ({"raw": [b"12345678"], "datatype": "INT31"}, "unknown datatype"),
        ({"raw": [b"12345678"], "shape": [-2]}, "negative"),
        ({"raw": [b"12345678"], "shape": [2**62, 2**62]}, "8 bytes"),
        ({"raw": [b""], "shape": [0, 2**62]}, "too large"),
        ({"raw": [b"1234"], "shape": [1] * 33}, "more than 32 dimensions"),
    ],
)
def test_the_error_of_a_wrong_request_names_the_change(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerError, match=words):
        oip_proto.decode_infer_request(request(**fields).SerializeToString())


def test_names_that_are_given_twice_are_refused() -> None:
    message = request(raw=[b"12345678"] * 2)
    message.inputs.add(name="x", datatype="INT32", shape=[2])
    with pytest.raises(CallerError, match="Two inputs"):
        oip_proto.decode_infer_request(message.SerializeToString())
    message = service_pb2.ModelInferRequest(outputs=[{"name": "y"}, {"name": "y"}])
    with pytest.raises(CallerError, match="Two requested outputs"):
        oip_proto.decode_infer_request(message.SerializeToString())


@pytest.mark.parametrize("raw", [[], [b""]])
def test_a_tensor_without_elements_may_have_no_contents(raw: list[bytes]) -> None:
    for datatype in ("FP32", "BYTES"):
        read = oip_proto.decode_infer_request(request(shape=[0], datatype=datatype, raw=raw).SerializeToString())
        assert len(read.inputs[0].data) == 0


def test_shared_memory_takes_no_raw_contents() -> None:
    message = service_pb2.ModelInferRequest(model_name="m", raw_input_contents=[b"12345678"])
    for name, where in (("x", WHERE), ("y", {})):
        tensor = message.inputs.add(name=name, datatype="INT32", shape=[2])
        oip_contents.put_parameters(tensor.parameters, where)
    inference = oip_proto.decode_infer_request(message.SerializeToString())
    assert [(bytes(t.data), dict(t.parameters)) for t in inference.inputs] == [(b"", WHERE), (b"12345678", {})]
    assert service_pb2.ModelInferRequest.FromString(oip_proto.encode_infer_request(inference)) == message


def test_outputs_in_shared_memory_with_and_without_raw_contents() -> None:
    outputs = [Tensor("x", "INT32", (2,), b"", WHERE), Tensor("y", "INT32", (2,), b"12345678")]
    message = service_pb2.ModelInferResponse.FromString(
        oip_proto_answers.encode_infer_response(Inferred("m", outputs=outputs))
    )
    assert list(message.raw_output_contents) == [b"", b"12345678"]  # one each, by which tritonclient finds them
    del message.raw_output_contents[0]
    again = oip_proto_answers.decode_infer_response(message.SerializeToString())
    assert all(map(same, again.outputs, outputs))


def test_empty_typed_contents_beside_raw_ones_are_none() -> None:
    """MLServer sends empty typed contents beside raw ones."""
    message = request(raw=[b"12345678"])
    message.inputs[0].contents.SetInParent()
    assert bytes(oip_proto.decode_infer_request(message.SerializeToString()).inputs[0].data) == b"12345678"
    answer = service_pb2.ModelInferResponse(raw_output_contents=[b"12345678"])
    answer.outputs.add(name="y", datatype="INT32", shape=[2]).contents.SetInParent()
    assert bytes(oip_proto_answers.decode_infer_response(answer.SerializeToString()).outputs[0].data) == b"12345678"


def test_parameters_of_64_bits_and_no_more() -> None:
    for value in (2**64 - 1, -(2**63), "text", True, 0.5):
        again = oip_proto.decode_infer_request(
            oip_proto.encode_infer_request(Inference("m", parameters={"mine": value}))
        )
        assert again.parameters == {"mine": value}
        assert type(again.parameters["mine"]) is type(value)
    with pytest.raises(CallerError, match="`sequence_id` does not fit"):
        oip_proto.encode_infer_request(Inference("m", parameters={"sequence_id": 2**64}))


def test_parameters_of_http_framing_are_not_sent_over_grpc() -> None:
    inference = Inference(
        "m", parameters={"binary_data_output": True}, outputs=[RequestedOutput("y", {"binary_data": True})]
    )
    theirs = service_pb2.ModelInferRequest.FromString(oip_proto.encode_infer_request(inference))
    assert (dict(theirs.parameters), dict(theirs.outputs[0].parameters)) == ({}, {})


def test_streamed_responses() -> None:
    response = oip_proto_answers.encode_infer_response(
        Inferred("m", "1", "7", outputs=[Tensor("y", "BOOL", (1,), b"\1")])
    )
    streamed = oip_proto_answers.encode_stream_response(response)
    theirs = service_pb2.ModelStreamInferResponse.FromString(streamed)
    assert theirs.infer_response.id == "7"
    assert not oip_proto_answers.is_bare(streamed)
    error, body = oip_proto_answers.split_stream_response(streamed)
    assert (error, oip_proto_answers.decode_infer_response(body).id) == ("", "7")


def test_streamed_failures_have_the_requests_id() -> None:
    failed = oip_proto_answers.encode_stream_error("no", "7")
    theirs = service_pb2.ModelStreamInferResponse.FromString(failed)
    assert (theirs.error_message, theirs.infer_response.id) == ("no", "7")
    assert oip_proto_answers.split_stream_response(failed)[0] == "no"
    assert oip_proto_answers.decode_stream_error(failed) == ("no", False, "")
    by_model = oip_proto_answers.encode_stream_error("no", "7", "m", "model_failed")
    assert oip_proto_answers.decode_stream_error(by_model) == ("no", True, "model_failed")


def test_mlservers_bare_responses_are_recognised() -> None:
    """They begin with the model's name, where an error would be."""
    bare = oip_proto_answers.encode_infer_response(Inferred("m", "v1", outputs=[Tensor("y", "BOOL", (1,), b"\1")]))
    assert oip_proto_answers.is_bare(bare)
    error, body = oip_proto_answers.split_stream_response(bare)
    assert (error, oip_proto_answers.decode_infer_response(body).model_name) == ("", "m")


@given(st.binary(max_size=64))
def test_noise_is_the_callers_fault_or_the_upstreams(noise: bytes) -> None:
    with contextlib.suppress(CallerError):
        oip_proto.decode_infer_request(noise)
    for decode in (oip_proto_answers.decode_infer_response, oip_proto_answers.split_stream_response):
        with contextlib.suppress(BackendError):
            decode(noise)


@pytest.mark.parametrize("seed", range(20))
def test_broken_messages_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    inference = Inference(
        "m", "1", "id", {"sequence_id": 7},
        [Tensor("x", "INT32", (2,), b"12345678", {"a": 1}), Tensor("y", "BYTES", (1,), join_bytes([b"z"]))],
        [RequestedOutput("o", {"classification": 3})],
    )  # fmt: skip
    right = oip_proto.encode_infer_request(inference)
    answer = oip_proto_answers.encode_infer_response(Inferred("m", "1", "id", {"a": 1}, inference.inputs))
    for _ in range(200):
        for message, decode, error in (
            (right, oip_proto.decode_infer_request, CallerError),
            (answer, oip_proto_answers.decode_infer_response, BackendError),
            (answer, oip_proto_answers.split_stream_response, BackendError),
        ):
            broken = bytearray(message)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(broken))
                broken[at : at + rng.randint(0, 2)] = rng.choice([b"", b"\xff", b"\x80", rng.randbytes(2)])
            try:
                decode(bytes(broken))
            except error:
                continue


def test_tags() -> None:
    assert (tag(3), tag(7), tag(6)) == (0x1A, 0x3A, 0x32)
