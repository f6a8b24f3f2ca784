"""Measures the cost of `record`, on one machine, in one run: `python -m loadtests.bench_recording --help`.

Gateways without a recorder, and with one that records every request, without and with answers, are measured in
interleaved rounds over the upstream of `bench_gateway`. CPU time of a gateway includes its writes behind requests.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from loadtests import native, rounds
from loadtests.bench_gateway import UPSTREAM, Bench, progress, two_cores
from loadtests.headrace import config, create_key
from loadtests.servers import Gateway, Launch, Site, Target, free_port
from loadtests.workloads import Figure, Generator, Point, Workload, closed

VARIANTS: dict[str, dict[str, Any] | None] = {
    "off": None,
    "requests": {"share": "100%"},
    "with-answers": {"share": "100%", "answers": True},
    "one-percent": {"share": "1%"},
}
CPU = Figure("cpu_us", lambda load, cpu: cpu / load.completed * 1e6)
SERIAL = closed(1, CPU)
SEVERAL = closed(16, CPU)


def launch(record: dict[str, Any] | None, site: Site, python: Path) -> Launch:
    """A gateway with these settings of `record`, or none."""
    written = config(site, free_port())
    if record is not None:
        written["record"] = {"to": str(site.folder / "traffic"), "key": "file:record.key", **record}
        (site.folder / "record.key").write_text("a key for measurements")
    file = site.folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


def table(workload: Workload, accepted: Sequence[rounds.Round]) -> str:
    """Medians over the rounds, with the smallest and the largest value; differences from `off` in the same round."""
    lines = [f"{workload.name}: median (least to most) of {len(accepted)} rounds"]
    for figure in workload.figures:
        for name in VARIANTS:
            values = [one[name][figure.name] for one in accepted]
            extra = statistics.median(one[name][figure.name] - one["off"][figure.name] for one in accepted)
            spread = f"{statistics.median(values):9.1f} ({min(values):.1f} to {max(values):.1f})"
            lines.append(f"  {figure.name:8} {name:22} {spread}, {extra:+.1f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all rounds and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_recording", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args(argv)
    gateway_core, load_core = two_cores()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        generator = Generator(native.build("load"), load_core, Path(name))
        bench = Bench(stack, Path(name), gateway_core, generator)
        direct, expected = bench.upstream(UPSTREAM.prepare())
        made = [Gateway(each, lambda: Path(sys.executable), partial(launch, VARIANTS[each])) for each in VARIANTS]
        targets = [bench.gateway(gateway, gateway.prepare(), direct, expected) for gateway in made]
        for workload in (SERIAL, SEVERAL):

            def point(target: Target, workload: Workload = workload) -> Point:
                return generator.measure(workload, target, options.seconds)

            done = rounds.run(targets, options.rounds, point, float("inf"), lambda: progress("again"))
            print(table(workload, done.accepted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
