"""The containers of the chart: their arguments start the real servers, and their probes are answered."""

import os
import re
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
import yaml

from config.schema.config import Config
from gateway.process import commands
from gateway.state.database import sqlite_path
from gateway.state.local_folder import local_folder
from loadtests.servers import free_ports
from runtimes.llm.__main__ import _parser as llm_parser
from runtimes.llm.weights.store import resolve
from runtimes.tensor.__main__ import _parser as tensor_parser
from tests.deploy.chart_values import SETS, SMALL, values_of
from tests.support.helm import CHART, Object, pods, render
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


DOCUMENTED = [
    *((path.stem, yaml.safe_load(path.read_text())) for path in sorted((CHART / "examples").glob("*.yaml"))),
    *(
        (f"{page.stem}-{number}", yaml.safe_load(text))
        for page in [Path("docs/kubernetes.md"), *sorted(Path("docs/kubernetes").glob("*.md"))]
        for number, text in enumerate(re.findall(r"```yaml values\n(.*?)```", page.read_text(), re.DOTALL))
        if "config:" in text
    ),
]
"""The values of examples and pages with a file of the gateway."""
URLS = {"DATABASE": "postgresql://headrace@db.internal/headrace", "REDIS": "rediss://redis.internal:6379/0"}


@pytest.mark.parametrize(("values", "config"), [(each, each["config"]) for _, each in DOCUMENTED], ids=dict(DOCUMENTED))
def test_a_gateway_writes_into_volumes_only(
    values: dict[str, Any], config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = pods(render(values))["headrace"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    writable = {Path(each["mountPath"]) for each in container["volumeMounts"] if not each.get("readOnly")}
    assert writable == {Path("/var/lib/headrace"), Path("/tmp")}
    for name in re.findall(r"\$\{(\w+)\}", config):
        kind = next((kind for kind in URLS if kind in name), "")
        monkeypatch.setenv(name, URLS.get(kind, "a" * 32))
    written = Config.model_validate(expanded(yaml.safe_load(config)))
    paths = places(written, Path(container["workingDir"]))
    assert [path for path in paths if not any(path.is_relative_to(folder) for folder in writable)] == []
    if written.state.database.startswith("postgresql"):
        keys = written.state.folder
        assert keys is not None
        assert Path(keys).is_relative_to("/var/lib/headrace"), "with the state, not among temporary files"


def expanded(value: Any) -> Any:
    """A file whose variables have their values."""
    if isinstance(value, dict):
        return {name: expanded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [expanded(each) for each in value]
    return os.path.expandvars(value) if isinstance(value, str) and not value.startswith("file:") else value


def places(written: Config, working: Path) -> list[Path]:
    """The folders and files that a gateway with this configuration writes."""
    database = written.state.database
    sections = ("keys", written.state), ("usage", written.usage), ("requests", written.requests)
    folders = [local_folder(database, name, section.folder) for name, section in sections if section is not None]
    named = [str(sqlite_path(database) or ""), written.access_log.to]
    if written.batches is not None:
        named.append(written.batches.storage.removeprefix("file:"))
    files = [Path(each) for each in named if each and each not in ("stdout", "stderr") and not each.startswith("s3:")]
    here = Path.cwd()
    return [working / (each.relative_to(here) if each.is_relative_to(here) else each) for each in (*folders, *files)]


@pytest.mark.timeout(600)
def test_the_first_gateway_of_the_page_starts_on_a_read_only_file_system_without_root(folder: Path) -> None:
    _, values = next(each for each in DOCUMENTED if each[0] == "kubernetes-0")
    (container,) = pods(render(values))["headrace"]["spec"]["containers"]
    http, admin = free_ports(2)
    config = values["config"].replace("0.0.0.0:8080", f"127.0.0.1:{http}").replace("0.0.0.0:8082", f"127.0.0.1:{admin}")
    file = folder / "headrace.yaml"
    file.write_text(re.sub(r"discover: \{kubernetes: \{.*?\}\}", "endpoints: [http://127.0.0.1:9]", config))
    arguments = [str(file) if each == "/etc/headrace/headrace.yaml" else each for each in container["args"]]
    state, temporary, log = folder / "state", folder / "temporary", folder / "log"
    with log.open("wb") as output:
        command = confined([HEADRACE, *arguments], [state, temporary], _variables(state, temporary))
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            _answers(f"http://127.0.0.1:{admin}{container[probe]['httpGet']['path']}", process, log)
    finally:
        process.terminate()
        status = process.wait(120)
    assert status == 0, log.read_text()[-3000:]
    assert (state / ".headrace/state.db").exists()


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
    variables = {**_variables(state, temporary), "CXXFLAGS": "-O0"}  # compiles sooner, into the writable home
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


def _variables(state: Path, temporary: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(state),
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


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
