"""Bounds of the runtime's process: the memory of requests, and the variables of its environment for models."""

import http.client
import json
import socket
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.servers.repositories import for_headrace
from tests.support.tensor_runtime import tensor_runtime

pytestmark = pytest.mark.processes
MiB = 1 << 20
PATIENCE = 300.0
MODEL = """
import os
import numpy as np

class Model:
    def infer(self, inputs):
        names = sorted(name for name in os.environ if name.startswith(("HEADRACE_TEST_", "PATH")))
        return {"names": np.array([",".join(names).encode()], dtype=object)}
"""


@pytest.mark.parametrize("placement", ["process", "thread"])
def test_models_get_listed_and_passed_variables(
    placement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env" / "1").mkdir(parents=True)
    (tmp_path / "env" / "1" / "model.py").write_text(MODEL)
    (tmp_path / "env" / "model.yaml").write_text(
        "inputs: [{name: x, datatype: FP32, dims: [1]}]\noutputs: [{name: names, datatype: BYTES, dims: [1]}]\n"
        f"instances: [{{placement: {placement}}}]\n"
    )
    for name in ("HEADRACE_TEST_API_KEY", "HEADRACE_TEST_MODE", "HEADRACE_TEST_BUCKET_A", "HEADRACE_TEST_BUCKET_B"):
        monkeypatch.setenv(name, "secret")
    passed = ["--pass-env", "HEADRACE_TEST_MODE", "--pass-env", "HEADRACE_TEST_BUCKET_*"]
    with tensor_runtime("--repository", str(tmp_path), *passed) as runtime:
        connection = http.client.HTTPConnection(runtime.http, timeout=PATIENCE)
        x = {"name": "x", "datatype": "FP32", "shape": [1], "data": [0]}
        connection.request("POST", "/v2/models/env/infer", json.dumps({"inputs": [x]}))
        [output] = json.loads(connection.getresponse().read())["outputs"]
        connection.close()
    assert output["data"] == ["HEADRACE_TEST_BUCKET_A,HEADRACE_TEST_BUCKET_B,HEADRACE_TEST_MODE,PATH"]


def test_http_and_grpc_share_one_budget_for_bodies(tmp_path: Path) -> None:
    options = ["--max-body", "1MiB", "--max-held", "3MiB"]
    with tensor_runtime("--repository", str(for_headrace(tmp_path, ["add_sub"])), *options) as runtime:
        host, port = runtime.http.split(":")
        with socket.create_connection((host, int(port))) as holder:
            head = f"POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: h\r\nContent-Length: {MiB}\r\n"
            holder.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert holder.recv(100).startswith(b"HTTP/1.1 100")  # the body has its place from here on
            with pytest.raises(triton.InferenceServerException) as caught:
                infer(runtime.grpc, rows=1000)
            assert "UNAVAILABLE" in str(caught.value.status())
        deadline = 200
        while True:  # the slot is free once the server notices the disconnect
            try:
                infer(runtime.grpc, rows=1000)
                break
            except triton.InferenceServerException:
                deadline -= 1
                assert deadline


def infer(address: str, rows: int) -> None:
    values = np.zeros((rows, 16), dtype=np.int32)
    with triton.InferenceServerClient(address) as client:
        inputs = [triton.InferInput(name, values.shape, "INT32") for name in ("INPUT0", "INPUT1")]
        for tensor in inputs:
            tensor.set_data_from_numpy(values)
        client.infer("add_sub", inputs, client_timeout=PATIENCE)
