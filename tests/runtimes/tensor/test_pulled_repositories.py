"""The runtime serves models that another process pulls: replaced while requests run, through kills and failures."""

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.features.batches.s3.client import S3Client
from tests.support.s3 import BUCKET, KEY_ID, SECRET, s3_server
from tests.support.scorers import repository
from tests.support.stores import WebServer, tar_of, web_server_of_a_thread
from tests.support.tensor_runtime import TensorRuntime, tensor_runtime

pytestmark = pytest.mark.processes
PATIENCE = 300.0
PADDING = 3_000_000


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server_of_a_thread() as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "repositories"


def packed(folder: Path, expression: str, padding: bytes = b"") -> bytes:
    """An archive with a model that computes an expression."""
    root = repository(folder, expression)
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return tar_of({**files, "scorer/padding.bin": padding} if padding else files)


def scored(runtime: TensorRuntime, value: float = 3.0) -> float:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [value]}]}
    request = urllib.request.Request(f"http://{runtime.http}/v2/models/scorer/infer", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return float(json.load(response)["outputs"][0]["data"][0])


def index(runtime: TensorRuntime) -> list[dict[str, Any]]:
    request = urllib.request.Request(f"http://{runtime.http}/v2/repository/index", b"{}")
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return list(json.load(response))


def metrics(runtime: TensorRuntime) -> str:
    with urllib.request.urlopen(f"http://{runtime.http}/metrics", timeout=PATIENCE) as response:
        return str(response.read().decode())


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def pullers(runtime: TensorRuntime) -> list[int]:
    children = Path(f"/proc/{runtime.process.pid}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    return [pid for pid in pids if b"adapters.stores" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_new_revision_replaces_the_model_while_requests_run(server: WebServer, tmp_path: Path) -> None:
    server.files["/m.tar.gz"] = packed(tmp_path / "old", "x * 2")
    with tensor_runtime(
        "--repository", f"{server.url}/m.tar.gz", "--mode", "poll", "--poll-interval", "100ms"
    ) as runtime:
        values: list[float] = []
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                values.append(scored(runtime))

        client = threading.Thread(target=ask)
        client.start()
        try:
            until(lambda: bool(values))
            server.files["/m.tar.gz"] = packed(tmp_path / "new", "x * 5")
            until(lambda: values[-1] == 15.0)
        finally:
            stop.set()
            client.join(PATIENCE)
        change = values.index(15.0)
        assert set(values[:change]) == {6.0}
        assert set(values[change:]) == {15.0}


def test_a_failed_pull_leaves_the_model_in_service_and_is_reported(server: WebServer, tmp_path: Path) -> None:
    server.files["/m.tar.gz"] = packed(tmp_path / "old", "x * 2")
    with tensor_runtime(
        "--repository", f"{server.url}/m.tar.gz", "--mode", "poll", "--poll-interval", "100ms"
    ) as runtime:
        server.files["/m.tar.gz"] = tar_of({"../../evil": b"x"})
        runtime.printed("cannot be pulled: .*m.tar.gz is refused: .*; the files before stay in service")
        until(lambda: "is refused" in index(runtime)[0].get("reason", ""))
        assert index(runtime)[0]["state"] == "READY"
        assert scored(runtime) == 6.0
        assert f'headrace_tensor_repository_stale{{repository="{server.url}/m.tar.gz"}} 1' in metrics(runtime)
        server.files["/m.tar.gz"] = packed(tmp_path / "new", "x * 5")
        until(lambda: scored(runtime) == 15.0)
        until(lambda: not index(runtime)[0].get("reason"))
        assert f'headrace_tensor_repository_stale{{repository="{server.url}/m.tar.gz"}} 0' in metrics(runtime)


def test_a_killed_pull_is_continued_where_it_was(server: WebServer, tmp_path: Path, cache: Path) -> None:
    server.files["/m.tar.gz"] = packed(tmp_path / "old", "x * 2")
    with tensor_runtime(
        "--repository", f"{server.url}/m.tar.gz", "--mode", "poll", "--poll-interval", "100ms"
    ) as runtime:
        server.stall_after = PADDING // 2
        server.files["/m.tar.gz"] = packed(tmp_path / "new", "x * 5", os.urandom(PADDING))
        until(lambda: any(part.stat().st_size >= PADDING // 4 for part in (cache / "parts").iterdir()))
        server.requests.clear()
        server.stall_after = None
        (pid,) = pullers(runtime)
        os.kill(pid, signal.SIGKILL)
        until(lambda: scored(runtime) == 15.0)
        first = next(requested for method, _, requested in server.requests if method == "GET")
        assert int(first.removeprefix("bytes=").removesuffix("-")) >= PADDING // 4


def test_a_killed_runtime_continues_and_needs_the_server_no_more(
    server: WebServer, tmp_path: Path, cache: Path
) -> None:
    server.stall_after = PADDING // 2
    server.files["/m.tar.gz"] = packed(tmp_path / "old", "x * 2", os.urandom(PADDING))
    with tensor_runtime("--repository", f"{server.url}/m.tar.gz", ready=False) as runtime:
        until(lambda: any(part.stat().st_size >= PADDING // 4 for part in cache.glob("parts/*")))
        os.killpg(runtime.process.pid, signal.SIGKILL)
        runtime.process.wait(PATIENCE)
    server.stall_after = None
    server.requests.clear()
    with tensor_runtime("--repository", f"{server.url}/m.tar.gz") as runtime:
        assert scored(runtime) == 6.0
    ranges = [requested for method, _, requested in server.requests if method == "GET"]
    assert [int(requested.removeprefix("bytes=").removesuffix("-")) >= PADDING // 4 for requested in ranges] == [True]
    server.files.clear()
    with tensor_runtime("--repository", f"{server.url}/m.tar.gz") as runtime:
        assert scored(runtime) == 6.0
        assert "404" in index(runtime)[0]["reason"]


async def test_models_of_a_bucket_are_served_and_followed_with_a_key_that_models_do_not_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with s3_server(tmp_path) as bucket:
        client = S3Client(bucket.config, BUCKET)

        def push(name: str, expression: str) -> None:
            root = repository(tmp_path / name, expression)
            for path in (each for each in root.rglob("*") if each.is_file()):
                client.send("PUT", f"models/{path.relative_to(root)}", body=path.read_bytes())

        push("old", "x * 2 + ('AWS_SECRET_ACCESS_KEY' in __import__('os').environ)")
        for name, value in {"ENDPOINT_URL": bucket.url, "ACCESS_KEY_ID": KEY_ID, "SECRET_ACCESS_KEY": SECRET}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        with tensor_runtime(
            "--repository", f"s3://{BUCKET}/models", "--mode", "poll", "--poll-interval", "100ms"
        ) as runtime:
            assert scored(runtime) == 6.0
            push("new", "x * 5")
            until(lambda: scored(runtime) == 15.0)


def test_a_load_of_a_client_pulls_first(server: WebServer, tmp_path: Path) -> None:
    server.files["/m.tar.gz"] = packed(tmp_path / "old", "x * 2")
    with tensor_runtime("--repository", f"{server.url}/m.tar.gz", "--mode", "explicit", "--load", "*") as runtime:
        server.files["/m.tar.gz"] = packed(tmp_path / "new", "x * 5")
        assert scored(runtime) == 6.0
        request = urllib.request.Request(f"http://{runtime.http}/v2/repository/models/scorer/load", b"{}")
        urllib.request.urlopen(request, timeout=PATIENCE).close()
        assert scored(runtime) == 15.0


def test_a_repository_that_was_never_pulled_is_the_end_of_the_process(server: WebServer) -> None:
    with tensor_runtime("--repository", f"{server.url}/none.zip", ready=False) as runtime:
        runtime.printed("none.zip cannot be pulled: .*404")
        assert runtime.process.wait(PATIENCE) == 1
