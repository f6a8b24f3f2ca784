"""Compare our HTTP/1.1 and gRPC with aiohttp, httpx and grpc.aio: `python -m loadtests.bench_transports --help`.

Each transport sends or serves the same echo of 1 KiB. Clients are measured against our server, servers with our client,
and all in turn, round after round, so that a slow moment of the machine meets all of them. CPU is that of the process
with the transport, per request.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from loadtests.figures.cpu import PROC, parse_schedstat


class Case(NamedTuple):
    """One transport in one role."""

    role: str
    name: str
    server: str
    client: str
    baseline: bool = False

    @property
    def family(self) -> tuple[str, bool]:
        """Cases that are compared: of one role and one protocol."""
        return self.role, self.client.startswith("grpc")


class Point(NamedTuple):
    """One round of a case."""

    cpu_us: float
    """Microseconds of CPU per request."""
    rps: float


CASES = (
    Case("upstream side (client)", "ours, HTTP/1.1", "http1", "http1", True),
    Case("upstream side (client)", "aiohttp", "http1", "aiohttp"),
    Case("upstream side (client)", "httpx", "http1", "httpx"),
    Case("front side (server)", "ours, HTTP/1.1", "http1", "http1", True),
    Case("front side (server)", "aiohttp", "aiohttp", "http1"),
    Case("upstream side (client)", "ours, gRPC", "grpc", "grpc", True),
    Case("upstream side (client)", "grpc.aio", "grpc", "grpc.aio"),
    Case("front side (server)", "ours, gRPC", "grpc", "grpc", True),
    Case("front side (server)", "grpc.aio", "grpc.aio", "grpc"),
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_transports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all cases (5)")
    parser.add_argument("--count", type=int, default=20_000, help="requests of each point (20000)")
    parser.add_argument("--callers", type=int, default=32, help="requests at a time (32)")
    parser.add_argument("--markdown", type=Path, help="a file for the table of docs/performance.md")
    return parser.parse_args(argv)


@contextmanager
def program(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program that runs until the block ends."""
    command = [sys.executable, "-m", f"loadtests.transports.{module}", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a program prints. Raises `RuntimeError` if it ends instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with status {process.wait()}")
    return line.strip()


def cpu_of(pid: int) -> float:
    """CPU seconds of all threads of a process."""
    return sum(parse_schedstat((task / "schedstat").read_text()) for task in (PROC / str(pid) / "task").iterdir())


def measure(case: Case, count: int, callers: int) -> Point:
    """One round of one case, with processes of its own."""
    with program("servers", case.server) as server:
        port = line_of(server)
        with program("clients", case.client, port, str(count), str(callers)) as client:
            assert client.stdin is not None
            assert line_of(client) == "warm"
            before = cpu_of(server.pid)
            client.stdin.write("\n")
            client.stdin.flush()
            result = json.loads(line_of(client))
            served = cpu_of(server.pid) - before
    cpu = served if case.role.startswith("front") else result["cpu"]
    done = count // callers * callers
    return Point(cpu / done * 1e6, done / result["seconds"])


def table(points: dict[Case, list[Point]]) -> str:
    """The results as a table of Markdown: medians, and CPU divided by that of ours in the same round."""
    lines = [
        "| role | transport | CPU per request, µs | requests per s | CPU, relative to ours |",
        "|---|---|---|---|---|",
    ]
    for case, rounds in points.items():
        (ours,) = [other for other in points if other.baseline and other.family == case.family]
        ratios = sorted(point.cpu_us / base.cpu_us for point, base in zip(rounds, points[ours], strict=True))
        cpu, rps = median(point.cpu_us for point in rounds), median(point.rps for point in rounds)
        spread = "1" if case.baseline else f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        lines.append(f"| {case.role} | {case.name} | {cpu:.1f} | {rps:,.0f} | {spread} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    options = parse(argv)
    points: dict[Case, list[Point]] = {case: [] for case in CASES}
    for number in range(options.rounds):
        # The order turns from round to round: none is always behind the same neighbour.
        first = number % len(CASES)
        for case in CASES[first:] + CASES[:first]:
            points[case].append(measure(case, options.count, options.callers))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    written = table(points)
    print(written)
    if options.markdown is not None:
        options.markdown.write_text(written)


if __name__ == "__main__":
    main()
