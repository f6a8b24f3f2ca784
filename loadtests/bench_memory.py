"""Memory that gateways take for streams that are open: `python -m loadtests.bench_memory --help`.

Each in turn is given a thousand streams that an upstream feeds slowly; what its processes hold then, less what
they held before, is what the streams cost.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtests import native
from loadtests.bench_gateway import Bench, install, progress, two_cores
from loadtests.figures.cpu import resident_bytes
from loadtests.gateways.headrace import HEADRACE
from loadtests.gateways.replies import CheckError
from loadtests.gateways.workloads import CHUNKS, Generator, Load, streams
from loadtests.peers import PEERS
from loadtests.servers import Gateway, Launch, StartError, Target

GAP_US = 100_000
"""Between two chunks of a stream: slow enough that no gateway saturates."""
SAMPLE_S = 0.2
MIB = 1024**2
UPSTREAM = Gateway(
    "direct",
    lambda: native.build("mock_upstream"),
    lambda site, program: Launch(
        [str(program), "--port", str(site.port), "--chunks", str(CHUNKS), "--gap-us", str(GAP_US)]
    ),
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ``peers`` is returned as a list of names."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_memory", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="streams that are open at a time (1000)")
    parser.add_argument("--rounds", type=int, default=3, help="times that each is measured (3)")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS), help=",".join(PEERS))
    options = parser.parse_args(argv)
    if unknown := [name for name in options.peers if name not in PEERS]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(PEERS)}")
    return options


def measure(target: Target, generator: Generator, count: int) -> tuple[float, float] | None:
    """MiB before, and MiB that ``count`` open streams added at the most; None when streams failed."""
    before = resident_bytes(target.pid)
    peak = before
    workload = streams(count)
    with ThreadPoolExecutor(1) as pool:
        running: Future[Load] = pool.submit(generator.run, workload, target, CHUNKS * GAP_US / 1e6 * 1.2)
        while not running.done():
            peak = max(peak, resident_bytes(target.pid))
            time.sleep(SAMPLE_S)
        load = running.result()
    if load.completed != load.sent or load.completed < count:
        progress(f"{target.name}: {load.completed} of {load.sent} streams whole")
        return None
    return before / MIB, (peak - before) / MIB


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison. Status 1 when ours could not be measured."""
    options = parse(argv)
    missing: dict[str, str] = {}
    seen: dict[str, list[tuple[float, float]]] = {}
    gateway_core, load_core = two_cores()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        bench = Bench(stack, Path(name), gateway_core, Generator(native.build("load"), load_core, Path(name)), UPSTREAM)
        gateways = [HEADRACE, *(PEERS[peer] for peer in options.peers)]
        installed = install([UPSTREAM, *gateways], missing)
        direct, expected = bench.upstream(installed[UPSTREAM.name])
        for gateway in gateways:
            if gateway.name not in installed:
                continue
            try:
                target = bench.gateway(gateway, installed[gateway.name], direct, expected)
            except (StartError, CheckError) as error:
                missing[gateway.name] = str(error)
                continue
            for _ in range(options.rounds):
                if (figures := measure(target, bench.generator, options.streams)) is not None:
                    seen.setdefault(gateway.name, []).append(figures)
                    progress(
                        f"{gateway.name}: {figures[0]:.0f} MiB, {figures[1]:+.1f} MiB for {options.streams} streams"
                    )
    return report(seen, missing, options.streams)


def report(seen: dict[str, list[tuple[float, float]]], missing: dict[str, str], count: int) -> int:
    """The table, and the JSON line as the last of the output."""
    table = Table(title=f"Resident memory, MiB; the first round pays for {count} streams, later ones use it again")
    for column in ("gateway", "before the first", "for its streams", "in later rounds"):
        table.add_column(column, justify="right")
    for name, rounds in seen.items():
        later = ", ".join(f"{added:.1f}" for _, added in rounds[1:]) or "–"
        table.add_row(name, f"{rounds[0][0]:.0f}", f"{rounds[0][1]:.1f}", later)
    Console(width=120).print(table)
    ours = seen.get(HEADRACE.name)
    figures = {name: rounds[0][1] for name, rounds in seen.items()}
    ratios = {f"stream_mib/{name}": ours[0][1] / max(mib, 0.1) for name, mib in figures.items()} if ours else {}
    print(json.dumps({"ratios": ratios, "mib": figures, "missing": missing}))
    return 0 if ours else 1


if __name__ == "__main__":
    sys.exit(main())
