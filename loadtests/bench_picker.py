"""Measures the latency that the endpoint picker adds to Envoy: `python -m loadtests.bench_picker --help`. A minute.

Two Envoys in front of the same two servers receive the same open load, interleaved: one asks the endpoint picker for
each request, with keys, limits, prefix affinity, metrics and an access log, in the mode FULL_DUPLEX_STREAMED; the other
balances by itself. Envoy and the picker share a core. The added latency is the difference of both in the same round.
Needs Linux, two cores and gcc.
"""

import argparse
import contextlib
import json
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from loadtests import native
from loadtests.bench_gateway import UPSTREAM, Bench, progress, two_cores
from loadtests.figures import rounds
from loadtests.gateways.headrace import config, create_key
from loadtests.gateways.workloads import Figure, Generator, Point, Workload, milliseconds
from loadtests.peers.envoy import ENVOY
from loadtests.peers.envoy_picker import configuration
from loadtests.servers import Gateway, Launch, Site, StartError, Target, child, free_port

ALONE, PICKED = "envoy", "envoy-picker"
P50 = Figure("p50_ms", milliseconds("latency_us", "p50"))
P99 = Figure("p99_ms", milliseconds("latency_us", "p99"))
START_SECONDS = 60.0


def picker_file(site: Site, port: int) -> dict[str, Any]:
    """The gateway's file, with a picker at `port`."""
    made = config(site, free_port())
    made["listen"]["endpoint_picker"] = f"127.0.0.1:{port}"
    return made


def start_picker(stack: contextlib.ExitStack, folder: Path, upstream: int, core: int | str) -> tuple[int, str]:
    """Start a gateway with a picker. Returns the picker's port and a key. Raises `StartError`."""
    home = folder / "picker"
    home.mkdir()
    site, port = Site(home, free_port(), upstream), free_port()
    file = home / "headrace.yaml"
    file.write_text(yaml.safe_dump(picker_file(site, port), sort_keys=False))
    key = create_key(Path(sys.executable), file)
    launch = Launch([sys.executable, "-m", "gateway", "serve", "--config", str(file)])
    process = stack.enter_context(child("picker", launch, core, home))
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return port, key
        time.sleep(0.1)
    raise StartError("the picker did not start")


def launch_envoy(picker: int, key: str, site: Site, venv: Path) -> Launch:
    """Envoy with the picker; without it if `key` is empty."""
    file = site.folder / "envoy.yaml"
    ports = (free_port(), site.port)
    made = configuration(f"127.0.0.1:{picker}", ports, site.endpoints, picks=bool(key))
    file.write_text(yaml.safe_dump(made, sort_keys=False))
    flags = ["--concurrency", "1", "--log-level", "error", "--disable-hot-restart", "--use-dynamic-base-id"]
    return Launch([str(venv / "bin/envoy"), "--config-path", str(file), *flags], key)


def report(accepted: Sequence[rounds.Round], rate: int) -> None:
    """Print the latencies and their differences, and the JSON line."""
    table = Table(title=f"chats, {rate} a second, {len(accepted)} rounds", title_justify="left")
    for column in ("", "p50, ms", "p99, ms"):
        table.add_column(column)
    for name in (ALONE, PICKED):
        p50, p99 = (median(one[name][figure.name] for one in accepted) for figure in (P50, P99))
        table.add_row(name, f"{p50:.3f}", f"{p99:.3f}")
    added = {
        figure.name: [one[PICKED][figure.name] - one[ALONE][figure.name] for one in accepted] for figure in (P50, P99)
    }
    shown = [f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})" for values in added.values()]
    table.add_row("added: median (least to most)", *shown)
    Console().print(table)
    ratios = {
        f"{figure.name}/{ALONE}": median(one[PICKED][figure.name] / one[ALONE][figure.name] for one in accepted)
        for figure in (P50, P99)
    }
    figures = {f"added_{name}": round(median(values), 3) for name, values in added.items()}
    print(json.dumps({"ratios": {name: round(ratio, 3) for name, ratio in ratios.items()}, **figures}))


def main(argv: Sequence[str] | None = None) -> int:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_picker", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=int, default=200, help="requests a second")
    options = parser.parse_args(argv)
    gateway_core, load_core = two_cores()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        generator = Generator(native.build("load"), load_core, folder)
        bench = Bench(stack, folder, gateway_core, generator)
        direct, expected = bench.upstream(UPSTREAM.prepare())
        port, key = start_picker(stack, folder, direct.port, gateway_core)
        made = [
            Gateway(ALONE, ENVOY.prepare, partial(launch_envoy, port, "")),
            Gateway(PICKED, ENVOY.prepare, partial(launch_envoy, port, key)),
        ]
        targets = [bench.gateway(gateway, gateway.prepare(), direct, expected) for gateway in made]
        load = ("open", "--connections", "32", "--rate", str(options.rate))
        chats = Workload("chats", load, (P50, P99))

        def measure(target: Target) -> Point:
            return generator.measure(chats, target, options.seconds)

        done = rounds.run(targets, options.rounds, measure, float("inf"), lambda: progress("again"))
        if done.failed:
            progress(f"failed answers: {dict(done.failed)}")
            return 1
        report(done.accepted, options.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
