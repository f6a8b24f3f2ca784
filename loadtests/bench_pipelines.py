"""Compare ensembles of our tensor runtime with those of a real Triton: `python -m loadtests.bench_pipelines --help`.

Both servers have the same models, written in Python, and the same ensembles: `ensemble` has three steps, one behind the
other; `diamond` has four, of which two run side by side. `pipeline` is our gateway with the same graphs as pipelines,
over the single models of that Triton. Targets take turns, round after round.

With `--peers kserve-router=PATH` the peer is KServe's router of an InferenceGraph, by its binary: a Sequence, a Switch,
an Ensemble and a Splitter over one server, beside our gateway with the configuration imported from these graphs.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from statistics import median

from loadtests import native
from loadtests.bench_gateway import progress, two_cores, wait_for_quiet
from loadtests.figures import rounds
from loadtests.figures.report import rounded
from loadtests.gateways.workloads import LoadError, Point
from loadtests.peers import inference_graphs, kserve_router, networks
from loadtests.servers import StartError
from loadtests.tensors import headrace, report
from loadtests.tensors.ensemble_targets import (
    MEMBER,
    NAMES,
    PIPELINE,
    pipelines,
    requests,
    running_ours,
    running_triton,
)
from loadtests.tensors.measure import closed_loop
from loadtests.tensors.targets import Target
from loadtests.tensors.workloads import Workload
from loadtests.venvs import InstallError

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
    parser.add_argument(
        "--peers",
        type=_peers,
        default={report.TRITON: None},
        help=f"{report.TRITON}, {kserve_router.NAME}=PATH of its binary, or both with a comma ({report.TRITON})",
    )
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


def _peers(text: str) -> dict[str, Path | None]:
    """The peers by name, with the path of a binary."""
    peers = {}
    for part in text.split(","):
        name, _, path = part.partition("=")
        if (name, bool(path)) not in ((report.TRITON, False), (kserve_router.NAME, True)):
            raise argparse.ArgumentTypeError(f"{part}: give {report.TRITON} or {kserve_router.NAME}=PATH")
        peers[name] = Path(path) if path else None
    return peers


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison. Status 1 if ours could not be measured or failed."""
    options = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds the stack, so that all servers are stopped
    everywhere = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    core, load_core = map(str, two_cores()) if options.split else (everywhere, everywhere)
    try:
        if options.peers.get(kserve_router.NAME) is not None:
            networks.enter("loadtests.bench_pipelines", sys.argv[1:] if argv is None else argv)
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
            bench = Bench(Path(name), native.build("load"), core, load_core, options)
            results = bench.of_ensembles() if report.TRITON in options.peers else []
            results += bench.of_graphs() if kserve_router.NAME in options.peers else []
    except (StartError, LoadError, InstallError, native.BuildError) as error:
        progress(f"error: {error}")
        return 1
    report.print_tables(results, {})
    written = json.loads(report.document(results, {}))
    print(json.dumps({**written, "added_p50_ms": added_milliseconds(results)}))
    return 1 if any(report.OURS in result.failed for result in results) else 0


@dataclass(frozen=True, slots=True)
class Bench:
    """One run: its folder, the load generator, the cores of the servers and of the load."""

    folder: Path
    load: Path
    core: str
    load_core: str
    options: argparse.Namespace

    def of_ensembles(self) -> list[report.Measured]:
        """Ensembles, beside those of Triton."""
        with contextlib.ExitStack() as stack:
            servers = [
                stack.enter_context(running_ours(self.folder, self.core, self.options)),
                stack.enter_context(running_triton(self.folder, self.core)),
            ]
            gateway = headrace.running_gateway(PIPELINE, servers[1], self.core, self.folder, [MEMBER], pipelines())
            servers.append(stack.enter_context(gateway))
            targets = [requests(self.folder, each) for each in servers]
            return [result for name in NAMES for result in self._points(name, [each[name] for each in targets])]

    def of_graphs(self) -> list[report.Measured]:
        """Graphs, beside KServe's router. Figures have the requests that a core could answer in a second."""
        results = []
        with contextlib.ExitStack() as stack:
            program = native.build("mock_upstream")
            server = stack.enter_context(inference_graphs.running_server(program, self.load_core, self.folder))
            ours = stack.enter_context(inference_graphs.running_ours(server, self.core, self.folder))
            for name, target in ours.items():
                binary = self.options.peers[kserve_router.NAME]
                router = inference_graphs.running_router(binary, name, server, self.core, self.folder)
                with router as theirs:
                    results += self._points(name, [target, theirs])
        return [with_core_figure(result) for result in results]

    def _points(self, name: str, targets: Sequence[Target]) -> list[report.Measured]:
        return [
            measure(EnsembleLoad(name, "plain", callers), targets, self.load, self.load_core, self.options)
            for callers in self.options.callers
        ]


def with_core_figure(result: report.Measured) -> report.Measured:
    """The result with `rps_core`, the requests for each second of CPU, in every round."""
    name = result.workload.name
    cpu, core = f"cpu_ms_per_request_{name}", f"rps_core_{name}"
    rounds = [
        {
            target: {**figures, core: 1000 / figures[cpu]} if figures.get(cpu) else figures
            for target, figures in one.items()
        }
        for one in result.rounds
    ]
    return replace(result, rounds=rounds)


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
