"""Triton's own HTTP client, unchanged: beyond its examples and the cases of `tests/servers`."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from tests.support.tensor_runtime import TensorRuntime

pytestmark = pytest.mark.processes
ONES = np.ones((1, 16), np.int32)
RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)


@pytest.fixture
def http(runtime: TensorRuntime) -> Iterator[client.InferenceServerClient]:
    with client.InferenceServerClient(runtime.http, network_timeout=60.0, connection_timeout=60.0) as made:
        yield made


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


def test_metadata_has_the_card_of_the_model(http: client.InferenceServerClient) -> None:
    card = http.get_model_metadata("add_sub")["parameters"]
    assert card["checksum"].startswith("sha256:")
    assert (card["version"], card["source"]) == ("1", "repository:add_sub/1")


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
