"""The runtime as a process: how it starts, how it stops, what it refuses."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from runtimes.tensor.__main__ import main
from tests.servers.repositories import for_headrace
from tests.support.tensor_runtime import COMMAND, tensor_runtime

pytestmark = pytest.mark.processes
PATIENCE = 300.0


def status(address: str, method: str, path: str, body: object = None, **headers: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), fields)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return for_headrace(tmp_path_factory.mktemp("slow"), ["slow"])


def asleep(milliseconds: int) -> dict[str, object]:
    return {"inputs": [{"name": "MILLISECONDS", "datatype": "INT32", "shape": [1, 1], "data": [milliseconds]}]}


def test_requests_in_flight_end_before_it_does(slow: Path) -> None:
    reported: list[int] = []
    with tensor_runtime("--repository", str(slow)) as runtime:
        pending = threading.Thread(
            target=lambda: reported.append(status(runtime.http, "POST", "/v2/models/slow/infer", asleep(5000)))
        )
        pending.start()
        while not in_flight(runtime.http):
            assert pending.is_alive()
        assert runtime.stop() == 0
        pending.join(PATIENCE)
    assert reported == [200]
    assert "draining" in runtime.output


def in_flight(address: str) -> bool:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as response:
        text = response.read().decode()
    return 'headrace_tensor_in_flight{model="slow",version="1"} 1' in text


def refusal(*options: str) -> str:
    """The error of a runtime that does not start."""
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot be read" in refusal("--repository", str(tmp_path / "nowhere"), "--http-port", "0")


def test_a_port_that_is_taken(slow: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot listen" in refusal("--repository", str(slow), "--http-port", port)


def test_a_model_that_cannot_be_loaded_prevents_no_other(tmp_path: Path) -> None:
    for_headrace(tmp_path, ["slow", "text"])
    (tmp_path / "text" / "config.pbtxt").write_text('backend: "python"\nmax_batch_size: "eight"\n')
    with tensor_runtime("--repository", str(tmp_path)) as runtime:
        assert status(runtime.http, "GET", "/v2/models/slow/ready") == 200
        assert status(runtime.http, "GET", "/v2/models/text/ready") == 503
        assert status(runtime.http, "GET", "/v2/health/ready") == 200
        assert "config.pbtxt" in runtime.output


def test_restricted_parts_need_the_secret(slow: Path) -> None:
    with tensor_runtime("--repository", str(slow), "--restrict", "model-repository,logging:admin-key=s3") as runtime:
        for method, path in (("POST", "/v2/repository/index"), ("GET", "/v2/logging")):
            assert status(runtime.http, method, path) == 403
            assert status(runtime.http, method, path, admin_key="s4") == 403
            assert status(runtime.http, method, path, admin_key="s3") == 200
        assert status(runtime.http, "GET", "/v2/models/slow") == 200


def test_requests_are_traced_and_logged_when_enabled(slow: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with tensor_runtime("--repository", str(slow), "--trace-file", str(file)) as runtime:
        level = {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "1"}
        assert status(runtime.http, "POST", "/v2/models/slow/trace/setting", level) == 200
        assert status(runtime.http, "POST", "/v2/logging", {"log_verbose_level": 1}) == 200
        assert status(runtime.http, "POST", "/v2/models/slow/infer", asleep(1)) == 200
        runtime.printed(r"DEBUG runtimes.tensor.api.service slow 1 answered after")
        assert runtime.stop() == 0
    head, given, answered, times = sorted(json.loads(file.read_text()), key=lambda entry: "timestamps" in entry)
    assert (head["model_name"], given["tensor"]["name"], answered["tensor"]["name"]) == (
        "slow",
        "MILLISECONDS",
        "SLEPT",
    )
    names = [stamp["name"] for stamp in times["timestamps"]]
    assert names == ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END"]
    moments = [stamp["ns"] for stamp in times["timestamps"]]
    assert moments == sorted(moments)
    assert moments[3] - moments[2] >= 1_000_000


def test_it_leaves_with_its_parent(slow: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--repository", str(slow), "--socket", str(tmp_path / "s"), "--exit-with-parent"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stderr is not None
    while "serving 1 models" not in (line := process.stderr.readline()):
        assert line
    process.stdin.close()
    process.stderr.read()
    assert process.wait(PATIENCE) == 0
    process.stderr.close()
    assert not (tmp_path / "s").exists()


def test_it_is_not_ready_while_models_load_and_may_be_stopped_then(tmp_path: Path) -> None:
    for_headrace(tmp_path, ["slow"])
    model = tmp_path / "slow" / "1" / "model.py"
    model.write_text(f"import time\ntime.sleep(600)\n{model.read_text()}")
    with tensor_runtime("--repository", str(tmp_path), ready=False) as runtime:
        assert status(runtime.http, "GET", "/v2/health/live") == 200
        assert status(runtime.http, "GET", "/v2/health/ready") == 503
        assert status(runtime.http, "POST", "/v2/models/slow/infer", asleep(0)) == 503
        assert runtime.stop(signal.SIGINT) == 0


def test_the_command_is_the_runtime_itself() -> None:
    command = [sys.executable, "-m", "gateway", "runtime", "tensor", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0
    assert "--grpc-port" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repository", "r"], "no listener"),
        (["--repository", "r", "--http-port", "x"], "invalid"),
        (["--repository", "r", "--http-port", "99999"], "0 to 65535"),
        (["--repository", "r", "--http-port", "0", "--load", "m"], "--mode explicit"),
        (["--repository", "r", "--http-port", "0", "--restrict", "all:k=v"], "is none of"),
        (["--repository", "r", "--http-port", "0", "--max-body", "much"], "argument --max-body"),
        (["--repository", "r", "--http-port", "0", "--max-held", "191MiB"], "largest body takes 192MiB"),
        (["--repository", "r", "--http-port", "0", "--poll-interval", "often"], "argument --poll-interval"),
        (["--http-port", "0"], "--repository"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert message in capsys.readouterr().err
