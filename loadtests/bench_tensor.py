"""Compares tensor servers on one machine, in one run: `python -m loadtests.bench_tensor --help`.

Real Triton, our runtime, our gateway before each, and five more servers; perf_analyzer and `load.c` generate the load.
Needs Linux, two cores and gcc; peers are installed on first use. See `loadtests/README.md`.
"""

import argparse
import contextlib
import fnmatch
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from loadtests import native
from loadtests.bench_gateway import progress, two_cores, wait_for_quiet
from loadtests.figures import rounds
from loadtests.gateways.workloads import LoadError, Point
from loadtests.peers import triton
from loadtests.peers.bentoml import BENTOML
from loadtests.peers.kserve import KSERVE
from loadtests.peers.mlserver import MLSERVER
from loadtests.peers.ray_serve import RAY_SERVE
from loadtests.peers.torchserve import TORCHSERVE
from loadtests.servers import StartError
from loadtests.tensors import perf_analyzer, report
from loadtests.tensors.headrace import running_gateway, running_headrace
from loadtests.tensors.measure import DIRECT, Generators
from loadtests.tensors.repositories import MAGIKA, for_headrace, for_triton
from loadtests.tensors.targets import Target, running_peer, running_triton
from loadtests.tensors.workloads import WORKLOADS, Workload, write_requests
from loadtests.venvs import InstallError

PEERS = {peer.name: peer for peer in (TORCHSERVE, BENTOML, RAY_SERVE, MLSERVER, KSERVE)}
OTHERS = (report.TRITON, *PEERS)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; `peers` and `only` come back as lists of known names."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_tensor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds to keep of each workload (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one point (3)")
    parser.add_argument("--peers", type=_names(OTHERS), default=list(OTHERS), help=f"of {','.join(OTHERS)}; or none")
    parser.add_argument("--only", type=_patterns, default=list(WORKLOADS), help="workloads, such as 'add_sub_*,mixed*'")
    parser.add_argument("--split", action="store_true", help="servers on the first core, load on the second")
    parser.add_argument(
        "--foreign-limit",
        type=float,
        default=0.25,
        help="cores that other processes may use before a round is dropped (0.25)",
    )
    parser.add_argument("--markdown", type=Path, help="a file for the table as a page shows it")
    options = parser.parse_args(argv)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds is at least 1, --seconds above 0")
    return options


def _names(accepted: Collection[str]) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        names = [] if text == "none" else text.split(",")
        if unknown := [name for name in names if name not in accepted]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(accepted)}")
        return names

    return split


def _patterns(text: str) -> list[str]:
    patterns = text.split(",")
    for pattern in patterns:
        if not fnmatch.filter(WORKLOADS, pattern):
            raise argparse.ArgumentTypeError(f"{pattern}: matches none of {', '.join(WORKLOADS)}")
    return [name for name in WORKLOADS if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def serves(target: Target, workload: Workload) -> bool:
    """Whether it has the model and the door."""
    if target.name == DIRECT:
        return workload.model == MAGIKA
    if workload.wire == "plain":
        return "http" in target.doors
    if workload.wire == "waits":
        return target.statistics is not None and not target.suffix
    return target.statistics is not None and workload.door in target.doors


@dataclass(frozen=True, slots=True)
class Bench:
    """Starts the measured servers. All processes on `stack` are stopped when the stack is closed."""

    stack: contextlib.ExitStack
    core: str
    folder: Path
    missing: dict[str, str]

    def ours(self, repository: Path) -> list[Target]:
        """The runtime, and a gateway before it. Raises StartError."""
        progress("starting headrace")
        runtime = self.stack.enter_context(running_headrace(repository, self.core, self.folder))
        return [runtime, self._gateway(runtime)]

    def peer(self, name: str) -> list[Target]:
        """Nothing, and a reason in `missing`, where it cannot be had or started."""
        progress(f"starting {name}")
        try:
            if name != report.TRITON:
                peer = PEERS[name]
                return [self.stack.enter_context(running_peer(peer, peer.install(), self.core, self.folder))]
            venv, repository = triton.install(), for_triton(self.folder / "triton-models")
            settings = self.stack.enter_context(running_triton(venv, repository, self.core, self.folder))
            return [*settings, self._gateway(settings[0])]
        except (StartError, InstallError, OSError, HTTPException) as error:
            self.missing[name] = str(error)
            return []

    def _gateway(self, behind: Target) -> Target:
        name = f"gateway+{behind.name}"
        progress(f"starting {name}")
        return self.stack.enter_context(running_gateway(name, behind, self.core, self.folder))


def measure(
    workload: Workload, targets: Sequence[Target], generators: Generators, options: argparse.Namespace
) -> report.Measured:
    """All rounds of one workload, on the targets that serve it."""

    def point(target: Target) -> Point:
        try:
            seen = generators.measure(workload, target, options.seconds)
        except (LoadError, OSError, HTTPException) as error:  # it died, or hangs: a result of this target alone
            progress(f"{workload.name} {target.name}: {error}")
            return Point({}, 1, 0.0)
        shown = ", ".join(
            f"{name.removesuffix(f'_{workload.name}')} {value:.4g}" for name, value in seen.figures.items()
        )
        progress(
            f"{workload.name} {target.name}: {shown or f'{seen.failed} failed'}; foreign {seen.foreign_cores:.2f} cores"
        )
        return seen

    chosen, limit = [target for target in targets if serves(target, workload)], options.foreign_limit
    return report.measured(workload, rounds.run(chosen, options.rounds, point, limit, lambda: wait_for_quiet(limit)))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison. Status 1 when ours could not be measured or failed."""
    options = parse(argv)
    # SIGTERM unwinds the stack, so that all servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    missing: dict[str, str] = {}
    try:
        everywhere = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
        core, load_core = map(str, two_cores()) if options.split else (everywhere, everywhere)
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
            folder = Path(name)
            ours = for_headrace(folder / "headrace-models")
            magika, requests = ours / MAGIKA / "1/model.onnx", write_requests(folder)
            programs = perf_analyzer.install(), native.build("load")
            generators = Generators(*programs, load_core, folder, requests, magika)
            bench = Bench(stack, core, folder, missing)
            targets = [*bench.ours(ours), *(target for name in options.peers for target in bench.peer(name))]
            for target in targets:
                generators.warm_up(target)
            targets.append(Target(DIRECT, {}, folder))
            results = [measure(WORKLOADS[name], targets, generators, options) for name in options.only]
    except (StartError, LoadError, InstallError, native.BuildError) as error:
        progress(f"error: {error}")
        return 1
    report.print_tables(results, missing)
    if options.markdown is not None:
        options.markdown.write_text(report.markdown(results))
    print(report.document(results, missing))
    return 1 if any(report.OURS in result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
