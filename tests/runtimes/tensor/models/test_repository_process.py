"""The repository of a running server, controlled by Triton's own client, unchanged."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    with serving(for_headrace(tmp_path, ["accumulate", "add_sub"]), "--mode", "explicit", "--load", "*") as http:
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


def infer(http: client.InferenceServerClient, model: str, given: int, **options: Any) -> tuple[str, int]:
    tensor = client.InferInput("INPUT" if model == "accumulate" else "A", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[given]], np.int32))
    result = http.infer(model, [tensor], **options)
    array = result.as_numpy("SUM" if model == "accumulate" else "B")
    return result.get_response()["model_version"], int(array[0, 0])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def states(http: client.InferenceServerClient, name: str) -> dict[str, tuple[str, str]]:
    index = http.get_model_repository_index()
    return {e.get("version", ""): (e.get("state", ""), e.get("reason", "")) for e in index if e["name"] == name}


def test_an_open_sequence_ends_where_it_began_while_a_new_version_serves(
    http: client.InferenceServerClient, tmp_path: Path
) -> None:
    assert infer(http, "accumulate", 1, sequence_id=7, sequence_start=True) == ("1", 1)
    shutil.copytree(tmp_path / "accumulate" / "1", tmp_path / "accumulate" / "2")
    http.load_model("accumulate")
    assert infer(http, "accumulate", 10, sequence_id=8, sequence_start=True) == ("2", 10)
    assert infer(http, "accumulate", 2, sequence_id=7) == ("1", 3)
    assert states(http, "accumulate")["1"][0] == "UNLOADING"
    assert infer(http, "accumulate", 3, sequence_id=7, sequence_end=True) == ("1", 6)
    assert infer(http, "accumulate", 5, sequence_id=8, sequence_end=True) == ("2", 15)
    until(lambda: states(http, "accumulate")["1"][0] == "UNAVAILABLE")


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


def test_a_copied_model_is_loaded_and_a_removed_model_is_unloaded(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    with serving(repository, "--mode", "poll", "--poll-interval", "100ms") as http:
        put(tmp_path, "plus", 1)
        shutil.copytree(tmp_path / "plus", repository / "plus")
        until(lambda: http.is_model_ready("plus"))
        assert infer(http, "plus", 1) == ("1", 2)
        with pytest.raises(InferenceServerException, match="its mode is poll, not explicit"):
            http.load_model("plus")
        put(tmp_path, "new", 2)
        os.rename(tmp_path / "new" / "2", repository / "plus" / "2")
        until(lambda: infer(http, "plus", 1) == ("2", 3))
        shutil.rmtree(repository / "plus")
        until(lambda: not http.is_model_ready("plus"))


def test_models_beyond_the_memory_are_loaded_on_demand(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        put(tmp_path, f"plus{number}", number)
        (tmp_path / f"plus{number}" / "config.pbtxt").write_text(
            CONFIG + 'parameters { key: "headrace.memory" value { string_value: "40MiB" } }\n'
        )
    with serving(tmp_path, "--memory-budget", "100MiB") as http:
        for _ in range(2):
            for number in (1, 2, 3):
                assert http.is_model_ready(f"plus{number}")
                assert infer(http, f"plus{number}", 1) == (str(number), 1 + number)
        reasons = [states(http, f"plus{number}")[str(number)][1] for number in (1, 2, 3)]
        assert [bool(reason) for reason in reasons].count(True) == 1
