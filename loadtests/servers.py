"""A server under test: pinned to a core, ready when it answers, stopped with all its children."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from loadtests.gateways.replies import chat_body, post

REPOSITORY = Path(__file__).parents[1]
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.1
STARTED: Counter[str] = Counter()
"""How often each server was started here, by name."""


class StartError(Exception):
    """A server did not come up; the message holds the end of its log."""


class Site(NamedTuple):
    """Where a server is to live: a folder of its own, its port, and the upstream's."""

    folder: Path
    port: int
    upstream: int

    @property
    def endpoints(self) -> tuple[str, str]:
        """The upstream by two addresses, so that there is something to balance."""
        return f"127.0.0.1:{self.upstream}", f"127.0.0.2:{self.upstream}"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started. ``key`` is the API key that it checks; empty where it checks none.

    ``headers`` go with every request to it.
    """

    command: Sequence[str]
    key: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gateway:
    """Something that stands between clients and the upstream, ours or another's.

    ``prepare`` makes it available and returns the program or environment that ``launch`` needs.
    ``verbatim``: replies pass through byte for byte. ``refusal``: its status for a wrong key.
    ``slow``: left out of what it cannot sustain.
    """

    name: str
    prepare: Callable[[], Path]
    launch: Callable[[Site, Path], Launch]
    verbatim: bool = True
    refusal: int = 401
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A running server: where load is sent, and the process whose CPU is counted."""

    gateway: Gateway
    port: int
    pid: int
    key: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As in tables and in the JSON line."""
        return self.gateway.name


def free_port() -> int:
    """A TCP port of loopback that is free at this moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, but with bytecode on: no Python server is run for real without it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**env, **(extra or {})}


@contextlib.contextmanager
def child(name: str, launch: Launch, core: int | str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process (and all its threads and children), its output in ``NAME.log``; stopped at the end.

    It has one core, or a list of them such as `0-3`.
    """
    STARTED[name] += 1
    command = ["taskset", "--cpu-list", str(core), *launch.command]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment(launch.env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminates the process, then kills the rest of its session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def running(gateway: Gateway, installed: Path, upstream: int, core: int | str, folder: Path) -> Iterator[Target]:
    """Starts a gateway, waits until it answers a real request, and stops it at the end.

    Raises:
        StartError: it ended, or did not answer 200 within ``START_TIMEOUT_S``.
    """
    home = folder / gateway.name
    home.mkdir()
    site = Site(home, free_port(), upstream)
    launch = gateway.launch(site, installed)
    with child(gateway.name, launch, core, home) as process:
        await_answer(gateway.name, process, site, launch)
        yield Target(gateway, site.port, process.pid, launch.key, launch.headers)


def await_answer(name: str, process: subprocess.Popen[bytes], site: Site, launch: Launch) -> None:
    """Returns once the server answers 200; there is no other sign of readiness that all of them have."""
    deadline, last = time.monotonic() + START_TIMEOUT_S, "no answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartError(f"{name} ended with status {process.returncode}:\n{log_tail(name, site.folder)}")
        try:
            reply = post(site.port, launch.key, chat_body(stream=False), launch.headers)
        except (OSError, HTTPException):
            time.sleep(POLL_S)
            continue
        if reply.status == 200:
            return
        last = f"last answer {reply.status} {reply.body[:200]!r}"
        time.sleep(POLL_S)
    raise StartError(f"{name} did not answer within {START_TIMEOUT_S:.0f} s, {last}:\n{log_tail(name, site.folder)}")


def log_tail(name: str, folder: Path, lines: int = 15) -> str:
    """The last lines that a server wrote."""
    return "\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
