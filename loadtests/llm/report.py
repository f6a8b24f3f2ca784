"""The tables of the LLM benchmark, the goals, and the JSON line."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from loadtests.figures.ratios import Summary, ratios, summarise, values
from loadtests.figures.report import TABLE_WIDTH, cell, rounded, written
from loadtests.figures.rounds import Round
from loadtests.llm.headrace import GATEWAY, OURS
from loadtests.llm.peers import BATCHES, LLAMA_ALONE, LLAMA_EIGHT, LLAMA_Q8, TRANSFORMERS, VLLM
from loadtests.llm.workloads import W5, Workload

SPEED = "tokens_per_s"
SHOWN = {
    SPEED: "tokens/s", "first_p50_ms": "first token, ms, p50", "first_p99_ms": "p99", "gap_p50_ms": "gap, ms, p50",
    "gap_p99_ms": "p99", "cpu_s_per_1k_tokens": "CPU-s per 1k", "rss_mb": "RSS, MB", "client_cores": "client, cores",
}  # fmt: skip


GAP = "gap_p99_ms"
SHOWN_ALONE = {SPEED: "tokens/s", GAP: "gap p99"}
"""Names of the figures of goals."""


class Goal(NamedTuple):
    """A bound of a figure's ratio, `ours` ÷ `theirs`: at least `factor` for a speed, at most `factor` for a time."""

    workload: str
    ours: str
    theirs: str
    factor: float
    figure: str = SPEED

    @property
    def key(self) -> str:
        """Its name in the JSON line."""
        return f"{self.figure}_{self.workload}/{self.ours}/{self.theirs}"

    @property
    def bound(self) -> str:
        return f"{'≥' if self.figure == SPEED else '≤'} {self.factor:g}"

    def holds(self, ratio: float) -> bool:
        """Whether the ratio is within the bound."""
        return ratio >= self.factor if self.figure == SPEED else ratio <= self.factor


GOALS = (
    Goal("w1", OURS, VLLM.name, 1.5),
    Goal("w2", OURS, VLLM.name, 2.0),
    Goal("w3", OURS, VLLM.name, 1.3),
    Goal("w4", OURS, VLLM.name, 1.1),
    *(Goal(one.name, OURS, VLLM.name, 1.3) for one in W5),
    *(Goal(one.name, OURS, VLLM.name, 1.5, GAP) for one in W5),
    Goal("w2", f"{OURS}-int4", LLAMA_ALONE.name, 1.0),
    Goal("w1", OURS, TRANSFORMERS.name, 25.0),
    Goal("w1", OURS, BATCHES.name, 4.0),
    Goal("moe", f"{OURS}-int4", LLAMA_ALONE.name, 1.3),
    Goal("moe-8", f"{OURS}-int4", LLAMA_EIGHT.name, 1.3),
    Goal("moe", f"{OURS}-int8", LLAMA_Q8.name, 1.3),
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
    """The measured ratio of each goal whose workload and servers this run has."""
    rounds = {result.workload.name: result.rounds for result in results}
    measured = []
    for goal in GOALS:
        figure = f"{goal.figure}_{goal.workload}"
        paired = ratios(rounds.get(goal.workload, ()), goal.ours, goal.theirs, figure)
        if (summary := summarise(paired)) is not None:
            measured.append((goal, summary))
    return measured


def document(results: Sequence[Result], missing: Mapping[str, str]) -> str:
    """The JSON line: `OURS/PEER` ratios of every figure, paired by round; goals, medians, and failures."""
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
            goal.key: {"required": goal.bound, "measured": rounded(summary.median)}
            for goal, summary in reached(results)
        },
        "medians": medians,
        "rounds": {one.workload.name: {"kept": len(one.rounds), "dropped": one.dropped} for one in results},
        "failed": {one.workload.name: one.failed for one in results if one.failed},
        "missing": missing,
    }
    return json.dumps(whole)


def is_ours(name: str) -> bool:
    """Whether it is our engine, with any weights, or our gateway before it."""
    return OURS in name


def print_tables(results: Sequence[Result], missing: Mapping[str, str]) -> None:
    """The results of every target for each workload; then the goals."""
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
        f"{goal.workload} {SHOWN_ALONE[goal.figure]}, {goal.ours} ÷ {goal.theirs}: {cell(summary)}, required "
        f"{goal.bound}: {'reached' if goal.holds(summary.median) else 'MISSED'}"
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
