"""The repository of a running server, controlled by Triton's own client, unchanged."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from tests.servers.repositories import for_headrace
from tests.support.tensor_runtime import tensor_runtime

pytestmark = pytest.mark.processes
OUTSIDE = "headrace-test-outside"
PLUS = """
class Model:
    def infer(self, inputs):
        return {"B": inputs["A"] + NUMBER}
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""


@pytest.fixture
def http(tmp_path: Path) -> Iterator[client.InferenceServerClient]:
    with serving(for_headrace(tmp_path, ["add_sub"]), "--mode", "explicit", "--load", "*") as http:
        yield http


@contextmanager
def serving(repository: Path, *options: str) -> Iterator[client.InferenceServerClient]:
    with (
        tensor_runtime("--repository", str(repository), *options) as runtime,
        client.InferenceServerClient(runtime.http, network_timeout=60.0, connection_timeout=60.0) as http,
    ):
        yield http


def put(repository: Path, name: str, number: int, code: str = PLUS, config: str = CONFIG) -> None:
    folder = repository / name / str(number)
    folder.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    (folder / "model.py").write_text(code.replace("NUMBER", str(number)))


def infer(http: client.InferenceServerClient, model: str, given: int) -> tuple[str, int]:
    tensor = client.InferInput("A", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[given]], np.int32))
    result = http.infer(model, [tensor])
    return result.get_response()["model_version"], int(result.as_numpy("B")[0, 0])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def states(http: client.InferenceServerClient, name: str) -> dict[str, tuple[str, str]]:
    index = http.get_model_repository_index()
    return {e.get("version", ""): (e.get("state", ""), e.get("reason", "")) for e in index if e["name"] == name}


def test_a_load_that_hangs_ends_with_its_time_and_leaves_no_process(tmp_path: Path) -> None:
    put(tmp_path, "stuck", 1, "import time\ntime.sleep(3600)")
    options = "--repository", str(tmp_path), "--mode", "explicit", "--load-timeout", "1s"
    with (
        tensor_runtime(*options) as runtime,
        client.InferenceServerClient(runtime.http, network_timeout=60.0, connection_timeout=60.0) as http,
    ):
        with pytest.raises(InferenceServerException, match="loading took longer than 1 s"):
            http.load_model("stuck")
        assert states(http, "stuck")["1"] == ("UNAVAILABLE", "cannot be loaded: loading took longer than 1 s")
        until(lambda: not psutil.Process(runtime.process.pid).children())
        assert http.is_server_live()


def test_a_model_can_be_sent_whole_and_leads_nowhere_else(http: client.InferenceServerClient, tmp_path: Path) -> None:
    config = json.dumps(
        {
            "backend": "python",
            "max_batch_size": 4,
            "input": [{"name": "A", "data_type": "TYPE_INT32", "dims": [1]}],
            "output": [{"name": "B", "data_type": "TYPE_INT32", "dims": [1]}],
        }
    )
    http.load_model("sent", config=config, files={"file:3/model.py": PLUS.replace("NUMBER", "3").encode()})
    assert infer(http, "sent", 1) == ("3", 4)
    assert http.get_model_config("sent")["max_batch_size"] == 4
    for name in (f"../{OUTSIDE}", f"1/../../{OUTSIDE}", str(tmp_path / OUTSIDE), f"/{tmp_path / OUTSIDE}"):
        with pytest.raises(InferenceServerException, match="is not a path of a model") as caught:
            http.load_model("sent", config=config, files={f"file:{name}": b"x"})
        assert caught.value.status() == "400"
    assert list(tmp_path.rglob(OUTSIDE)) == []
    assert infer(http, "sent", 1) == ("3", 4)
    http.unload_model("sent")
    assert not http.is_model_ready("sent")
