"""The protocol over gRPC where Triton's client does not reach: raw messages, long streams, restrictions."""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.servers.repositories import for_headrace
from tests.support.tensor_runtime import TensorRuntime, explicit

pytestmark = pytest.mark.processes
SERVICE = "/inference.GRPCInferenceService"
PATIENCE = 300.0


@pytest.fixture
def channel(runtime: TensorRuntime) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(runtime.grpc) as channel:
        yield channel


def add_sub(number: int) -> bytes:
    request = pb.ModelInferRequest(model_name="add_sub", id=str(number))
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(np.full(16, number, np.int32).tobytes())
    return bytes(request.SerializeToString())


def repeat(count: int) -> bytes:
    request = pb.ModelInferRequest(model_name="repeat")
    request.inputs.add(name="IN", datatype="INT32", shape=[count])
    request.raw_input_contents.append(np.arange(count, dtype=np.int32).tobytes())
    return bytes(request.SerializeToString())


def streamed(channel: grpc.Channel, *messages: bytes) -> list[pb.ModelStreamInferResponse]:
    call = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(iter(messages), timeout=PATIENCE)
    return [pb.ModelStreamInferResponse.FromString(message) for message in call]


def test_a_long_stream_is_answered_whole_and_in_order(channel: grpc.Channel) -> None:
    reported = streamed(channel, *(add_sub(number) for number in range(700)))
    assert [one.infer_response.id for one in reported] == [str(number) for number in range(700)]
    assert all(
        one.infer_response.raw_output_contents[0] == np.full(16, 2 * number, np.int32).tobytes()
        for number, one in enumerate(reported)
    )


def test_a_message_that_is_none_ends_no_stream(channel: grpc.Channel) -> None:
    first, second, third = streamed(channel, b"\xff\xff", add_sub(1), b"")
    assert "not a ModelInferRequest" in first.error_message
    assert second.infer_response.id == "1"
    assert third.error_message


def test_a_cancelled_stream_frees_the_model(channel: grpc.Channel) -> None:
    """Its only copy waits for a reader of the first stream until that one is known to have left."""
    leaving = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(iter([repeat(200_000)]), timeout=PATIENCE)
    assert next(leaving)
    leaving.cancel()
    (reported,) = streamed(channel, repeat(1))
    assert reported.infer_response.raw_output_contents[0] == b"\0\0\0\0"


def test_loads_are_checked(channel: grpc.Channel) -> None:
    load = channel.unary_unary(f"{SERVICE}/RepositoryModelLoad")
    for parameters in (
        {"colour": pb.ModelRepositoryParameter(string_param="blue")},
        {"file:1/model.py": pb.ModelRepositoryParameter(bytes_param=b"")},
        {"config": pb.ModelRepositoryParameter(string_param="{")},
    ):
        request = pb.RepositoryModelLoadRequest(model_name="text", parameters=parameters)
        with pytest.raises(grpc.RpcError) as raised:
            load(request.SerializeToString(), timeout=PATIENCE)
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        ("RepositoryModelLoad", "config", "string_param"),
        ("RepositoryModelLoad", "file:1/model.py", "bytes_param"),
        ("RepositoryModelUnload", "unload_dependents", "bool_param"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused(channel: grpc.Channel, method: str, name: str, expected: str) -> None:
    """The model stays loaded."""
    values = {"bool_param": True, "int64_param": 1, "string_param": "true", "bytes_param": b"true"}
    del values[expected]
    request_type = getattr(pb, f"{method}Request")
    for field, value in values.items():
        parameter = pb.ModelRepositoryParameter(**{field: value})
        request = request_type(model_name="text", parameters={name: parameter})
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(f"{SERVICE}/{method}")(request.SerializeToString(), timeout=PATIENCE)
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert raised.value.details() == f"invalid value type for '{name}' parameter, expected {expected}"
    ready = channel.unary_unary(f"{SERVICE}/ModelReady", response_deserializer=pb.ModelReadyResponse.FromString)
    assert ready(pb.ModelReadyRequest(name="text").SerializeToString(), timeout=PATIENCE).ready


def test_restricted_parts_need_the_secret(tmp_path_factory: pytest.TempPathFactory) -> None:
    repository = for_headrace(tmp_path_factory.mktemp("restricted"), ["text"])
    restricted = explicit(repository, "--restrict", "inference,health:key=s3")
    with restricted as runtime, grpc.insecure_channel(runtime.grpc) as channel:
        live = channel.unary_unary(f"{SERVICE}/ServerLive")
        for metadata in ((), (("triton-grpc-protocol-key", "s4"),), (("key", "s3"),)):
            with pytest.raises(grpc.RpcError) as raised:
                live(b"", timeout=PATIENCE, metadata=metadata)
            assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert live(b"", timeout=PATIENCE, metadata=(("triton-grpc-protocol-key", "s3"),))
        assert channel.unary_unary(f"{SERVICE}/ServerMetadata")(b"", timeout=PATIENCE)
