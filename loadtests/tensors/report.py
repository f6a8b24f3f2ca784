"""The tables of the tensor benchmark, and its JSON line."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from loadtests.figures.ratios import ratios, summarise, values
from loadtests.figures.report import TABLE_WIDTH, cell, rounded, written
from loadtests.figures.rounds import Round, Rounds
from loadtests.tensors.repositories import SUFFIX
from loadtests.tensors.workloads import Workload

OURS = "headrace"
TRITON = "triton"
DELAYED = f"{TRITON}{SUFFIX.replace('_', '-')}"
BEST = "triton-best"
"""Whichever of its settings answered more requests a second in a round, with all of its figures."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload and its rounds."""

    workload: Workload
    rounds: Sequence[Round]
    dropped: int
    failed: Mapping[str, int]

    @property
    def figures(self) -> list[str]:
        """Their names, in the order in which they were first seen."""
        return list(dict.fromkeys(name for one in self.rounds for seen in one.values() for name in seen))

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.rounds for name in one))


def measured(workload: Workload, rounds: Rounds) -> Measured:
    """With Triton's better setting as one more target."""
    return Measured(
        workload, [_with_best(workload, one) for one in rounds.accepted], rounds.dropped, dict(rounds.failed)
    )


def _with_best(workload: Workload, one: Round) -> Round:
    key = f"rps_{workload.name}"
    settings = [one[name] for name in (TRITON, DELAYED) if key in one.get(name, {})]
    return {**one, BEST: max(settings, key=lambda seen: seen[key])} if settings else one


def document(results: Sequence[Measured], missing: Mapping[str, str]) -> str:
    """The JSON line: ours ÷ theirs by `FIGURE/PEER`, spreads, medians, what was dropped, failed or missing."""
    paired = {
        f"{figure}/{peer}": summary
        for result in results
        for figure in result.figures
        for peer in result.targets
        if peer != OURS and (summary := summarise(ratios(result.rounds, OURS, peer, figure)))
    }
    medians: dict[str, dict[str, float]] = {}
    for result in results:
        for target in result.targets:
            for figure in result.figures:
                if (summary := summarise(values(result.rounds, target, figure))) is not None:
                    medians.setdefault(target, {})[figure] = rounded(summary.median)
    whole = {
        "ratios": {key: rounded(summary.median) for key, summary in paired.items()},
        "spread": {key: [rounded(summary.low), rounded(summary.high)] for key, summary in paired.items()},
        "medians": medians,
        "rounds": {one.workload.name: {"kept": len(one.rounds), "dropped": one.dropped} for one in results},
        "failed": {one.workload.name: one.failed for one in results if one.failed},
        "missing": missing,
    }
    return json.dumps(whole)


def print_tables(results: Sequence[Measured], missing: Mapping[str, str]) -> None:
    """The results of every target for each workload, and ours ÷ theirs in requests a second."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    for result in results:
        console.print(_table(result))
        for target, count in result.failed.items():
            console.print(f"{result.workload.name}: {target} failed {count} times")
        if result.dropped:
            console.print(f"{result.workload.name}: {result.dropped} rounds dropped, machine not quiet")
    for name, reason in missing.items():
        console.print(f"missing: {name}: {reason}", markup=False, highlight=False)


def markdown(results: Sequence[Measured]) -> str:
    """For a page: a row for each workload, a column for each target; medians of requests a second, p50 / p99 in ms,
    CPU ms a request, and mean batch where it is known. Of waits: p50 / p99 / the longest in ms, and the p50 of the
    large request.
    """
    targets = [name for name in dict.fromkeys(name for result in results for name in result.targets) if name != BEST]
    lines = [f"| | {' | '.join(targets)} |", "|---|" + "---|" * len(targets)]
    for result in results:
        cells = (_summary(result, target) for target in targets)
        lines.append(f"| {result.workload.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _summary(result: Measured, target: str) -> str:
    def of(name: str) -> str:
        summary = summarise(values(result.rounds, target, f"{name}_{result.workload.name}"))
        return written(summary.median) if summary is not None else ""

    if waited := of("wait_max_ms"):
        return f"{of('wait_p50_ms')} / {of('wait_p99_ms')} / {waited} · {of('p50_ms')}"
    parts = [of("rps"), f"{of('p50_ms')} / {of('p99_ms')}", of("cpu_ms_per_request"), of("mean_batch")]
    return " · ".join(part for part in parts if part) if parts[0] else ""


def _table(result: Measured) -> Table:
    table = Table(title=f"{result.workload.name}: median of rounds (lowest–highest)")
    table.add_column("target", no_wrap=True)
    names = [figure.removesuffix(f"_{result.workload.name}") for figure in result.figures]
    for name in (*names, f"rps, {OURS} ÷ this"):
        table.add_column(name, justify="right")
    for target in result.targets:
        seen = (summarise(values(result.rounds, target, figure)) for figure in result.figures)
        ratio = summarise(ratios(result.rounds, OURS, target, f"rps_{result.workload.name}"))
        table.add_row(target, *map(cell, seen), cell(ratio if target != OURS else None))
    return table
