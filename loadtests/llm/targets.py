"""Servers that run side by side, one of them awake at a time: the others are stopped by signal, so that their
work at rest costs no measurement."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from loadtests.figures.cpu import Meter, Usage, processes, resident_bytes, tree
from loadtests.llm.client import Door, Load, run
from loadtests.llm.workloads import Word, Workload
from loadtests.servers import Launch, StartError, child, log_tail

START_TIMEOUT_S = 300.0
POLL_S = 0.1
TIMEOUT_S = 10
AGAIN = Workload("again", 2, 2, prompt=(64, 64), answer=(16, 16))
"""The load before each measurement of a server."""


class Part(NamedTuple):
    """The part of a workload for a slow server."""

    requests: int
    at_once: int


@dataclass(frozen=True, slots=True)
class Target:
    """A running server. `pids`: itself and the servers behind it. `parts`: None is every workload, whole."""

    name: str
    door: Door
    pids: tuple[int, ...]
    parts: Mapping[str, Part] | None = None
    has_adapters: bool = False
    """Whether it serves those of the workloads."""

    def part(self, workload: Workload, most: int | None = None) -> Part | None:
        """Its part of a workload; None for none."""
        if workload.adapters and not self.has_adapters:
            return None
        whole = Part(workload.requests, workload.at_once)
        part = whole if self.parts is None else self.parts.get(workload.name)
        return part and Part(part.requests if most is None else min(part.requests, most), part.at_once)

    def processes(self) -> set[int]:
        """Every process of it, children too."""
        table = processes()
        return {pid for root in self.pids for pid in tree(root, table)}

    def resident_bytes(self) -> int:
        return sum(resident_bytes(pid) for pid in self.pids)


def signal_all(target: Target, number: int) -> None:
    """To every process of it."""
    for pid in target.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def awake(target: Target) -> Iterator[None]:
    """For as long as this lasts it runs; after it, it is stopped."""
    signal_all(target, signal.SIGCONT)
    try:
        yield
    finally:
        signal_all(target, signal.SIGSTOP)


@contextlib.contextmanager
def running(name: str, launch: Launch, port: int, core: str, folder: Path, *, path: str = "/health") -> Iterator[int]:
    """A server that answers at `path`; its process. Stopped at the end, whether or not it was awake.

    Raises:
        StartError: it ended, or was not ready within ``START_TIMEOUT_S``.
    """
    home = folder / name
    home.mkdir()
    with child(name, launch, core, home) as process:
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not is_ready(port, path):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise StartError(f"{name} is not ready:\n{log_tail(name, home)}")
                time.sleep(POLL_S)
            yield process.pid
        finally:
            for pid in tree(process.pid, processes()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def is_ready(port: int, path: str) -> bool:
    """Whether a GET is answered well."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def warm_up(target: Target, words: Sequence[Word], workloads: Sequence[Workload], most: int | None = None) -> list[str]:
    """A little of each workload, before anything counts; what went wrong."""
    wrong: list[str] = []
    for workload in workloads:
        if (part := target.part(workload, most)) is not None:
            prompts = workload.build(words, f"warm {target.name}", min(part.requests, max(part.at_once, 2)))
            wrong += run(target.door, prompts, part.at_once).failed
    return wrong


class Measured(NamedTuple):
    """One point: the client's measurements, and the server's use of resources."""

    load: Load
    usage: Usage
    resident_bytes: int


def measure(target: Target, workload: Workload, part: Part, words: Sequence[Word], seed: str) -> Measured:
    """One workload, after two short requests by which the server finds its pages and caches again."""
    run(target.door, AGAIN.build(words, seed), AGAIN.at_once)
    prompts = workload.build(words, seed, part.requests)
    meters = [Meter.start(pid) for pid in target.pids]
    load = run(target.door, prompts, part.at_once)
    used = [meter.stop() for meter in meters]
    cpu = Usage(sum(one.cpu_s for one in used), used[0].foreign_cores)
    return Measured(load, cpu, target.resident_bytes())
