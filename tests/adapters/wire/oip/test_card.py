"""Parameters of metadata over gRPC: MLServer's clients read them, Triton's ignore them."""

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.oip.card import add_parameters, read_parameters
from adapters.wire.protos import inference


def response_of_mlserver() -> Any:
    """The class of `ModelMetadataResponse`, as far as MLServer's `dataplane.proto` differs from Triton's."""
    file = FileDescriptorProto(name="dataplane.proto", package="inference", syntax="proto3")
    value = file.message_type.add(name="InferParameter")
    value.field.add(name="string_param", number=3, type=FieldDescriptorProto.TYPE_STRING, label=1)
    message = file.message_type.add(name="ModelMetadataResponse")
    message.field.add(name="name", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    entry = message.nested_type.add(name="ParametersEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    kind = FieldDescriptorProto.TYPE_MESSAGE
    entry.field.add(name="value", number=2, type=kind, label=1, type_name=".inference.InferParameter")
    type_name = ".inference.ModelMetadataResponse.ParametersEntry"
    message.field.add(name="parameters", number=6, type=kind, label=3, type_name=type_name)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("inference.ModelMetadataResponse"))


OF_MLSERVER = response_of_mlserver()


@given(st.dictionaries(st.text(), st.text(max_size=300)))
def test_clients_with_the_field_read_every_parameter(parameters: dict[str, str]) -> None:
    response = inference.ModelMetadataResponse(name="m", platform="onnx")
    add_parameters(response, parameters)
    read = OF_MLSERVER.FromString(response.SerializeToString())
    assert {name: value.string_param for name, value in read.parameters.items()} == parameters
    assert read.name == "m"


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1, max_size=300)))
def test_a_gateway_reads_the_parameters_of_the_runtime(parameters: dict[str, str]) -> None:
    response = inference.ModelMetadataResponse(name="m", platform="onnx")
    add_parameters(response, parameters)
    received = inference.ModelMetadataResponse.FromString(response.SerializeToString())
    assert read_parameters(received) == parameters


@given(st.binary(max_size=40))
def test_any_other_content_of_the_field_is_ignored(content: bytes) -> None:
    field = bytes((6 << 3 | 2, len(content))) + content
    received = inference.ModelMetadataResponse.FromString(b"\n\x01m" + field)
    assert all(isinstance(text, str) for text in read_parameters(received).values())


def test_clients_without_the_field_read_the_rest() -> None:
    response = inference.ModelMetadataResponse(name="m", platform="onnx")
    add_parameters(response, {"checksum": "sha256:0", "not a text": 3, "half": "\ud83d"})
    read = inference.ModelMetadataResponse.FromString(response.SerializeToString())
    assert (read.name, read.platform) == ("m", "onnx")
