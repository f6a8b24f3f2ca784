"""Compare ensembles of our tensor runtime with those of a real Triton: `python -m loadtests.bench_pipelines --help`.

Both servers have the same models, written in Python, and the same ensembles: `ensemble` has three steps, one behind the
other; `diamond` has four, of which two run side by side. `pipeline` is our gateway with the same graphs as pipelines,
over the single models of that Triton. Targets take turns, round after round.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from statistics import median
from typing import Any, Final

from loadtests import native, rounds
from loadtests.bench_gateway import progress, two_cores, wait_for_quiet
from loadtests.peers import triton
from loadtests.report import rounded
from loadtests.servers import StartError, free_ports
from loadtests.tensors import headrace, report
from loadtests.tensors.measure import closed_loop
from loadtests.tensors.peer import OIP, OIP_PATH, SINGLE_THREAD, http_request, post
from loadtests.tensors.repositories import MODELS, ONE_THREAD
from loadtests.tensors.targets import Door, Target, is_ready, server
from loadtests.tensors.workloads import Workload
from loadtests.venvs import InstallError
from loadtests.workloads import LoadError, Point

ENSEMBLES = Path(__file__).parent / "tensors/ensembles"
NAMES = tuple(sorted(folder.name for folder in ENSEMBLES.iterdir()))
MEMBER = "add_sub"
PIPELINE = "pipeline"
"""The target of the gateway's pipelines."""
_BOTH: Final = {"INPUT0": "OUTPUT0", "INPUT1": "OUTPUT1"}
ONE_PROCESS: Final = 'parameters { key: "headrace.processes" value { string_value: "1" } }\n'
"""Of our ensembles: a process of their own."""
WARM_UP_S = 2.0


@dataclass(frozen=True, slots=True)
class EnsembleLoad(Workload):
    """Callers that each have one request of an ensemble in flight."""

    @property
    def name(self) -> str:
        return f"{self.model}_{self.concurrency}"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_pipelines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that are reported (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one point (3)")
    parser.add_argument("--callers", type=_numbers, default=[1, 8, 32], help="requests in flight (1,8,32)")
    parser.add_argument("--split", action="store_true", help="servers on the first core, load on the second")
    parser.add_argument(
        "--foreign-limit",
        type=float,
        default=0.25,
        help="cores that other processes may use before a round is dropped (0.25)",
    )
    parser.add_argument("--step-by-step", action="store_true", help="our ensembles without processes of their own")
    parser.add_argument("--same-files", action="store_true", help="ours serves Triton's model files")
    options = parser.parse_args(argv)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds is at least 1, --seconds above 0")
    return options


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def repository(folder: Path, kind: str, source: str = "", more: str = "") -> Path:
    """The models and ensembles for `triton` or `headrace`, each as its users write them.

    `source` names the server whose model file is copied, if it is the other's; ensembles have `more` beside steps.
    """
    version = folder / MEMBER / "1"
    version.mkdir(parents=True)
    config = (MODELS / MEMBER / "config.pbtxt").read_text()
    if kind == report.OURS:
        config += ONE_THREAD
    (folder / MEMBER / "config.pbtxt").write_text(config)
    shutil.copy(MODELS / MEMBER / f"{source or kind}.py", version / "model.py")
    for name in NAMES:
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text((ENSEMBLES / name / "config.pbtxt").read_text() + more)
    return folder


@contextlib.contextmanager
def running_triton(folder: Path, core: str) -> Iterator[Target]:
    """Raises `StartError` or `InstallError`."""
    venv, ports = triton.install(), triton.Ports(*free_ports(3))
    started = triton.launch(venv, repository(folder / "triton-models", "triton"), ports, ["--model-control-mode=none"])
    launch = replace(started, env={**started.env, **SINGLE_THREAD})
    with contextlib.ExitStack() as stack:
        stack.callback(triton.sweep, ports)
        pid = stack.enter_context(server("triton", launch, core, folder, lambda _: is_ready(ports.http)))
        yield Target(report.TRITON, {"http": Door(ports.http, pid)}, folder / "unused")


@contextlib.contextmanager
def running_ours(folder: Path, core: str, options: argparse.Namespace) -> Iterator[Target]:
    """Our runtime. Raises `StartError`."""
    source, more = "triton" if options.same_files else "", "" if options.step_by_step else ONE_PROCESS
    models = repository(folder / "headrace-models", report.OURS, source, more)
    with headrace.running_headrace(models, core, folder) as target:
        yield target


def pipelines() -> dict[str, Any]:
    """The ensembles as pipelines of the gateway, by name."""

    def step(name: str, **inputs: str) -> dict[str, Any]:
        return {"name": name, "model": MEMBER, **({"in": inputs} if inputs else {})}

    def after(name: str, before: str) -> dict[str, Any]:
        return step(name, **{taken: f"{before}.{given}" for taken, given in _BOTH.items()})

    return {
        "ensemble": {"steps": [step("one"), after("two", "one"), after("three", "two")]},
        "diamond": {
            "steps": [
                step("top"),
                step("left", INPUT0="top.OUTPUT0", INPUT1="request.INPUT1"),
                step("right", INPUT0="top.OUTPUT1", INPUT1="request.INPUT1"),
                step("join", INPUT0="left.OUTPUT0", INPUT1="right.OUTPUT0"),
            ]
        },
    }


def added_milliseconds(results: Sequence[report.Measured]) -> dict[str, float]:
    """By workload: the p50 of the gateway's pipeline less that of Triton's ensemble, as the median of the rounds."""
    added = {}
    for result in results:
        figure = f"p50_ms_{result.workload.name}"
        pairs = [(one.get(PIPELINE, {}), one.get(report.TRITON, {})) for one in result.rounds]
        differences = [ours[figure] - theirs[figure] for ours, theirs in pairs if figure in ours and figure in theirs]
        if differences:
            added[result.workload.name] = rounded(median(differences))
    return added


def requests(folder: Path, target: Target) -> dict[str, Target]:
    """By ensemble, the target with the request for it. Raises `StartError` if a response is wrong."""
    targets = {}
    for name in NAMES:
        plain = folder / f"{target.name}-{name}.http"
        key = target.keys.get("http")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        plain.write_bytes(http_request(OIP_PATH.replace(MEMBER, name), OIP, headers))
        body = post(target.doors["http"].port, plain, [])
        if body is None or b"OUTPUT1" not in body:
            raise StartError(f"{target.name} does not compute {name}: {(body or b'no response')[:300]!r}")
        targets[name] = replace(target, plain=plain)
    return targets


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison. Status 1 if ours could not be measured or failed."""
    options = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds the stack, so that all servers are stopped
    everywhere = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    core, load_core = map(str, two_cores()) if options.split else (everywhere, everywhere)
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
            folder, load = Path(name), native.build("load")
            servers = [
                stack.enter_context(running_ours(folder, core, options)),
                stack.enter_context(running_triton(folder, core)),
            ]
            gateway = headrace.running_gateway(PIPELINE, servers[1], core, folder, [MEMBER], pipelines())
            servers.append(stack.enter_context(gateway))
            targets = [requests(folder, each) for each in servers]
            results = [
                measure(
                    EnsembleLoad(ensemble, "plain", callers),
                    [each[ensemble] for each in targets],
                    load,
                    load_core,
                    options,
                )
                for ensemble in NAMES
                for callers in options.callers
            ]
    except (StartError, LoadError, InstallError, native.BuildError) as error:
        progress(f"error: {error}")
        return 1
    report.print_tables(results, {})
    written = json.loads(report.document(results, {}))
    print(json.dumps({**written, "added_p50_ms": added_milliseconds(results)}))
    return 1 if any(report.OURS in result.failed for result in results) else 0


def measure(
    workload: Workload, targets: Sequence[Target], load: Path, core: str, options: argparse.Namespace
) -> report.Measured:
    """All rounds of one ensemble and number of callers."""

    def point(target: Target) -> Point:
        try:
            seen = closed_loop(load, core, workload, target, options.seconds)
        except (LoadError, OSError, HTTPException) as error:
            progress(f"{workload.name} {target.name}: {error}")
            return Point({}, 1, 0.0)
        shown = ", ".join(f"{figure} {value:.4g}" for figure, value in seen.figures.items())
        progress(f"{target.name}: {shown or f'{seen.failed} failed'}; foreign {seen.foreign_cores:.2f} cores")
        return seen

    for target in targets:
        closed_loop(load, core, workload, target, WARM_UP_S)
    limit = options.foreign_limit
    seen = rounds.run(targets, options.rounds, point, limit, lambda: wait_for_quiet(limit))
    return report.Measured(workload, seen.accepted, seen.dropped, dict(seen.failed))


if __name__ == "__main__":
    sys.exit(main())
