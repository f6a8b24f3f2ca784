"""Compares LLM servers on one machine, in one run: `python -m loadtests.bench_llm --help`.

Our engine with bf16, int8 and 4-bit weights, and through our gateway; vLLM on the CPU, llama.cpp's server and
transformers. The same client loads each through its own HTTP server, one at a time while the others are stopped. Needs
Linux and two cores; peers are installed on first use. See `loadtests/README.md`.
"""

import argparse
import contextlib
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path

from loadtests.bench_gateway import progress, wait_for_quiet
from loadtests.figures import rounds
from loadtests.gateways.workloads import Point
from loadtests.llm import report
from loadtests.llm.copying import BUNDLED, W6
from loadtests.llm.figures import Cost, figures
from loadtests.llm.headrace import GATEWAY, KINDS, OURS, WEIGHTS, name_of, running_gateway, running_headrace
from loadtests.llm.mixture import mixture
from loadtests.llm.peers import OF_MIXTURES, PEERS
from loadtests.llm.targets import Target, awake, measure, warm_up
from loadtests.llm.workloads import MOE, Word, Workload, vocabulary
from loadtests.llm.workloads import WORKLOADS as GIVEN
from loadtests.servers import StartError
from loadtests.venvs import InstallError
from runtimes.llm.weights.store import resolve

SMOL: dict[str, Workload] = {one.name: one for one in (*GIVEN.values(), *W6)}
MIXED: dict[str, Workload] = {one.name: one for one in MOE}
WORKLOADS = SMOL | MIXED


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; lists hold valid names only."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_llm", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="rounds to keep of each workload (3)")
    add("--mixture", action="store_true", help="a mixture of experts of random weights instead of SmolLM2")
    add("--peers", type=names(PEERS), help=f"of {','.join(PEERS)}; or none")
    add("--workloads", type=names(WORKLOADS), help=f"of {','.join(WORKLOADS)}")
    add("--weights", type=names(KINDS), default=list(WEIGHTS), help=f"of ours: {','.join(KINDS)}; or none")
    add("--no-gateway", dest="gateway", action="store_false", help="leave out ours through our gateway")
    add("--requests", type=int, help="at most so many of each workload, to try it out")
    add("--foreign-limit", type=float, default=0.25, help="cores of other processes that spoil a round (0.25)")
    add("--markdown", type=Path, help="a file for the tables as a page shows them")
    options = parser.parse_args(argv)
    if options.rounds < 1 or (options.requests is not None and options.requests < 1):
        parser.error("--rounds and --requests are at least 1")
    if options.peers is None:
        options.peers = list(OF_MIXTURES if options.mixture else PEERS)
    if options.workloads is None:
        options.workloads = list(MIXED if options.mixture else SMOL)
    return options


def names(allowed: Collection[str]) -> Callable[[str], list[str]]:
    """The parser of an option: some of the `allowed` names, separated by commas, or none."""

    def split(text: str) -> list[str]:
        chosen = [] if text == "none" else text.split(",")
        if unknown := [name for name in chosen if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(allowed)}")
        return chosen

    return split


class Bench:
    """Starts the measured servers, one after the other, and stops each by signal until its turn."""

    def __init__(self, stack: contextlib.ExitStack, model: Path, folder: Path, words: Sequence[Word]) -> None:
        self._stack, self._model, self._folder, self._words = stack, model, folder, words
        self._core = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
        self.missing: dict[str, str] = {}

    def targets(self, options: argparse.Namespace) -> Iterator[Target]:
        """All targets that start; each is warm, and stopped."""
        for weights in options.weights:
            starting = running_headrace(self._model, weights, self._core, self._folder)
            for ours in self._start(name_of(weights), starting, options):
                yield ours
                if ours.name == OURS and options.gateway:
                    with awake(ours):
                        yield from self._start(GATEWAY, running_gateway(ours, self._core, self._folder), options)
        for name in options.peers:
            yield from self._start(name, PEERS[name].running(self._model, self._core, self._folder), options)

    def _start(
        self, name: str, starting: contextlib.AbstractContextManager[Target], options: argparse.Namespace
    ) -> list[Target]:
        """The target; none, with a reason in `missing`, if it cannot be installed, started or reached."""
        progress(f"starting {name}")
        workloads = [WORKLOADS[one] for one in options.workloads]
        try:
            target = self._stack.enter_context(starting)
            with awake(target):
                wrong = warm_up(target, self._words, workloads, options.requests)
        except (StartError, InstallError, OSError, HTTPException) as error:
            self.missing[name] = str(error)
            return []
        if wrong:
            progress(f"{name}: {len(wrong)} failed in the warm-up, such as {wrong[0][:300]}")
        return [target]


def measured(
    workload: Workload, targets: Sequence[Target], words: Sequence[Word], options: argparse.Namespace
) -> report.Result:
    """All rounds of one workload, on the targets that run it."""
    seeds = itertools.count()

    def point(target: Target) -> Point:
        part = target.part(workload, options.requests)
        assert part is not None
        with awake(target):
            seen = measure(target, workload, part, words, f"{target.name} {next(seeds)}")
        if seen.load.failed:
            progress(
                f"{workload.name} {target.name}: {len(seen.load.failed)} failed, such as {seen.load.failed[0][:300]}"
            )
            return Point({}, len(seen.load.failed), seen.usage.foreign_cores)
        result = figures(workload.name, seen.load, Cost(seen.usage.cpu_s, seen.resident_bytes))
        shown = ", ".join(f"{name.rpartition('_')[0]} {value:.4g}" for name, value in result.items())
        progress(f"{workload.name} {target.name}: {shown}; foreign {seen.usage.foreign_cores:.2f} cores")
        return Point(dict(result), 0, seen.usage.foreign_cores)

    chosen, limit = [target for target in targets if target.part(workload) is not None], options.foreign_limit
    collected = rounds.run(chosen, options.rounds, point, limit, lambda: wait_for_quiet(limit))
    return report.Result(workload, collected.accepted, collected.dropped, dict(collected.failed))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison. Status 1 when ours could not be measured or failed."""
    options = parse(argv)
    # SIGTERM unwinds the stack, so that all servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    model = mixture() if options.mixture else resolve(BUNDLED)
    words = vocabulary(model)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        bench = Bench(stack, model, Path(name), words)
        targets = list(bench.targets(options))
        results = [measured(WORKLOADS[one], targets, words, options) for one in options.workloads]
    report.print_tables(results, bench.missing)
    if options.markdown is not None:
        options.markdown.write_text(report.markdown(results))
    print(report.document(results, bench.missing))
    lost = [*bench.missing, *(target for one in results for target in one.failed)]
    return 1 if any(map(report.is_ours, lost)) else 0


if __name__ == "__main__":
    sys.exit(main())
