"""Measures the CPU time of variants of one configuration, in interleaved rounds over the upstream of `bench_gateway`.

CPU time of a gateway includes its work behind requests: writes and exports.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from loadtests import native
from loadtests.bench_gateway import UPSTREAM, Bench, progress, two_cores
from loadtests.figures import rounds
from loadtests.gateways.headrace import config, create_key
from loadtests.gateways.workloads import Figure, Generator, Point, Workload, closed, milliseconds, open_loop
from loadtests.servers import Gateway, Launch, Site, Target, free_port

Change = Callable[[dict[str, Any], Path], None]
"""Changes a configuration; its files are in the folder."""
CPU = Figure("cpu_us", lambda load, cpu: cpu / load.completed * 1e6)
LATENCIES = (
    Figure("p50_ms", milliseconds("latency_us", "p50")),
    Figure("p99_ms", milliseconds("latency_us", "p99")),
)
CHUNK_CPU = Figure("chunk_us", lambda load, cpu: cpu / max(load.tokens, 1) * 1e6)
WORKLOADS = (closed(1, CPU), closed(16, CPU), replace(open_loop(200), figures=LATENCIES))


def launch(change: Change, env: Mapping[str, str], site: Site, python: Path) -> Launch:
    """A gateway with a variant of the configuration or of the environment."""
    written = config(site, free_port())
    change(written, site.folder)
    file = site.folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file), env)


def table(workload: Workload, names: Sequence[str], accepted: Sequence[rounds.Round]) -> str:
    """Medians over the rounds, with the smallest and the largest value; differences from the first variant in the same
    round."""
    lines = [f"{workload.name}: median (least to most) of {len(accepted)} rounds"]
    for figure in workload.figures:
        for name in names:
            values = [one[name][figure.name] for one in accepted]
            extra = statistics.median(one[name][figure.name] - one[names[0]][figure.name] for one in accepted)
            share = statistics.median(one[name][figure.name] / one[names[0]][figure.name] - 1 for one in accepted)
            spread = f"{statistics.median(values):9.2f} ({min(values):.2f} to {max(values):.2f})"
            lines.append(f"  {figure.name:8} {name:22} {spread}, {extra:+.2f}, {share:+.1%}")
    return "\n".join(lines)


def main(
    description: str | None,
    variants: Mapping[str, Change],
    argv: Sequence[str] | None = None,
    *,
    environments: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    workloads: Sequence[Workload] = WORKLOADS,
) -> int:
    """Run all rounds and print the tables. The first variant is the one that the others are compared with.

    `environments` has the variables of a variant by its name.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args(argv)
    gateway_core, load_core = two_cores()
    names = list(variants)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        generator = Generator(native.build("load"), load_core, Path(name))
        bench = Bench(stack, Path(name), gateway_core, generator)
        direct, expected = bench.upstream(UPSTREAM.prepare())
        made = [
            Gateway(each, lambda: Path(sys.executable), partial(launch, variants[each], environments.get(each, {})))
            for each in names
        ]
        targets = [bench.gateway(gateway, gateway.prepare(), direct, expected) for gateway in made]
        for workload in workloads:

            def point(target: Target, workload: Workload = workload) -> Point:
                return generator.measure(workload, target, options.seconds)

            done = rounds.run(targets, options.rounds, point, float("inf"), lambda: progress("again"))
            print(table(workload, names, done.accepted))
    return 0
