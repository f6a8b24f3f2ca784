"""CPU time from /proc: what a gateway used, and what the rest of the machine used meanwhile.

``schedstat`` counts nanoseconds on the CPU and is read for every thread of the process tree, since clock
ticks (10 ms) are too coarse for a gateway that needs 10 µs a request. For everything foreign, ticks do.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Self

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One process: its parent, and the CPU seconds of itself and the children it has reaped."""

    parent: int
    cpu_s: float


def parse_stat(text: str) -> Process:
    """``/proc/PID/stat``. The command may hold spaces and brackets, so fields count from its last ``)``."""
    fields = text.rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])  # utime stime cutime cstime
    return Process(int(fields[1]), ticks / TICKS_PER_SECOND)


def parse_schedstat(text: str) -> float:
    """``/proc/PID/task/TID/schedstat`` → seconds on the CPU."""
    return int(text.split()[0]) / 1e9


def processes() -> dict[int, Process]:
    """Every process that is visible now."""
    result = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            result[int(path.parent.name)] = parse_stat(path.read_text())
        except (FileNotFoundError, ProcessLookupError):  # it ended between the listing and the read
            continue
    return result


def tree(root: int, table: Mapping[int, Process]) -> set[int]:
    """``root`` and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    result, todo = set(), [root]
    while todo:
        pid = todo.pop()
        result.add(pid)
        todo += children.get(pid, ())
    return result


def foreign_s(root: int, table: Mapping[int, Process]) -> float:
    """CPU seconds so far of all that does not descend from ``root``.

    A process that ends is not lost: its time moves to the parent that reaps it.
    """
    own = tree(root, table)
    return sum(process.cpu_s for pid, process in table.items() if pid not in own)


def resident_bytes(root: int) -> int:
    """Memory in RAM of a process and all its descendants; pages that they share count for each."""
    total = 0
    for pid in tree(root, processes()):
        try:
            pages = int((PROC / str(pid) / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += pages * PAGE
    return total


def thread_times(pids: Iterable[int]) -> dict[tuple[int, int], float]:
    """Seconds on the CPU so far, for each (process, thread)."""
    times = {}
    for pid in pids:
        for path in PROC.glob(f"{pid}/task/*/schedstat"):
            try:
                times[pid, int(path.parent.name)] = parse_schedstat(path.read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return times


def spent_s(before: Mapping[tuple[int, int], float], after: Mapping[tuple[int, int], float]) -> float:
    """Seconds between two readings; a thread that began in between counts whole."""
    return sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())


@dataclass(frozen=True, slots=True)
class Usage:
    """The CPU use of a period: of the measured process tree, and the cores that foreign processes used."""

    cpu_s: float
    foreign_cores: float


@dataclass(frozen=True, slots=True)
class Meter:
    """A stretch of time that has begun; our own processes are this one and its descendants."""

    root: int
    threads: Mapping[tuple[int, int], float]
    foreign: float
    began: float

    @classmethod
    def start(cls, root: int) -> Self:
        """Begins to measure the tree of process ``root``."""
        table = processes()
        return cls(root, thread_times(tree(root, table)), foreign_s(os.getpid(), table), monotonic())

    def stop(self) -> Usage:
        """Ends the stretch."""
        table = processes()
        wall = max(monotonic() - self.began, 1e-9)
        foreign = max(foreign_s(os.getpid(), table) - self.foreign, 0.0)
        return Usage(spent_s(self.threads, thread_times(tree(self.root, table))), foreign / wall)
