"""A server that can be killed and started again where it was."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.figures.cpu import processes, tree
from loadtests.servers import REPOSITORY, Launch, StartError, environment, log_tail
from loadtests.tensors.targets import is_ready

START_TIMEOUT_S = 600.0
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class System:
    """The installation and the start of a server. `launch` gets its folder, its ports and what `install` gave.

    `ready` is a path at the first port that is answered with 200 once it answers.
    """

    name: str
    install: Callable[[], Path]
    launch: Callable[[Path, Sequence[int], Path], Launch]
    ready: str
    ports: int = 1


class Member:
    """One running server, with its children."""

    def __init__(self, system: System, folder: Path, ports: Sequence[int]) -> None:
        self.name = system.name
        self.ports = tuple(ports)
        self.kills = 0
        self._system = system
        self._folder = folder
        self._installed = system.install()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, port: int = 0) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def start(self) -> None:
        """In a folder of its own each time: files of a killed server are not reused."""
        home = self._folder / f"{self.name}-{self.kills}"
        home.mkdir()
        launch = self._system.launch(home, self.ports, self._installed)
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                launch.command, cwd=REPOSITORY, env=environment(launch.env), stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    async def until_ready(self) -> None:
        """Raises `StartError`."""
        end = time.monotonic() + START_TIMEOUT_S
        while not await asyncio.to_thread(is_ready, self.ports[0], self._system.ready):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise StartError(f"{self.name} is not ready:\n{log_tail(self.name, self._folder)}")
            await asyncio.sleep(POLL_S)

    def kill(self) -> None:
        """At once, and everything that it has started."""
        if self._process is None:
            return
        for pid in tree(self._process.pid, processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        self.kills += 1
