"""One point: a workload against a target, once."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtests.figures.cpu import Meter
from loadtests.gateways.workloads import Load, LoadError, Point, parse_load
from loadtests.servers import REPOSITORY, environment
from loadtests.tensors.perf_analyzer import GRACE_S, PerfAnalyzer, Report
from loadtests.tensors.targets import Target, counts
from loadtests.tensors.workloads import WORKLOADS, Workload, figures

DIRECT = "onnxruntime"
"""The model without any server before it."""
WARM_UP, WARM_UP_S = ("add_sub_plain_1", "add_sub_plain_8"), 2.0


@dataclass(frozen=True, slots=True)
class Generators:
    """The load generators, the core or cores that they run on, and the files that they send."""

    perf_analyzer: PerfAnalyzer
    load: Path
    core: str
    folder: Path
    requests: Mapping[str, Path]
    magika: Path

    def measure(self, workload: Workload, target: Target, seconds: float) -> Point:
        """Load on a target, with its CPU and that of foreign processes around it. Raises LoadError."""
        if target.name == DIRECT:
            return self._direct(workload, seconds)
        if workload.wire == "plain":
            return self._plain(workload, target, seconds)
        if workload.wire == "waits":
            return self._waits(workload, target, seconds)
        door, model = target.doors[workload.door], workload.model + target.suffix
        assert target.statistics is not None
        before, meter = counts(target.statistics, model), Meter.start(door.pid)
        options = workload.arguments(model, self.requests[workload.model], target.keys.get(workload.door, ""))
        report = self.perf_analyzer.run(f"127.0.0.1:{door.port}", options, seconds, self.core, self.folder)
        usage, after = meter.stop(), counts(target.statistics, model)
        batch = (after.rows - before.rows) / max(after.executions - before.executions, 1)
        done = after.requests - before.requests
        return Point(figures(workload, report, usage.cpu_s, done, batch), 0, usage.foreign_cores)

    def warm_up(self, target: Target) -> None:
        """Some seconds of load that are not measured: a Java server is ten times slower at first. Raises LoadError."""
        for name in WARM_UP:
            self._plain(WORKLOADS[name], target, WARM_UP_S)

    def _plain(self, workload: Workload, target: Target, seconds: float) -> Point:
        return closed_loop(self.load, self.core, workload, target, seconds)

    def _waits(self, workload: Workload, target: Target, seconds: float) -> Point:
        """The wait of small requests while the server has a large one."""
        door, kind = target.doors["http"], workload.model.removeprefix("echo_")
        program = ["taskset", "--cpu-list", self.core, sys.executable, "-m", "loadtests.tensors.waits"]
        options = ["--port", str(door.port), "--kind", kind, "--seconds", str(seconds)]
        meter = Meter.start(door.pid)
        latencies = json.loads(_output([*program, *options, "--key", target.keys.get("http", "")], seconds))
        usage = meter.stop()
        return Point({f"{name}_{workload.name}": value for name, value in latencies.items()}, 0, usage.foreign_cores)

    def _direct(self, workload: Workload, seconds: float) -> Point:
        batch = str(min(workload.concurrency, 8))
        program = ["taskset", "--cpu-list", self.core, sys.executable, "-m", "loadtests.tensors.direct_onnx"]
        arguments = [str(self.magika), str(self.requests["magika"]), batch, str(seconds)]
        latencies = json.loads(_output([*program, *arguments], seconds))
        return Point({f"{name}_{workload.name}": value for name, value in latencies.items()}, 0, 0.0)


def closed_loop(load: Path, core: str, workload: Workload, target: Target, seconds: float) -> Point:
    """The target's own request by `load.c`, each caller with one in flight. Raises LoadError."""
    door = target.doors["http"]
    arguments = ["--port", str(door.port), "--request", str(target.plain), "--seconds", str(seconds)]
    program = ["taskset", "--cpu-list", core, str(load), "closed"]
    command = [*target.inside, *program, "--connections", str(workload.concurrency), *arguments]
    meter = Meter.start(door.pid)
    result = parse_load(_output(command, seconds))
    usage = meter.stop()
    if result.sent != result.completed or result.latency_us is None:
        return Point({}, max(result.sent - result.completed, 1), usage.foreign_cores)
    return Point(figures(workload, _seen(result), usage.cpu_s, result.completed, None), 0, usage.foreign_cores)


def _seen(load: Load) -> Report:
    assert load.latency_us is not None
    return Report(load.in_time / load.seconds, load.latency_us.p50 / 1000, load.latency_us.p99 / 1000)


def _output(command: list[str], seconds: float) -> str:
    timeout = seconds + GRACE_S
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"load did not end within {timeout:.0f} s") from None
    if done.returncode:
        raise LoadError(f"load: {done.stderr.strip()[-300:]}")
    return done.stdout
