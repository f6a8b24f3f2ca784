"""A runtime as a supervised child process: start, restart with backoff, stop without orphans."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from adapters.temporary import TemporaryFolder
from config.runtimes.code import CodeRuntime
from config.schema.config import LlmRuntime, ProgramRuntime, RuntimeConfig, TensorRuntime
from config.schema.units import format_size_or_share
from gateway.placement import code, programs
from gateway.placement.environment import environment
from gateway.placement.launch import Launch
from gateway.placement.ports import Ports
from gateway.placement.runtime import OnExit

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
STABLE_SECONDS = 60.0
STOP_SECONDS = 10.0


class LocalRuntimes:
    """Starts each runtime as a child process, with its socket in a folder that only this user can enter."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder()
        self._ports = Ports()

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit) -> "LocalRuntime":
        """Create the runtime of a pool. Raises `CannotLaunch`."""
        socket = Path(self._folder.name) / f"{name.replace('/', '_')[:32]}-{os.urandom(3).hex()}.sock"
        if isinstance(config, CodeRuntime):
            folder = socket.with_suffix(".models")
            code.write(folder, config.functions)
            env = environment(os.environ, config.env, config)
            launch = Launch(_of_code(socket, folder), f"unix:{socket}", STOP_SECONDS, env)
            return LocalRuntime(name, config, launch, on_exit, partial(shutil.rmtree, folder, ignore_errors=True))
        if not isinstance(config, ProgramRuntime):
            env = environment(os.environ, config.env, config)
            launch = Launch(command(name, config, socket), f"unix:{socket}", STOP_SECONDS, env)
            return LocalRuntime(name, config, launch, on_exit)
        ports: list[int] = []

        def port() -> int:
            ports.append(self._ports.take())
            return ports[-1]

        try:
            launch = programs.launch(name, config, socket, port)
        except BaseException:
            self._ports.give_back(ports)
            raise
        return LocalRuntime(name, config, launch, on_exit, partial(self._ports.give_back, ports))

    def close(self) -> None:
        """Remove the folder; all runtimes have been stopped."""
        self._folder.cleanup()


class LocalRuntime:
    """One child process. It listens at `address`; `on_exit` is called as soon as it has exited, `release` at the end.

    The child holds the other end of a pipe to this process and exits when it closes: however this process ends, even by
    SIGKILL, no orphan stays.
    """

    def __init__(
        self,
        name: str,
        config: RuntimeConfig,
        launch: Launch,
        on_exit: OnExit,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.config = config
        self.address = launch.address
        self.restarts = 0
        self._launch = launch
        self._on_exit = on_exit
        self._release = release
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the child; None without a child."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the child and keep it running until `stop`."""
        self._task = asyncio.create_task(self._supervise(), name=f"runtime {self.name}")

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = FIRST_BACKOFF
        while True:
            started = loop.time()
            reason = await self._run_once()
            if loop.time() - started > STABLE_SECONDS:
                backoff = FIRST_BACKOFF
            log.warning("runtime %s %s; restart in %.1f s", self.name, reason, backoff)
            self._on_exit(reason)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)
            self.restarts += 1

    async def _run_once(self) -> str:
        """Run the child until it ends; returns how it ended."""
        launch = self._launch
        self._forget_socket()  # a server of another project would find it in use
        try:
            self._process = await asyncio.create_subprocess_exec(
                *launch.command,
                env=launch.env,
                cwd=launch.cwd,
                stdin=asyncio.subprocess.PIPE,
                stdout=sys.stderr,  # ours may be the access log
                start_new_session=True,  # a Ctrl-C is for the gateway, which drains before it stops its children
            )
        except OSError as error:
            return f"could not be started: {error.strerror}"
        process = self._process
        log.info("runtime %s started, pid %d", self.name, process.pid)
        try:
            code = await process.wait()
        finally:
            if process.returncode is not None:
                self._process = None
                _kill_group(process.pid)
        return f"ended with status {code}" if code >= 0 else f"was killed by signal {-code}"

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL; returns when the child has exited."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), self._launch.stop_seconds)
            except TimeoutError:
                log.warning("runtime %s does not stop; killed", self.name)
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            _kill_group(process.pid)
        self._forget_socket()
        self._release()

    def _forget_socket(self) -> None:
        if self._launch.socket is not None:
            self._launch.socket.unlink(missing_ok=True)


def _kill_group(leader: int) -> None:
    """Kill the descendants that the child left behind. They are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def command(name: str, config: RuntimeConfig, socket: Path) -> list[str]:
    """The child's command line."""
    line = [sys.executable, "-m", f"runtimes.{config.kind}", "--socket", str(socket), "--exit-with-parent"]
    if isinstance(config, LlmRuntime):
        return line + _llm(name, config)
    assert isinstance(config, TensorRuntime)
    return line + _tensor(config)


def _of_code(socket: Path, folder: Path) -> list[str]:
    line = [sys.executable, "-m", "runtimes.tensor", "--socket", str(socket), "--exit-with-parent"]
    return [*line, "--repository", str(folder)]


def _llm(name: str, config: LlmRuntime) -> list[str]:
    line = ["--model", config.model, "--served-name", name, "--dtype", config.dtype, "--device", config.device]
    line += ["--weights", config.weights, "--executor", config.executor]
    line += ["--max-num-seqs", str(config.max_num_seqs), "--max-queue", str(config.max_queue)]
    line += ["--max-num-batched-tokens", str(config.max_num_batched_tokens)]
    line += ["--kv-cache", format_size_or_share(config.kv_cache), "--kv-cache-dtype", config.kv_cache_dtype]
    line += ["--pooling", config.pooling] + (["--matryoshka"] if config.matryoshka else [])
    if not config.prefix_cache:
        line.append("--no-prefix-cache")
    if config.threads is not None:
        line += ["--threads", str(config.threads)]
    if config.max_model_len is not None:
        line += ["--max-model-len", str(config.max_model_len)]
    return line


def _tensor(config: TensorRuntime) -> list[str]:
    line = ["--repository", config.repository, "--mode", config.mode, "--cache-size", str(config.cache)]
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
