"""The workloads of every target, and the resulting figures.

The names of figures are the keys of the benchmark's JSON line. An *added* latency is the target's less
that of the direct path to the upstream, in the same round.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from loadtests.figures.cpu import Meter
from loadtests.servers import Target

CHUNKS = 64  # tokens of a streamed answer, and
GAP_US = 10_000  # the time between them: without one, chunks coalesce and the figure ranks nothing
MIN_ARRIVALS = 300  # of an open-loop point, or its p99 is a matter of one request
EXPECTED = "expected.json"  # file with the upstream's own answer
GRACE_S = 60.0  # beyond the requested time; load.c itself waits 30 s at most for the last answers


class LoadError(Exception):
    """The load generator failed; the message holds its output."""


class Spread(NamedTuple):
    """Percentiles in microseconds."""

    p50: float
    p99: float
    p100: float


@dataclass(frozen=True, slots=True)
class Load:
    """What ``load.c`` saw. ``in_time`` are the answers completed before the end of ``seconds``."""

    seconds: float
    sent: int
    completed: int
    in_time: int
    failed: int
    tokens: int
    latency_us: Spread | None
    transit_us: Spread | None
    first_token_us: Spread | None


def parse_load(text: str) -> Load:
    """The JSON line of ``load.c``."""
    seen = json.loads(text)
    for name in ("latency_us", "transit_us", "first_token_us"):
        seen[name] = Spread(**seen[name]) if seen[name] else None
    return Load(**seen)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about one target: from the load's report and the CPU seconds of the target's processes."""

    name: str
    of: Callable[[Load, float], float]
    added: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of load. ``heavy``: beyond what a slow gateway sustains, so that one is left out."""

    name: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]
    rate: float | None = None
    heavy: bool = False

    def seconds(self, requested: float) -> float:
        """How long a point lasts."""
        return requested if self.rate is None else max(requested, MIN_ARRIVALS / self.rate)

    @property
    def stream(self) -> bool:
        """Whether responses are SSE."""
        return self.arguments[0] == "stream"


def closed(connections: int, *more: Figure) -> Workload:
    """Every connection always has one request in flight."""
    rps = Figure(f"rps_{connections}", lambda load, _: load.in_time / load.seconds)
    arguments = ("closed", "--connections", str(connections))
    return Workload(f"closed{connections}", arguments, (*more, rps))


def open_loop(rate: int, *, heavy: bool = False) -> Workload:
    """Poisson arrivals, independent of the target."""
    figures = (
        Figure(f"added_p50_ms_{rate}rps", milliseconds("latency_us", "p50"), added=True),
        Figure(f"added_p99_ms_{rate}rps", milliseconds("latency_us", "p99"), added=True),
    )
    arguments = ("open", "--connections", "64", "--rate", str(rate))
    return Workload(f"open{rate}", arguments, figures, rate, heavy)


def streams(connections: int, *, heavy: bool = False) -> Workload:
    """Streams side by side, each a chunk every ``GAP_US``."""
    figures = (
        Figure(
            f"cpu_s_per_1k_chunks_{connections}",
            lambda load, cpu_s: 1000 * cpu_s / max(load.tokens, 1),
        ),
        Figure(f"added_first_chunk_p50_ms_{connections}", milliseconds("first_token_us", "p50"), added=True),
        Figure(f"added_chunk_p50_ms_{connections}", milliseconds("transit_us", "p50"), added=True),
        Figure(f"added_chunk_p99_ms_{connections}", milliseconds("transit_us", "p99"), added=True),
    )
    arguments = ("stream", "--connections", str(connections), "--tokens", str(CHUNKS))
    return Workload(f"stream{connections}", arguments, figures, heavy=heavy)


def milliseconds(field: str, percentile: str) -> Callable[[Load, float], float]:
    """Reads a percentile of a load's report in milliseconds."""

    def read(load: Load, _cpu_s: float) -> float:
        value: float = getattr(getattr(load, field), percentile)
        return value / 1000

    return read


CPU = Figure("cpu_s_per_1k_requests", lambda load, cpu_s: 1000 * cpu_s / max(load.completed, 1))
WORKLOADS = {
    workload.name: workload
    for workload in (
        closed(32, CPU),
        closed(128),
        open_loop(200, heavy=True),
        open_loop(50),
        streams(64, heavy=True),
        streams(8),
    )
}


def request_file(target: Target, *, stream: bool) -> str:
    """The name of the file that holds the request for one target: they differ in the key alone."""
    return f"{target.name}-{'stream' if stream else 'plain'}.http"


class Point(NamedTuple):
    """One workload against one target, once. Without figures where any answer was wrong."""

    figures: dict[str, float]
    failed: int
    foreign_cores: float


@dataclass(frozen=True, slots=True)
class Generator:
    """The compiled load generator, the core it runs on, and where its request files lie."""

    program: Path
    core: int | str
    folder: Path

    def run(self, workload: Workload, target: Target, seconds: float) -> Load:
        """Sends one point of load.

        Raises:
            LoadError: the generator could not connect, or did not end.
        """
        files = ["--request", str(self.folder / request_file(target, stream=workload.stream))]
        if target.gateway.verbatim and not workload.stream:
            files += ["--expect", str(self.folder / EXPECTED)]
        where = ["--port", str(target.port), "--seconds", str(seconds)]
        return self._run([*workload.arguments, *where, *files], seconds + GRACE_S)

    def _run(self, arguments: Sequence[str], timeout: float) -> Load:
        command = ["taskset", "--cpu-list", str(self.core), str(self.program), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise LoadError(f"load did not end within {timeout:.0f} s: {' '.join(arguments)}") from None
        if done.returncode:
            raise LoadError(f"load {' '.join(arguments)}: {done.stderr.strip()}")
        return parse_load(done.stdout)

    def measure(self, workload: Workload, target: Target, requested_s: float) -> Point:
        """One point: the load, with the target's CPU and that of foreign processes around it."""
        meter = Meter.start(target.pid)
        load = self.run(workload, target, workload.seconds(requested_s))
        usage = meter.stop()
        wrong = load.sent - load.completed  # failed, or still unanswered when load.c gave up
        if wrong:
            return Point({}, wrong, usage.foreign_cores)
        figures = {figure.name: figure.of(load, usage.cpu_s) for figure in workload.figures}
        return Point(figures, 0, usage.foreign_cores)
