"""Runtimes as supervised child processes: start, restart with backoff, stop without orphans.

A replica is identified by its pool and a number from 0.
"""

import asyncio
import contextlib
import logging
import os
import random
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec

from adapters.lasting import lasting
from adapters.process import TemporaryFolder
from config.schema.config import LlmRuntime, ProgramRuntime, RuntimeConfig, TensorRuntime
from config.schema.pipelines.call import CallConfig
from config.schema.pipelines.parts import PipelineTensorConfig
from config.schema.runtimes.bundled import CodeRuntime
from config.schema.runtimes.ray import PlacedRuntime
from gateway.features.placement.launch import Launch, environment, llm_arguments, program_launch, tensor_arguments
from gateway.features.placement.ray.cluster import RayClusters
from gateway.traffic.fleet.runtime import EVERYWHERE, CannotLaunch, OnExit, OwnRuntime, Place, place_of

WRAPPER = "runtimes.tensor.backends.function:FunctionModel"
SOURCE = "function.py"
CHOICES = range(20_000, 32_768)
"""Below the range of ephemeral ports, one of which another connection could use when the child restarts."""
ATTEMPTS = 200
log = logging.getLogger(__name__)
FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
STABLE_SECONDS = 60.0
STOP_SECONDS = 10.0
CRASH_LOOP = 3
"""Ends in a row, each soon after a start, after which a replica is reported once as failing, and not for each end."""


class ReplicaNumbers:
    """The replicas that were chosen for each pool; before a choice, as many as always run."""

    def __init__(self) -> None:
        self._chosen: dict[str, tuple[int, ...]] = {}

    def choose(self, pool: str, numbers: tuple[int, ...]) -> None:
        """Set the replicas of a pool."""
        self._chosen[pool] = numbers

    def of(self, pool: str, config: RuntimeConfig) -> tuple[int, ...]:
        """The replicas of a pool, within the bounds of its section."""
        return within(self._chosen.get(pool, ()), config.replicas.min, config.replicas.most)


def within(numbers: tuple[int, ...], least: int, most: int) -> tuple[int, ...]:
    """The first `most` of the numbers, with the lowest free numbers added up to `least`."""
    remaining = sorted(numbers)[:most]
    free = (number for number in count() if number not in remaining)
    return tuple(sorted((*remaining, *islice(free, max(0, least - len(remaining))))))


def write(folder: Path, functions: Iterable[CallConfig]) -> None:
    """Write the repository: the text of each file as it was loaded, and its configuration."""
    for function in functions:
        version = folder / function.receiver / "1"
        version.mkdir(parents=True)
        assert function.file is not None
        (version / SOURCE).write_text(function.file.text)
        # JSON is YAML
        (version.parent / "model.yaml").write_bytes(msgspec.json.encode(_configuration(function, function.file.path)))


def _configuration(function: CallConfig, path: str) -> dict[str, Any]:
    parameters = {"class": WRAPPER, "function": function.function, "path": path}
    if function.memory is not None:
        parameters["memory_limit"] = str(function.memory)
    return {
        "backend": "python",
        "inputs": [_tensor_config(each) for each in function.inputs],
        "outputs": [_tensor_config(each) for each in function.outputs],
        "instances": [{"count": function.processes, "placement": "process"}],
        "execution_timeout": f"{function.timeout}s",
        "parameters": parameters,
    }


def _tensor_config(tensor: PipelineTensorConfig) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "dims": tensor.shape}


class Ports:
    """Reserved ports. Each is reserved from `take` to `give_back`, whether its owner listens or not."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """Reserve a port that no process listens on. Raises `CannotLaunch`."""
        for _ in range(ATTEMPTS):
            port = random.choice(CHOICES)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        raise CannotLaunch(f"no port from {CHOICES[0]} to {CHOICES[-1]} is free")

    def give_back(self, ports: Iterable[int]) -> None:
        """Release reserved ports."""
        self._taken.difference_update(ports)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class LocalRuntimes:
    """Starts each runtime as a child process, with its socket in a folder that only this user can enter, or in the Ray
    cluster of its section."""

    def __init__(self) -> None:
        self.numbers = ReplicaNumbers()
        self.clusters = RayClusters()
        self._made: set[LocalRuntime] = set()
        """The runtimes that have not been stopped to the end."""
        self._folder = TemporaryFolder()
        self._ports = Ports()

    def replicas(self, name: str, config: RuntimeConfig) -> Mapping[int, str]:
        """The replicas of a pool that should run. Their addresses are not known before they are made."""
        return dict.fromkeys(self.numbers.of(name, config), "")

    def make(self, name: str, config: RuntimeConfig, on_exit: OnExit, number: int = 0) -> OwnRuntime:
        """Create a replica of the runtime of a pool. Raises `CannotLaunch`."""
        if isinstance(config, PlacedRuntime) and config.on == "ray":
            return self.clusters.make(name, config, on_exit, number)
        return self._child(name, config, on_exit, number)

    def _child(self, name: str, config: RuntimeConfig, on_exit: OnExit, number: int) -> "LocalRuntime":
        place = place_of(config, number)
        socket = Path(self._folder.name) / f"{name.replace('/', '_')[:32]}-{os.urandom(3).hex()}.sock"
        ports: list[int] = []

        def port() -> int:
            ports.append(self._ports.take())
            return ports[-1]

        release: Callable[[], None] = partial(self._ports.give_back, ports)
        try:
            if isinstance(config, CodeRuntime):
                folder = socket.with_suffix(".models")
                write(folder, config.functions)
                launch = _ours(config, _of_code(socket, folder), socket, place)
                release = partial(shutil.rmtree, folder, ignore_errors=True)
            elif not isinstance(config, ProgramRuntime):
                launch = _ours(config, command(name, config, socket, place), socket, place)
            else:
                launch = program_launch(name, config, socket, port, place)
        except BaseException:
            self._ports.give_back(ports)
            raise
        runtime = LocalRuntime(name, config, launch, on_exit, lambda: self._ended(runtime, release), number, place)
        self._made.add(runtime)
        return runtime

    def occupies(self, pool: str) -> bool:
        """Whether a process of a pool's runtime runs, or has not ended yet."""
        return any(runtime.name == pool for runtime in self._made) or self.clusters.occupies(pool)

    def _ended(self, runtime: "LocalRuntime", release: Callable[[], None]) -> None:
        self._made.discard(runtime)
        release()

    async def leave(self) -> None:
        """Let go of the replicas in Ray clusters: they outlive the gateway for a while, for the next one."""
        await self.clusters.aclose()

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
        number: int = 0,
        place: Place = EVERYWHERE,
    ) -> None:
        self.name = name
        self.number = number
        self.config = config
        self.place = place
        self.address = launch.address
        self.restarts = 0
        self._ends = 0
        """Ends in a row, each soon after a start."""
        self._last_end = ""
        self._launch = launch
        self._on_exit = on_exit
        self._release = release
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the child; None without a child."""
        return self._process.pid if self._process is not None else None

    @property
    def label(self) -> str:
        """Its name for operators."""
        return self.name if self.config.replicas.most == 1 else f"{self.name}/{self.number}"

    @property
    def failing(self) -> str:
        """How it ended the last time, while each start ends soon; else empty."""
        return self._last_end if self._ends >= CRASH_LOOP else ""

    def start(self) -> None:
        """Start the child and keep it running until `stop`."""
        self._task = asyncio.create_task(lasting(name := f"runtime {self.label}", self._supervise), name=name)

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = FIRST_BACKOFF
        while True:
            started = loop.time()
            reason = await self._run_once()
            if loop.time() - started > STABLE_SECONDS:
                backoff, self._ends = FIRST_BACKOFF, 0
            self._ends, self._last_end = self._ends + 1, reason
            self._report(backoff)
            self._on_exit(reason)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)
            self.restarts += 1

    def _report(self, backoff: float) -> None:
        """Log an end. A crash loop is reported once."""
        if self._ends < CRASH_LOOP:
            log.warning("runtime %s %s; restart in %.1f s", self.label, self._last_end, backoff)
        elif self._ends == CRASH_LOOP:
            message = (
                "runtime %s %s, %d times in a row; it is started again at least every %g s, without further reports"
            )
            log.error(message, self.label, self._last_end, CRASH_LOOP, LONGEST_BACKOFF)

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
        self._pin(process.pid)
        if self._ends < CRASH_LOOP:
            log.info("runtime %s started, pid %d", self.label, process.pid)
        try:
            code = await process.wait()
        finally:
            if process.returncode is not None:
                self._process = None
                _kill_group(process.pid)
        return f"ended with status {code}" if code >= 0 else f"was killed by signal {-code}"

    def _pin(self, pid: int) -> None:
        """Restrict the child to its cores before it starts a thread or a process."""
        if self.place.cores:
            with contextlib.suppress(OSError):  # it has ended, or the cores were removed: it runs where it can
                os.sched_setaffinity(pid, self.place.cores)

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
                log.warning("runtime %s does not stop; killed", self.label)
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


def _ours(config: RuntimeConfig, line: list[str], socket: Path, place: Place) -> Launch:
    env = environment(os.environ, {**place.variables(config), **config.env}, config)
    return Launch(line, f"unix:{socket}", STOP_SECONDS, env)


def command(name: str, config: RuntimeConfig, socket: Path, place: Place = EVERYWHERE) -> list[str]:
    """The child's command line."""
    line = [sys.executable, "-m", f"runtimes.{config.kind}", "--socket", str(socket), "--exit-with-parent"]
    if isinstance(config, LlmRuntime):
        return line + llm_arguments(name, config, len(place.cores))
    assert isinstance(config, TensorRuntime)
    return line + tensor_arguments(config)


def _of_code(socket: Path, folder: Path) -> list[str]:
    line = [sys.executable, "-m", "runtimes.tensor", "--socket", str(socket), "--exit-with-parent"]
    return [*line, "--repository", str(folder)]
