"""Throughput with one worker and with several: `python -m loadtests.bench_workers --help`.

Gateway, load generator and upstream share all cores, so the result is shown beside the bound of the cores.
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from loadtests import native
from loadtests.bench_gateway import UPSTREAM, Bench, progress
from loadtests.figures.cpu import Meter
from loadtests.figures.rounds import in_order
from loadtests.gateways.headrace import launch_headrace
from loadtests.gateways.replies import CheckError
from loadtests.gateways.workloads import Generator, LoadError, closed
from loadtests.servers import Gateway, StartError, Target

LOAD = closed(128)


class Point(NamedTuple):
    """One round of one target. CPU is in seconds for each request."""

    rps: float
    gateway_cpu: float
    bench_cpu: float


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ``workers`` is returned as numbers."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_workers", description=__doc__)
    parser.add_argument("--workers", type=_numbers, default=[1, 2], help="how many, each beside the others (1,2)")
    parser.add_argument("--rounds", type=int, default=5, help="times that each is measured (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one point (3)")
    return parser.parse_args(argv)


def _numbers(text: str) -> list[int]:
    return sorted({int(number) for number in text.split(",")})


def gateway(workers: int) -> Gateway:
    """Ours, with so many."""
    return Gateway(f"headrace-{workers}", lambda: Path(sys.executable), partial(launch_headrace, workers=workers))


def measure(target: Target, direct: Target, generator: Generator, seconds: float) -> Point:
    """Raises `LoadError` when an answer was wrong or missing."""
    ours, mock, children = Meter.start(target.pid), Meter.start(direct.pid), _children_s()
    load = generator.run(LOAD, target, seconds)
    used, mocked = ours.stop().cpu_s, mock.stop().cpu_s
    if load.completed != load.sent:
        raise LoadError(f"{target.name}: {load.completed} of {load.sent} answers right")
    return Point(load.in_time / load.seconds, used / load.sent, (mocked + _children_s() - children) / load.sent)


def _children_s() -> float:
    """CPU of children that have ended: the load generator's."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def bound(workers: int, cores: int, gateway_cpu: float, bench_cpu: float) -> float:
    """The most requests a second that these cores allow."""
    return min(workers / gateway_cpu, cores / (gateway_cpu + bench_cpu))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison. Status 1 when something could not be measured."""
    options = parse(argv)
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    seen: dict[int, list[Point]] = {number: [] for number in options.workers}
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
            generator = Generator(native.build("load"), cores, Path(name))
            bench = Bench(stack, Path(name), cores, generator)
            direct, expected = bench.upstream(UPSTREAM.prepare())
            made = {number: gateway(number) for number in options.workers}
            targets = {number: bench.gateway(one, one.prepare(), direct, expected) for number, one in made.items()}
            for index in range(options.rounds):
                for target in in_order(list(targets.values()), index):
                    point = measure(target, direct, generator, options.seconds)
                    progress(f"{target.name}: {point.rps:,.0f} requests a second")
                    next(seen[n] for n, t in targets.items() if t is target).append(point)
    except (StartError, CheckError, LoadError, native.BuildError) as error:
        progress(f"error: {error}")
        return 1
    report(seen, len(os.sched_getaffinity(0)))
    return 0


def report(seen: dict[int, list[Point]], cores: int) -> None:
    """The table, and the JSON line as the last of the output."""
    table = Table(title=f"{cores} cores for gateway, load and upstream together; medians of the rounds")
    for column in ("workers", "requests/s", "÷ first", "cores allow ÷ first", "gateway µs", "load and upstream µs"):
        table.add_column(column, justify="right")
    first, *_ = seen
    ratios: dict[str, float] = {}
    for number, points in seen.items():
        rps, ours, rest = (median(values) for values in zip(*points, strict=True))
        ratio = median(one.rps / other.rps for one, other in zip(points, seen[first], strict=True))
        allowed = bound(number, cores, ours, rest) / bound(first, cores, *_costs(seen[first]))
        table.add_row(
            str(number), f"{rps:,.0f}", f"{ratio:.2f}", f"{allowed:.2f}", f"{ours * 1e6:.0f}", f"{rest * 1e6:.0f}"
        )
        ratios |= {f"rps/{number}_workers_to_{first}": ratio, f"rps_bound/{number}_workers_to_{first}": allowed}
    Console(width=120).print(table)
    print(json.dumps({"ratios": ratios, "cores": cores}))


def _costs(points: Sequence[Point]) -> tuple[float, float]:
    return median(point.gateway_cpu for point in points), median(point.bench_cpu for point in points)


if __name__ == "__main__":
    sys.exit(main())
