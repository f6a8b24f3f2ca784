"""The same model store on a real TorchServe and on the tensor runtime: the same answers."""

import contextlib
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch

from loadtests.peers import torchserve as peer
from loadtests.servers import Launch
from tests.servers.started import Started, answers, started
from tests.servers.torchserve import WORKER_SECONDS
from tests.support.tensor_runtime import TensorRuntime, tensor_runtime
from tests.support.torchserve_store import FUNCTION, LINEAR, TABLE, archive, reporter

MODELS = ("reporter", "function", "script", "eager")


def weights() -> Any:
    scope: dict[str, Any] = {}
    exec(LINEAR, scope)
    torch.manual_seed(1)
    return scope["Linear"]()


def fill(store: Path) -> None:
    """Every kind of archive that both serve, and the configuration of a store."""
    module = weights()
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.trace(module, torch.zeros(1, 2)), store / "script.pt")
    torch.save(module.state_dict(), store / "eager.pt")
    reporter(store, settings="handler:\n  top: 3\nminWorkers: 1\nmaxWorkers: 1\n")
    archive(store / "function.mar", "function", "f.py:entry", {"f.py": FUNCTION})
    table = {"table.py": TABLE}
    script, eager = ((store / f"{name}.pt").read_bytes() for name in ("script", "eager"))
    archive(store / "script.mar", "script", "table.py", {**table, "w.pt": script}, serializedFile="w.pt")
    files: dict[str, str | bytes] = {**table, "w.pt": eager, "linear.py": LINEAR}
    archive(store / "eager.mar", "eager", "table.py", files, serializedFile="w.pt", modelFile="linear.py")


def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    fill(folder)
    inference, management, metrics, grpc, grpc_management = ports
    lines = [
        f"inference_address=http://127.0.0.1:{inference}",
        f"management_address=http://127.0.0.1:{management}",
        f"metrics_address=http://127.0.0.1:{metrics}",
        f"grpc_inference_address=127.0.0.1\ngrpc_inference_port={grpc}",
        f"grpc_management_address=127.0.0.1\ngrpc_management_port={grpc_management}",
        f"model_store={folder}\nload_models=all\ndefault_workers_per_model=1",
        "disable_token_authorization=true\ninstall_py_dep_per_model=false",
    ]
    (folder / "config.properties").write_text("\n".join(lines) + "\n")
    return peer.java(folder, venv)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Started, TensorRuntime]]:
    """The runtime is given the folder in which TorchServe runs."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(started("torchserve", peer.install, launch, ports=5, ready="/ping", status=200))
        end = time.monotonic() + WORKER_SECONDS
        while not all(answers(server.ports[1], f"/models/{name}", words=b'"READY"') for name in MODELS):
            assert time.monotonic() < end, server.log()
            time.sleep(0.1)
        yield server, stack.enter_context(tensor_runtime("--repository", str(server.folder)))


def form(*fields: tuple[str, str | bytes, str | None, str | None]) -> aiohttp.FormData:
    made = aiohttp.FormData(default_to_multipart=True)
    for name, value, filename, kind in fields:
        made.add_field(name, value, filename=filename, content_type=kind)
    return made


ROW = [0.5, -2.0]
JSON = "application/json"
REQUESTS: dict[str, tuple[str, Any, str | None]] = {
    "an object": ("reporter", {"a": [1, None, "ä"]}, JSON),
    "a number": ("reporter", 7, JSON),
    "JSON with a charset": ("reporter", {"a": 1}, f"{JSON}; charset=utf-8"),
    "no JSON": ("reporter", b"{no", JSON),
    "text": ("reporter", "näh".encode(), "text/plain"),
    "text that is none": ("reporter", b"\xff\xfe", "text/plain"),
    "bytes": ("reporter", bytes(range(256)), "application/octet-stream"),
    "a picture": ("reporter", b"\x89PNG\r\n", "image/png"),
    "nothing": ("reporter", b"", "application/octet-stream"),
    "a query": ("reporter?k=1&word=a%20b", {"a": 1}, JSON),
    "fields": ("reporter", b"a=1&b=%C3%A4+c", "application/x-www-form-urlencoded"),
    "a form": (
        "reporter", lambda: form(("data", b"\x00\r\n--\xff", "a.bin", "image/png"), ("k", "5", None, None)), None,
    ),
    "a form of JSON": ("reporter", lambda: form(("data", b'{"a": 1}', "a.json", JSON)), None),
    "a field of JSON": ("reporter", lambda: form(("data", '{"a": 1}', None, JSON)), None),
    "a status": ("reporter", {"status": 418, "text": "no tea"}, JSON),
    "a type": ("reporter", {"type": "text/x-test", "text": "typed"}, JSON),
    "an answer of bytes": ("reporter", {"bytes": [0, 255]}, JSON),
    "an answer of text": ("reporter", {"text": "plain"}, JSON),
    "a failure": ("reporter", {"fail": 1}, JSON),
    "a version": ("reporter/1.0", {"a": 1}, JSON),
    "a function": ("function", {}, JSON),
    "a script": ("script", {"x": ROW}, JSON),
    "a state dict": ("eager", {"x": ROW}, JSON),
}  # fmt: skip


async def predicted(url: str, name: str) -> tuple[int, str, bytes]:
    path, body, kind = REQUESTS[name]
    data = body() if callable(body) else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"x-test": "yes"} | ({} if kind is None else {"content-type": kind})
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/predictions/{path}", data=data, headers=headers) as response,
    ):
        return response.status, response.headers.get("content-type", ""), await response.read()


@pytest.mark.parametrize("name", REQUESTS)
async def test_both_give_the_same_answer(both: tuple[Started, TensorRuntime], name: str) -> None:
    server, runtime = both
    expected = await predicted(server.url(0), name)
    assert await predicted(f"http://{runtime.http}", name) == expected
    if name in ("a script", "a state dict"):
        torch.testing.assert_close(torch.tensor(json.loads(expected[2])), weights()(torch.tensor(ROW)).detach())


@pytest.mark.parametrize("path", ["nobody", "reporter/9.9"])
async def test_both_know_no_other_model(both: tuple[Started, TensorRuntime], path: str) -> None:
    server, runtime = both
    async with aiohttp.ClientSession() as session:
        seen = []
        for url in (server.url(0), f"http://{runtime.http}"):
            async with session.post(f"{url}/predictions/{path}", data=b"{}") as response:
                seen.append(response.status)
    assert seen == [404, 404]
