"""The tables of the LLM benchmark, what was wanted of ours, and the JSON line."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from loadtests.llm.headrace import GATEWAY, OURS
from loadtests.llm.peers import BATCHES, LLAMA_ALONE, TRANSFORMERS, VLLM
from loadtests.llm.workloads import W5, Workload
from loadtests.ratios import Summary, ratios, summarise, values
from loadtests.report import TABLE_WIDTH, cell, rounded, written
from loadtests.rounds import Round

SPEED = "tokens_per_s"
SHOWN = {
    SPEED: "tokens/s", "first_p50_ms": "first token, ms, p50", "first_p99_ms": "p99", "gap_p50_ms": "gap, ms, p50",
    "gap_p99_ms": "p99", "cpu_s_per_1k_tokens": "CPU-s per 1k", "rss_mb": "RSS, MB", "client_cores": "client, cores",
}  # fmt: skip


class Goal(NamedTuple):
    """Tokens a second of `ours` over those of `theirs`, at least."""

    workload: str
    ours: str
    theirs: str
    factor: float


GOALS = (
    Goal("w1", OURS, VLLM.name, 1.5),
    Goal("w2", OURS, VLLM.name, 2.0),
    Goal("w3", OURS, VLLM.name, 1.3),
    Goal("w4", OURS, VLLM.name, 1.1),
    *(Goal(one.name, OURS, VLLM.name, 1.3) for one in W5),
    Goal("w2", f"{OURS}-int4", LLAMA_ALONE.name, 1.0),
    Goal("w1", OURS, TRANSFORMERS.name, 25.0),
    Goal("w1", OURS, BATCHES.name, 4.0),
    *(Goal(f"w{index}", GATEWAY, OURS, 0.97) for index in (1, 2, 3, 4)),
)


@dataclass(frozen=True, slots=True)
class Result:
    """One workload and its rounds."""

    workload: Workload
    rounds: Sequence[Round]
    dropped: int
    failed: Mapping[str, int]

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.rounds for name, seen in one.items() if seen))

    def figure(self, name: str) -> str:
        """Its key in the rounds."""
        return f"{name}_{self.workload.name}"


def reached(results: Sequence[Result]) -> list[tuple[Goal, Summary]]:
    """The goals that this run can tell of, with what it found."""
    rounds = {result.workload.name: result.rounds for result in results}
    found = []
    for goal in GOALS:
        paired = ratios(rounds.get(goal.workload, ()), goal.ours, goal.theirs, f"{SPEED}_{goal.workload}")
        if (summary := summarise(paired)) is not None:
            found.append((goal, summary))
    return found


def document(results: Sequence[Result], missing: Mapping[str, str]) -> str:
    """The JSON line: `OURS/PEER` ratios of every figure, paired by round; goals, medians, and what went wrong."""
    summaries: dict[str, Summary] = {}
    medians: dict[str, dict[str, float]] = {}
    for result in results:
        for figure in map(result.figure, SHOWN):
            for name in result.targets:
                if (middle := summarise(values(result.rounds, name, figure))) is not None:
                    medians.setdefault(name, {})[figure] = rounded(middle.median)
                for ours in filter(is_ours, () if is_ours(name) and name != OURS else result.targets):
                    paired = summarise(ratios(result.rounds, ours, name, figure)) if ours != name else None
                    if paired is not None:
                        summaries[f"{figure}/{ours}/{name}"] = paired
    whole = {
        "ratios": {key: rounded(summary.median) for key, summary in summaries.items()},
        "spread": {key: [rounded(summary.low), rounded(summary.high)] for key, summary in summaries.items()},
        "goals": {
            f"{goal.workload}/{goal.ours}/{goal.theirs}": {"wanted": goal.factor, "found": rounded(summary.median)}
            for goal, summary in reached(results)
        },
        "medians": medians,
        "rounds": {one.workload.name: {"kept": len(one.rounds), "dropped": one.dropped} for one in results},
        "failed": {one.workload.name: one.failed for one in results if one.failed},
        "missing": missing,
    }
    return json.dumps(whole)


def is_ours(name: str) -> bool:
    """Whether it is our engine, with whatever weights, or our gateway before it."""
    return OURS in name


def print_tables(results: Sequence[Result], missing: Mapping[str, str]) -> None:
    """For each workload what every target did; then the goals."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    for result in results:
        console.print(_table(result))
        for target, count in result.failed.items():
            console.print(f"{result.workload.name}: {target} failed {count} answers")
        if result.dropped:
            console.print(f"{result.workload.name}: {result.dropped} rounds dropped, machine not quiet")
    for line in goal_lines(results):
        console.print(line, markup=False, highlight=False)
    for name, reason in missing.items():
        console.print(f"missing: {name}: {reason}", markup=False, highlight=False)


def goal_lines(results: Sequence[Result]) -> list[str]:
    """A line for each."""
    return [
        f"{goal.workload} {goal.ours} ÷ {goal.theirs}: {cell(summary)}, wanted {goal.factor:g}: "
        f"{'reached' if summary.median >= goal.factor else 'MISSED'}"
        for goal, summary in reached(results)
    ]


def markdown(results: Sequence[Result]) -> str:
    """For a page: a table for each workload, a row for each target; medians, and the spread of tokens a second."""
    lines = []
    for result in results:
        lines += [f"| {result.workload.name.upper()} | {' | '.join(SHOWN.values())} |", "|---|" + "---|" * len(SHOWN)]
        lines += [f"| {name} | {' | '.join(_row(result, name))} |" for name in result.targets]
        lines.append("")
    return "\n".join(lines)


def _row(result: Result, name: str) -> list[str]:
    """Tokens a second with their spread, and the medians of the rest."""
    speed, *seen = (summarise(values(result.rounds, name, result.figure(figure))) for figure in SHOWN)
    return [cell(speed), *("–" if one is None else written(one.median) for one in seen)]


def _table(result: Result) -> Table:
    table = Table(title=f"{result.workload.name}: medians of rounds (lowest–highest)")
    table.add_column("target", no_wrap=True)
    for name in (*SHOWN.values(), f"tokens/s, {OURS} ÷ this"):
        table.add_column(name, justify="right")
    for target in result.targets:
        paired = summarise(ratios(result.rounds, OURS, target, result.figure(SPEED))) if target != OURS else None
        table.add_row(target, *_row(result, target), cell(paired))
    return table
