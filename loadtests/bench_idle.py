"""What a gateway costs that serves nobody: `python -m loadtests.bench_idle --help`.

Each run starts `headrace serve` with a minimal file in a folder of its own, waits until it is ready, and lets it idle.
Two trees run in turn, so that other work on the machine slows both.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

from loadtests.servers import REPOSITORY

START_TIMEOUT_S = 120.0
POLL_S = 0.01
OURS = ("adapters", "config", "gateway", "policies", "runtimes")

MINIMAL = """\
version: 1
listen: {{http: "127.0.0.1:0", admin: "127.0.0.1:0"}}
auth: {{demo_key: false}}
pools:
  - {{name: chats, protocol: openai, endpoints: ["http://{upstream}"]}}
  - {{name: tensors, protocol: oip-http, endpoints: ["http://{upstream}"]}}
models:
  - {{name: chat, routes: [{{to: chats}}]}}
  - {{name: tensor, routes: [{{to: tensors}}]}}
tenants: [{{name: team, models: ["*"]}}]
"""
"""Two pools, two models, one tenant, and the defaults of everything else."""

LAUNCHER = """
import asyncio, json, os, signal, sys
path = sys.argv[1]
def report(*_):
    tasks = sorted(f"{task.get_name()}: {task.get_coro().__qualname__}" for task in asyncio.all_tasks())
    modules = sorted(sys.modules)
    with open(path + ".new", "w") as file:
        json.dump({"tasks": tasks, "modules": modules}, file)
    os.replace(path + ".new", path)
signal.signal(signal.SIGUSR1, report)
import gateway.__main__
sys.argv = [gateway.__main__.__file__, *sys.argv[2:]]
gateway.__main__.main()
"""
"""Runs a command, and on SIGUSR1 writes the tasks and modules of the process to a file."""


class Idle(NamedTuple):
    """One run."""

    modules: float
    """Imported modules of this project."""
    imported: float
    """All imported modules."""
    tasks: float
    """Tasks of the event loop besides the main one."""
    wakeups: float
    """How often the event loop wakes up in a second."""
    switches: float
    """The same of all threads, with their waits for each other."""
    ready_ms: float
    """From the start until every model can be used."""
    cpu_ms: float
    """CPU time until then."""
    rss_mb: float


class HealthyServer(BaseHTTPRequestHandler):
    """A server that is always healthy."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_idle", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="starts of each tree (5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each gateway idles (10)")
    parser.add_argument("--config", type=Path, help="another file than the minimal one")
    parser.add_argument("--against", type=Path, help="a second tree, with a checkout of another commit")
    parser.add_argument("--list", action="store_true", help="print the tasks and the modules of the last run too")
    return parser.parse_args(argv)


def measure(tree: Path, config: str, seconds: float) -> tuple[Idle, dict[str, list[str]]]:
    """Start a gateway from a tree, and stop it. Raises `TimeoutError` if it is never ready."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "headrace.yaml").write_text(config)
        lists_of, log = folder / "lists.json", folder / "log"
        command = [sys.executable, "-c", LAUNCHER, str(lists_of), "serve", "--config", "headrace.yaml"]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        begun = time.perf_counter()
        with log.open("w") as stderr, subprocess.Popen(command, cwd=folder, env=environment, stderr=stderr) as process:
            try:
                _wait(lambda: "\nReady." in log.read_text() or process.poll() is not None, log)
                ready_ms = (time.perf_counter() - begun) * 1000
                meter = psutil.Process(process.pid)
                cpu = meter.cpu_times()
                time.sleep(2)  # the first probes, and the writes of the start
                before = _switches(process.pid)
                time.sleep(seconds)
                after = _switches(process.pid)
                rss_mb = meter.memory_info().rss / 1e6
                process.send_signal(signal.SIGUSR1)
                _wait(lists_of.exists, log)
            finally:
                process.terminate()
        lists = json.loads(lists_of.read_text())
    ours = sum(module.partition(".")[0] in OURS for module in lists["modules"])
    tasks, cpu_ms = len(lists["tasks"]) - 1, (cpu.user + cpu.system) * 1000
    wakeups = (after[process.pid] - before[process.pid]) / seconds
    switches = (sum(after.values()) - sum(before.values())) / seconds
    return Idle(ours, len(lists["modules"]), tasks, wakeups, switches, ready_ms, cpu_ms, rss_mb), lists


def _switches(pid: int) -> dict[int, int]:
    """The voluntary switches of context of each thread: one each time that it begins to wait."""
    counts = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        status = (thread / "status").read_text()
        counts[int(thread.name)] = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return counts


def _wait(condition: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(log.read_text())
        time.sleep(POLL_S)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print medians."""
    options = parse(argv)
    trees = [REPOSITORY] + ([options.against.resolve()] if options.against else [])
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), HealthyServer)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    text = options.config.read_text() if options.config else MINIMAL
    config = text.format(upstream=f"127.0.0.1:{upstream.server_port}")
    runs: dict[Path, list[Idle]] = {tree: [] for tree in trees}
    for _ in range(options.runs):
        for tree in trees:
            idle, lists = measure(tree, config, options.seconds)
            runs[tree].append(idle)
            if options.list and tree == REPOSITORY:
                listed = lists
    table = Table("", *Idle._fields)
    for tree in trees:
        table.add_row(str(tree), *(f"{median(column):,.1f}" for column in zip(*runs[tree], strict=True)))
    Console().print(table)
    if options.list:
        print(json.dumps(listed, indent=1))


if __name__ == "__main__":
    main()
