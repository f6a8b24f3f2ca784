"""The tables that people read, and the JSON line that programs read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from loadtests.figures.ratios import Summary, ratios, subtract, summarise, values
from loadtests.figures.rounds import Round, Rounds
from loadtests.gateways.workloads import Figure, Workload

DIRECT = "direct"
OURS = "headrace"
TABLE_WIDTH = 180  # of output that is not a terminal


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload and its rounds, latencies already less the direct ones."""

    workload: Workload
    rounds: Sequence[Round]
    dropped: int
    failed: Mapping[str, int]


def measured(workload: Workload, rounds: Rounds) -> Measured:
    """Subtract the direct latencies."""
    added = {figure.name for figure in workload.figures if figure.added}
    accepted = [subtract(one, added, DIRECT) for one in rounds.accepted]
    return Measured(workload, accepted, rounds.dropped, dict(rounds.failed))


def comparable(figure: Figure, peer: str) -> bool:
    """Whether ours ÷ theirs is meaningful: the direct path has no added latency."""
    return peer != OURS and not (figure.added and peer == DIRECT)


def document(results: Sequence[Measured], targets: Sequence[str], missing: Mapping[str, str]) -> str:
    """The JSON line. Spreads are [lowest, highest] of the accepted rounds."""
    summaries = {
        f"{figure.name}/{peer}": summary
        for result in results
        for figure in result.workload.figures
        for peer in targets
        if comparable(figure, peer) and (summary := summarise(ratios(result.rounds, OURS, peer, figure.name)))
    }
    medians = {
        target: {
            figure.name: rounded(summary.median)
            for result in results
            for figure in result.workload.figures
            if (summary := summarise(values(result.rounds, target, figure.name)))
        }
        for target in targets
    }
    whole = {
        "ratios": {key: rounded(summary.median) for key, summary in summaries.items()},
        "spread": {key: [rounded(s.low), rounded(s.high)] for key, s in summaries.items()},
        "medians": medians,
        "rounds": {r.workload.name: {"kept": len(r.rounds), "dropped": r.dropped} for r in results},
        "failed": {r.workload.name: r.failed for r in results if r.failed},
        "missing": missing,
    }
    return json.dumps(whole)


def print_tables(results: Sequence[Measured], targets: Sequence[str], missing: Mapping[str, str]) -> None:
    """Medians (lowest–highest) of each target, then ours ÷ each peer."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    absolute = Table(title="Median of rounds (lowest–highest); added latencies are over `direct`'s own")
    relative = Table(title=f"{OURS} ÷ peer, paired by round")
    others = [target for target in targets if target != OURS]
    for table, columns in ((absolute, targets), (relative, others)):
        table.add_column("figure", no_wrap=True)
        for column in columns:
            table.add_column(column, justify="right")
    for result, figure in ((one, figure) for one in results for figure in one.workload.figures):
        seen = (summarise(values(result.rounds, target, figure.name)) for target in targets)
        absolute.add_row(figure.name, *map(cell, seen))
        paired = (
            summarise(ratios(result.rounds, OURS, peer, figure.name)) if comparable(figure, peer) else None
            for peer in others
        )
        relative.add_row(figure.name, *map(cell, paired))
    console.print(absolute)
    console.print(relative)
    _print_notes(console, results, missing)


def _print_notes(console: Console, results: Sequence[Measured], missing: Mapping[str, str]) -> None:
    for result in results:
        if result.dropped:
            console.print(f"{result.workload.name}: {result.dropped} rounds dropped, machine not quiet")
        if not result.rounds:
            console.print(f"{result.workload.name}: no quiet round, nothing measured")
        for target, count in result.failed.items():
            console.print(f"{result.workload.name}: {target} failed {count} answers")
    for name, reason in missing.items():
        console.print(f"missing: {name}: {reason}", markup=False, highlight=False)


def cell(summary: Summary | None) -> str:
    """As tables show it."""
    if summary is None:
        return "–"
    middle, low, high = map(written, summary)
    return f"{middle} ({low}–{high})"


def written(value: float) -> str:
    """Three significant digits, or a whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def rounded(value: float) -> float:
    """To four significant digits."""
    return float(f"{value:.4g}")
