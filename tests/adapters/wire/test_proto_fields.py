"""Bytes of a message outside its tensors' contents, beside protobuf's own writer."""

from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from adapters.wire.proto_fields import bytes_beside, tag

RAW = tag(pb.ModelInferRequest.DESCRIPTOR.fields_by_name["raw_input_contents"].number)


@given(st.text(max_size=200), st.text(max_size=9), st.lists(st.binary(max_size=300), max_size=5))
def test_contents_do_not_count_as_parsed_bytes(model: str, id: str, contents: list[bytes]) -> None:
    message = pb.ModelInferRequest(model_name=model, id=id)
    beside = len(message.SerializeToString())
    message.raw_input_contents.extend(contents)
    written = message.SerializeToString()
    assert bytes_beside(written, RAW, 10) == beside
    if len(contents) > 2:
        assert bytes_beside(written, RAW, 2) == len(written), "too many fields to look at"
