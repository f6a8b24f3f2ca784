"""Triton's own gRPC client, unchanged: beyond its examples and the cases of `tests/servers`."""

import os
import queue
from collections.abc import Iterator
from typing import Any

import grpc as grpcio
import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from adapters.wire.oip.card import read_parameters
from tests.support.tensor_runtime import TensorRuntime

pytestmark = pytest.mark.processes
ONES = np.ones((1, 16), np.int32)
RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)
PATIENCE = 300.0


@pytest.fixture
def grpc(runtime: TensorRuntime) -> Iterator[client.InferenceServerClient]:
    with client.InferenceServerClient(runtime.grpc) as made:
        yield made


def given(name: str, array: Any, datatype: str) -> client.InferInput:
    made = client.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array)
    return made


def add_sub() -> list[client.InferInput]:
    return [given("INPUT0", RAMP, "INT32"), given("INPUT1", ONES, "INT32")]


def numbers(*values: int) -> list[client.InferInput]:
    return [given("IN", np.array(values, np.int32), "INT32")]


class Stream:
    """The results and errors that a stream's callback received."""

    def __init__(self, made: client.InferenceServerClient, **options: Any) -> None:
        self._answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        made.start_stream(lambda result, error: self._answers.put((result, error)), **options)

    def next(self) -> tuple[Any, Any]:
        return self._answers.get(timeout=PATIENCE)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed(grpc: client.InferenceServerClient, coding: str) -> None:
    assert (grpc.infer("add_sub", add_sub(), compression_algorithm=coding).as_numpy("OUTPUT0") == RAMP + 1).all()


def test_metadata_with_a_card_is_read(grpc: client.InferenceServerClient) -> None:
    metadata = grpc.get_model_metadata("add_sub")
    assert metadata.name == "add_sub"
    assert read_parameters(metadata)["source"] == "repository:add_sub/1"


def test_statistics_count(grpc: client.InferenceServerClient) -> None:
    grpc.infer("add_sub", add_sub())
    reported = grpc.get_inference_statistics("add_sub").model_stats[0]
    assert reported.inference_count >= 1
    assert reported.inference_stats.success.count >= 1
    assert reported.batch_stats[0].compute_infer.count >= 1
    assert len(grpc.get_inference_statistics().model_stats) > 1


def test_a_stream_of_responses(grpc: client.InferenceServerClient) -> None:
    stream = Stream(grpc)
    grpc.async_stream_infer("repeat", numbers(7, 8, 9), request_id="one", enable_empty_final_response=True)
    for expected in (7, 8, 9):
        result, error = stream.next()
        assert error is None
        assert result.as_numpy("OUT").tolist() == [expected]
        assert result.get_response().parameters["triton_final_response"].bool_param is False
    result, error = stream.next()
    assert error is None
    response = result.get_response()
    assert (response.id, len(response.outputs)) == ("one", 0)
    assert response.parameters["triton_final_response"].bool_param is True
    grpc.stop_stream()
    reported = grpc.get_inference_statistics("repeat").model_stats[0].response_stats
    assert reported["0"].success.count >= reported["2"].success.count >= 1
    assert reported["3"].empty_response.count >= 1


def test_a_stream_reports_errors_and_continues(grpc: client.InferenceServerClient) -> None:
    stream = Stream(grpc)
    grpc.async_stream_infer("nobody", numbers(1), request_id="bad")
    _, error = stream.next()
    assert "Request for unknown model: 'nobody' is not found" in error.message()
    grpc.async_stream_infer("repeat", numbers(1, -1))
    assert stream.next()[0].as_numpy("OUT").tolist() == [1]
    assert "below zero" in stream.next()[1].message()
    grpc.async_stream_infer("add_sub", add_sub())
    result, error = stream.next()
    assert error is None
    assert (result.as_numpy("OUTPUT0") == RAMP + 1).all()
    grpc.stop_stream()


def test_a_stream_preserves_the_order_of_models_that_answer_once(grpc: client.InferenceServerClient) -> None:
    stream = Stream(grpc)
    for milliseconds in (80, 0, 20, 0):
        made = given("MILLISECONDS", np.array([[milliseconds]], np.int32), "INT32")
        grpc.async_stream_infer("slow", [made], request_id=str(milliseconds))
    got = [stream.next()[0].as_numpy("SLEPT").item() for _ in range(4)]
    assert got == [80, 0, 20, 0]
    grpc.stop_stream()


def test_a_stream_may_end_with_a_status(grpc: client.InferenceServerClient) -> None:
    stream = Stream(grpc, headers={"triton_grpc_error": "true"})
    grpc.async_stream_infer("nobody", numbers(1))
    _, error = stream.next()
    assert error.status() == str(grpcio.StatusCode.NOT_FOUND)
    grpc.stop_stream(cancel_requests=True)


def test_tensors_in_shared_memory(grpc: client.InferenceServerClient) -> None:
    key = f"/headrace-test-grpc-{os.getpid()}"
    region = shm.create_shared_memory_region("grpc", key, 128)
    try:
        shm.set_shared_memory_region(region, [RAMP])
        grpc.register_system_shared_memory("grpc", key, 128)
        assert "grpc" in grpc.get_system_shared_memory_status().regions
        shared = client.InferInput("INPUT0", [1, 16], "INT32")
        shared.set_shared_memory("grpc", 64)
        expected = client.InferRequestedOutput("OUTPUT0")
        expected.set_shared_memory("grpc", 64, offset=64)
        result = grpc.infer("add_sub", [shared, add_sub()[1]], outputs=[expected])
        assert result.get_output("OUTPUT0").parameters["shared_memory_region"].string_param == "grpc"
        assert (shm.get_contents_as_numpy(region, np.int32, [1, 16], offset=64) == RAMP + 1).all()
        grpc.unregister_system_shared_memory("grpc")
        assert "grpc" not in grpc.get_system_shared_memory_status().regions
    finally:
        shm.destroy_shared_memory_region(region)
    with pytest.raises(InferenceServerException) as raised:
        grpc.register_cuda_shared_memory("cuda", b"aGFuZGxl", 0, 64)
    assert raised.value.status() == str(grpcio.StatusCode.UNIMPLEMENTED)


def test_settings(grpc: client.InferenceServerClient) -> None:
    assert list(grpc.get_trace_settings().settings["trace_level"].value) == ["OFF"]
    reported = grpc.update_trace_settings("text", {"trace_rate": "7"})
    assert list(reported.settings["trace_rate"].value) == ["7"]
    reported = grpc.update_trace_settings("text", {"trace_rate": None})
    assert list(reported.settings["trace_rate"].value) == ["1000"]
    assert grpc.update_log_settings({"log_info": True}).settings["log_info"].bool_param is True
    assert grpc.get_log_settings().settings["log_format"].string_param == "ISO8601"


def test_calls_and_streams_report_the_device(runtime: TensorRuntime) -> None:
    request = service_pb2.ModelInferRequest(model_name="repeat")
    request.inputs.add(name="IN", datatype="INT32", shape=[2])
    request.raw_input_contents.append(np.array([7, 8], np.int32).tobytes())
    once = service_pb2.ModelInferRequest(model_name="add_sub")
    for name in ("INPUT0", "INPUT1"):
        once.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        once.raw_input_contents.append(RAMP.tobytes())
    with grpcio.insecure_channel(runtime.grpc) as channel:
        unary = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        _, call = unary.with_call(once.SerializeToString(), timeout=PATIENCE)
        assert float(dict(call.trailing_metadata())["headrace-device-ms"]) > 0
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        reported = stream(iter([request.SerializeToString()]), timeout=PATIENCE)
        assert len(list(reported)) == 2
        assert float(dict(reported.trailing_metadata())["headrace-device-ms"]) > 0


def test_health_as_grpc_has_it(runtime: TensorRuntime) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpcio.insecure_channel(runtime.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "inference.GRPCInferenceService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpcio.RpcError) as raised:
            stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=PATIENCE)
        assert raised.value.code() == grpcio.StatusCode.NOT_FOUND
        for service, status in (
            ("", health_pb2.HealthCheckResponse.SERVING),
            ("nobody", health_pb2.HealthCheckResponse.SERVICE_UNKNOWN),
        ):
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
            assert next(watch).status == status
            watch.cancel()
