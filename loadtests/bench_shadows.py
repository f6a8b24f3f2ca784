"""Measures what clients notice of a shadow: `python -m loadtests.bench_shadows --help`. About three minutes.

Four gateways of ours receive the same open load, interleaved: one without a shadow, and three that copy every request,
to a healthy target, to a closed port, and to a server that accepts connections and never answers. The figures are the
clients' latencies, and the paired ratios to the gateway without a shadow. Without a shadow the ratio of two points of
the same gateway is the noise. Needs Linux, two cores and gcc.
"""

import argparse
import contextlib
import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from loadtests import native
from loadtests.bench_gateway import UPSTREAM, Bench, progress, two_cores
from loadtests.figures import rounds
from loadtests.gateways.headrace import config, create_key
from loadtests.gateways.replies import MODEL, PATH
from loadtests.gateways.workloads import Figure, Generator, Point, Workload, milliseconds
from loadtests.servers import Gateway, Launch, Site, Target, free_port

OFF, AGAIN = "off", "off-again"
STATES = (OFF, AGAIN, "healthy", "dead", "hanging")
LARGE = 10 * 1024 * 1024
AT_MOST = {"concurrency": 64, "requests": "10000/s"}
P50 = Figure("p50_ms", milliseconds("latency_us", "p50"))
P99 = Figure("p99_ms", milliseconds("latency_us", "p99"))


CHATS = Workload("chats, 100 a second", ("open", "--connections", "64", "--rate", "100"), (P50, P99))
BODIES = "bodies of 10 MiB, one after the other"
FEWEST = 8
"""Large bodies of a point."""


def written(state: str, site: Site, admin_port: int, hanging: int) -> dict[str, Any]:
    """The configuration of one gateway."""
    made = config(site, admin_port)
    if state in (OFF, AGAIN):
        return made
    urls = {
        "healthy": [f"http://{endpoint}" for endpoint in site.endpoints],
        "dead": ["http://127.0.0.1:9"],
        "hanging": [f"http://127.0.0.1:{hanging}"],
    }[state]
    made["pools"].append({"name": "copied", "protocol": "openai", "endpoints": urls, "probe": None})
    shadow = {"name": "s", "to": "copied", "share": "100%", "at_most": AT_MOST}
    made["models"][0]["routes"][1]["shadow"] = shadow
    return made


def launch(state: str, hanging: int, site: Site, python: Path) -> Launch:
    """A gateway whose shadow is in this state."""
    file = site.folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(written(state, site, free_port(), hanging), sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A port whose connections are accepted by the kernel and never answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        yield int(server.getsockname()[1])


def large_body() -> bytes:
    """A chat of 10 MiB."""
    text = "the quick brown fox " * (LARGE // 20)
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 64}).encode()


def sent(target: Target, body: bytes, seconds: float) -> Point:
    """Send large bodies, one after the other, on one connection. `load.c` sends requests that fit a socket's buffer."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {target.key}"}
    connection, took, failed = HTTPConnection("127.0.0.1", target.port, timeout=60), list[float](), 0
    end = monotonic() + seconds
    while monotonic() < end or len(took) < FEWEST:
        begin = monotonic()
        connection.request("POST", PATH, body, headers)
        response = connection.getresponse()
        response.read()
        took.append((monotonic() - begin) * 1000)
        failed += response.status != 200
    connection.close()
    ordered = sorted(took)
    return Point({P50.name: median(ordered), P99.name: ordered[int(0.99 * len(ordered))]}, failed, 0.0)


def print_table(name: str, accepted: Sequence[rounds.Round]) -> None:
    """Print the latencies, and their ratios to those without a shadow in the same round."""
    table = Table(title=f"{name}, {len(accepted)} rounds", title_justify="left")
    for column in ("copies to", "p50, ms", "p99, ms", "p99 ÷ p99 without a shadow: median (least to most)"):
        table.add_column(column)
    for state in STATES:
        own = [one[f"headrace-{state}"] for one in accepted]
        ratios = [
            one[P99.name] / max(base[f"headrace-{OFF}"][P99.name], 1e-9)
            for one, base in zip(own, accepted, strict=True)
        ]
        shown = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        p50, p99 = (median(one[figure.name] for one in own) for figure in (P50, P99))
        label = {OFF: "no shadow", AGAIN: "no shadow, once more (the noise)"}.get(state, state)
        table.add_row(label, f"{p50:.2f}", f"{p99:.2f}", "" if state == OFF else shown)
    Console().print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all rounds and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_shadows", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(argv)
    gateway_core, load_core = two_cores()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, contextlib.ExitStack() as stack:
        hanging = stack.enter_context(silent())
        generator = Generator(native.build("load"), load_core, Path(folder))
        bench = Bench(stack, Path(folder), gateway_core, generator)
        direct, expected = bench.upstream(UPSTREAM.prepare())
        made = [
            Gateway(f"headrace-{state}", lambda: Path(sys.executable), partial(launch, state, hanging))
            for state in STATES
        ]
        targets = [bench.gateway(gateway, gateway.prepare(), direct, expected) for gateway in made]
        body = large_body()

        def chats(target: Target) -> Point:
            return generator.measure(CHATS, target, options.seconds)

        def bodies(target: Target) -> Point:
            return sent(target, body, options.seconds)

        for name, measure in ((CHATS.name, chats), (BODIES, bodies)):

            def point(target: Target, name: str = name, measure: Callable[[Target], Point] = measure) -> Point:
                seen = measure(target)
                progress(f"{name} {target.name}: {seen.figures or f'{seen.failed} answers failed'}")
                return seen

            done = rounds.run(targets, options.rounds, point, float("inf"), lambda: progress("again"))
            print_table(name, done.accepted)
            if done.failed:
                progress(f"failed answers: {dict(done.failed)}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
