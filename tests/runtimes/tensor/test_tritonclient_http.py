"""Triton's own HTTP client, unchanged, against a runtime process."""

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from tests.support.tensor_runtime import TensorRuntime

ONES = np.ones((1, 16), np.int32)
RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)


@pytest.fixture
def http(runtime: TensorRuntime) -> Iterator[client.InferenceServerClient]:
    with client.InferenceServerClient(runtime.http, network_timeout=60.0, connection_timeout=60.0) as made:
        yield made


def given(name: str, array: Any, datatype: str, *, binary: bool = True) -> client.InferInput:
    made = client.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def add_sub(*, binary: bool = True) -> list[client.InferInput]:
    return [given("INPUT0", RAMP, "INT32", binary=binary), given("INPUT1", ONES, "INT32", binary=binary)]


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("expected", [True, False])
def test_inference_in_json_and_in_binary(http: client.InferenceServerClient, sent: bool, expected: bool) -> None:
    outputs = [client.InferRequestedOutput(name, binary_data=expected) for name in ("OUTPUT0", "OUTPUT1")]
    result = http.infer("add_sub", add_sub(binary=sent), outputs=outputs, request_id="seven")
    assert (result.as_numpy("OUTPUT0") == RAMP + 1).all()
    assert (result.as_numpy("OUTPUT1") == RAMP - 1).all()
    assert result.get_response()["id"] == "seven"
    assert ("data" in result.get_output("OUTPUT0")) is not expected


def test_all_outputs_where_none_is_named(http: client.InferenceServerClient) -> None:
    result = http.infer("add_sub", add_sub(), model_version="1")
    assert (result.as_numpy("OUTPUT1") == RAMP - 1).all()
    assert result.get_response()["model_version"] == "1"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_both_ways(http: client.InferenceServerClient, coding: str) -> None:
    big = np.ones((8, 500), np.float32)
    inputs = [given("INPUT0", big, "FP32"), given("INPUT1", big, "FP32")]
    result = http.infer(
        "add_sub_any", inputs, request_compression_algorithm=coding, response_compression_algorithm=coding
    )
    assert (result.as_numpy("OUTPUT0") == 2).all()


def test_more_rows_than_a_batch_may_have_are_computed_in_parts(http: client.InferenceServerClient) -> None:
    rows = np.arange(20 * 16, dtype=np.int32).reshape(20, 16)
    result = http.infer("add_sub", [given("INPUT0", rows, "INT32"), given("INPUT1", rows, "INT32")])
    assert (result.as_numpy("OUTPUT0") == 2 * rows).all()


def test_asynchronous_requests(http: client.InferenceServerClient) -> None:
    requested = [http.async_infer("add_sub", add_sub()) for _ in range(20)]
    assert all((one.get_result().as_numpy("OUTPUT0") == RAMP + 1).all() for one in requested)


def test_text(http: client.InferenceServerClient) -> None:
    words = np.array([["a", "ü", ""]], dtype=object)
    for binary in (True, False):
        result = http.infer("text", [given("TEXT", words, "BYTES", binary=binary)])
        assert [word.decode() for word in result.as_numpy("SAME").ravel()] == ["a", "ü", ""]


def test_classes(http: client.InferenceServerClient) -> None:
    result = http.infer("add_sub", add_sub(), outputs=[client.InferRequestedOutput("OUTPUT0", class_count=2)])
    assert [reported.decode() for reported in result.as_numpy("OUTPUT0").ravel()] == ["16:15", "15:14"]


def test_a_sequence(http: client.InferenceServerClient) -> None:
    for sequence in (41, 2**40):
        sums = []
        for number, start, end in ((1, True, False), (2, False, False), (3, False, True)):
            step = given("INPUT", np.array([[number]], np.int32), "INT32")
            made = http.infer(
                "accumulate", [step], sequence_id=sequence, sequence_start=start, sequence_end=end, request_id="step"
            )
            sums.append(made.as_numpy("SUM").item())
        assert sums == [1, 3, 6]
    with pytest.raises(InferenceServerException) as raised:
        http.infer("accumulate", [given("INPUT", np.array([[1]], np.int32), "INT32")], sequence_id=41)
    assert raised.value.status() == "400"
    assert (
        "sequence 41 to model 'accumulate' must specify the START flag on the first request" in raised.value.message()
    )


def test_wrong_requests_are_refused(http: client.InferenceServerClient) -> None:
    for model, inputs, status in (
        ("nobody", add_sub(), "404"),
        ("add_sub", add_sub()[:1], "400"),
        ("add_sub", [*add_sub()[:1], given("INPUT9", ONES, "INT32")], "400"),
        ("add_sub", [given("INPUT0", ONES.astype(np.float32), "FP32"), add_sub()[1]], "400"),
        ("picky", [given("X", -np.ones((1, 1), np.float32), "FP32")], "500"),
    ):
        with pytest.raises(InferenceServerException) as raised:
            http.infer(model, inputs)
        assert raised.value.status() == status, raised.value.message()
    with pytest.raises(InferenceServerException, match="no root of -1"):
        http.infer("picky", [given("X", -np.ones((1, 1), np.float32), "FP32")])


def test_reports_of_the_server(http: client.InferenceServerClient) -> None:
    assert http.is_server_live()
    assert http.is_server_ready()
    assert http.is_model_ready("add_sub")
    assert http.is_model_ready("add_sub", "1")
    assert not http.is_model_ready("add_sub", "9")
    assert not http.is_model_ready("nobody")
    assert "binary_tensor_data" in http.get_server_metadata()["extensions"]
    assert http.get_model_metadata("add_sub")["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]}
    config = http.get_model_config("add_sub")
    assert (config["max_batch_size"], config["backend"]) == (8, "python")


def test_statistics_count(http: client.InferenceServerClient) -> None:
    before = http.get_inference_statistics("add_sub")["model_stats"][0]
    http.infer("add_sub", add_sub())
    after = http.get_inference_statistics("add_sub", "1")["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 1
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]
    names = {entry["name"] for entry in http.get_inference_statistics()["model_stats"]}
    assert {"add_sub", "text"} <= names


def test_the_repository_is_controlled(http: client.InferenceServerClient) -> None:
    http.unload_model("add_sub_any")
    assert not http.is_model_ready("add_sub_any")
    states = {entry["name"]: entry.get("state") for entry in http.get_model_repository_index()}
    assert states["add_sub"] == "READY"
    assert states["add_sub_any"] != "READY"
    reported = http.get_model_config("add_sub")  # with the preferred size that Triton fills in, which is now too large
    config = {**reported, "name": "add_sub_any", "max_batch_size": 2, "dynamic_batching": {}}
    http.load_model("add_sub_any", config=json.dumps(config))
    assert http.get_model_config("add_sub_any")["max_batch_size"] == 2
    http.load_model("add_sub_any")
    assert http.get_model_config("add_sub_any")["max_batch_size"] == 8
    with pytest.raises(InferenceServerException):
        http.load_model("nobody")


@pytest.fixture
def region(http: client.InferenceServerClient) -> Iterator[Any]:
    name = f"/headrace-test-{os.getpid()}"
    handle = shm.create_shared_memory_region("tensors", name, 256)
    http.register_system_shared_memory("tensors", name, 256)
    yield handle
    http.unregister_system_shared_memory("tensors")
    shm.destroy_shared_memory_region(handle)


def test_tensors_in_shared_memory(http: client.InferenceServerClient, region: Any) -> None:
    shm.set_shared_memory_region(region, [RAMP, ONES])
    inputs, outputs = [], []
    for at in (0, 1):
        made = client.InferInput(f"INPUT{at}", [1, 16], "INT32")
        made.set_shared_memory("tensors", 64, offset=64 * at)
        inputs.append(made)
        expected = client.InferRequestedOutput(f"OUTPUT{at}")
        expected.set_shared_memory("tensors", 64, offset=128 + 64 * at)
        outputs.append(expected)
    result = http.infer("add_sub", inputs, outputs=outputs)
    assert result.get_output("OUTPUT0") == {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16]}
    assert (shm.get_contents_as_numpy(region, np.int32, [1, 16], offset=128) == RAMP + 1).all()
    assert (shm.get_contents_as_numpy(region, np.int32, [1, 16], offset=192) == RAMP - 1).all()
    assert http.get_system_shared_memory_status()[0]["name"] == "tensors"


def test_shared_memory_that_is_not_allowed(http: client.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="not among those"):
        http.register_system_shared_memory("other", "/somebody-elses", 64)
    with pytest.raises(InferenceServerException, match="no CUDA shared memory"):
        http.register_cuda_shared_memory("other", b"handle", 0, 64)
    assert http.get_cuda_shared_memory_status() == []


def test_settings(http: client.InferenceServerClient) -> None:
    assert http.get_trace_settings()["trace_level"] == ["OFF"]
    with pytest.raises(InferenceServerException, match="--trace-file"):
        http.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})
    assert http.update_trace_settings("add_sub", {"trace_rate": "7"})["trace_rate"] == "7"
    assert http.update_trace_settings("add_sub", {"trace_rate": None})["trace_rate"] == "1000"
    assert http.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
    assert http.update_log_settings({"log_verbose_level": 0}) == http.get_log_settings()
    with pytest.raises(InferenceServerException, match="no log setting"):
        http.update_log_settings({"colour": "blue"})
