"""The containers of the chart: their arguments start the real servers, and their probes are answered."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import typer

from gateway.process import commands
from loadtests.servers import free_ports
from runtimes.llm.__main__ import _parser as llm_parser
from runtimes.llm.weights.store import resolve
from runtimes.tensor.__main__ import _parser as tensor_parser
from tests.deploy.chart_values import SETS, SMALL, values_of
from tests.support.helm import Object, pods, render
from tests.support.read_only import confined

PARSERS: dict[str, Callable[[], Any]] = {"llm": llm_parser, "tensor": tensor_parser}
HEADRACE = str(Path(sys.executable).with_name("headrace"))
PATIENCE = 300.0


def test_arguments_are_those_of_the_real_command_lines(rendered: list[list[Object]]) -> None:
    command: Any = typer.main.get_command(commands.app)
    context, count = command.make_context("headrace", [], resilient_parsing=True), 0
    for seed in range(SETS):
        for name, template in pods(rendered[seed]).items():
            (container,) = template["spec"]["containers"]
            kind = _kind(seed, name)
            if kind == "server":
                continue
            arguments = container["args"]
            subcommand, parser, rest = command.resolve_command(context, list(arguments))
            assert (subcommand, parser.make_context(subcommand, rest) is not None) == (arguments[0], True)
            if kind != "gateway":
                assert arguments[:2] == ["runtime", kind]
                parsed = PARSERS[kind]().parse_args(arguments[2:])
                assert parsed.host == "0.0.0.0"
                ports = {port["containerPort"] for port in container["ports"]}
                assert ports == ({parsed.port} if kind == "llm" else {parsed.http_port, parsed.grpc_port})
                count += 1
    assert count > 20


def _kind(seed: int, name: str) -> str:
    runtimes = values_of(seed)["runtimes"]
    return next((runtimes[each]["kind"] for each in runtimes if name.endswith(f"-{each}")), "gateway")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may enter."""
    with tempfile.TemporaryDirectory(prefix="headrace-container-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _container(runtime: dict[str, Any]) -> Object:
    objects = render({**SMALL, "runtimes": {"server": runtime}})
    (container,) = pods(objects)["headrace-server"]["spec"]["containers"]
    return dict(container)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["llm", "tensor"])
def test_a_runtime_serves_on_a_read_only_file_system_without_root(folder: Path, kind: str) -> None:
    if kind == "llm":
        model = Path(shutil.copy(resolve("bundled:smollm2-135m-instruct"), folder / "model.gguf"))
        container = _container({"kind": "llm", "model": str(model), "drainSeconds": 5, "args": ["--max-model-len=256"]})
    else:
        (folder / "models").mkdir()
        container = _container({"kind": "tensor", "repository": str(folder / "models"), "drainSeconds": 5})
    http, grpc = free_ports(2)
    places = {"--host=0.0.0.0": "--host=127.0.0.1", "--grpc-port=8001": f"--grpc-port={grpc}"}
    arguments = [places.get(each, each).replace("port=8000", f"port={http}") for each in container["args"]]
    state, temporary = folder / "state", folder / "temporary"
    variables = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(state),
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CXXFLAGS": "-O0",  # compiles sooner; the library is stored in the writable home
    }
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            confined([HEADRACE, *arguments], [state, temporary], variables), stdout=output, stderr=output
        )
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            _answers(f"http://127.0.0.1:{http}{container[probe]['httpGet']['path']}", process, log)
        _answers(f"http://127.0.0.1:{http}/metrics", process, log)
    finally:
        process.terminate()
        status = process.wait(120)
    assert status == 0, log.read_text()[-3000:]


def _answers(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a GET is answered with 200."""
    end = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urlopen(url, timeout=10) as response:
                assert response.status == 200
                return
        except (URLError, OSError):
            assert time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
