"""Counts of changed outcomes, as a table and as JSON, and expectations of them, such as `changed <= 1%`."""

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from config.schema.money import PICOS
from gateway.features.recording.entries import RecordEntry
from gateway.features.replay.outcomes import RequestOutcome
from gateway.terminal import plain

MOST_MOVES = 20
"""Lines of the table of moves."""
DECIDED = ("changed", "pool", "arm", "refused", "admitted", "failed", "guards", "cost")
"""Counts of a replay of policies."""
SENT = ("failed", "status", "differing", "late")
"""Counts of a replay that sends requests."""
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_FORM = re.compile(r"\s*([a-z]+)\s*(<=|>=|==|!=|<|>)\s*(-?\d{1,12}(?:\.\d{1,9})?)\s*(%?)\s*")


class Report:
    """The changes of all requests."""

    def __init__(self) -> None:
        self.requests = 0
        self.counts: Counter[str] = Counter()
        """Requests by the kind of change: one of `DECIDED`."""
        self.moves: Counter[tuple[str, str, str, str]] = Counter()
        """By model, kind, and the two values."""
        self.before: Counter[str] = Counter()
        """Picos by currency."""
        self.after: Counter[str] = Counter()
        self.undecided = 0
        """Requests whose recorded decision is taken, because their facts do not reproduce it."""
        self.notes: list[str] = []

    def add(
        self,
        entry: RecordEntry,
        before: RequestOutcome,
        after: RequestOutcome,
        guards: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Compare two outcomes of a request. `guards` are the verdicts that differ."""
        self.requests += 1
        self.undecided += not entry.reproduces
        if before.cost is not None:
            self.before[before.cost.currency] += before.cost.picos
        if after.cost is not None:
            self.after[after.cost.currency] += after.cost.picos
        if before == after and not guards:
            return
        model = entry.configured or entry.model or "–"
        for old, new in guards:
            self.moves[model, "guards", old, new] += 1
        if changed := bool(guards):
            self.counts["guards"] += 1
        for kind, old, new in _changes(before, after):
            changed = True
            self.counts[kind] += 1
            self.moves[model, kind, old, new] += 1
        self.counts["changed"] += changed

    def share(self, kind: str) -> float:
        """The share of the requests with a kind of change; for `cost`, the relative change of all costs."""
        if kind != "cost":
            return self.counts[kind] / self.requests if self.requests else 0.0
        before, after = sum(self.before.values()), sum(self.after.values())
        return (after - before) / before if before else float(after > 0)

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "requests": self.requests,
            **{kind: self.counts[kind] for kind in DECIDED},
            "spend": {
                currency: {"before": self.before[currency] / PICOS, "after": self.after[currency] / PICOS}
                for currency in sorted(self.before.keys() | self.after.keys())
            },
            "moves": [
                {"model": model, "change": kind, "from": old, "to": new, "requests": count}
                for (model, kind, old, new), count in self.moves.most_common(MOST_MOVES)
            ],
            "decided_as_recorded": self.undecided,
            "notes": self.notes,
        }

    def show(self, console: Console) -> None:
        """Print the report for people."""
        table = Table(title=f"{self.requests:,} recorded requests", title_justify="left")
        table.add_column("change")
        table.add_column("requests", justify="right")
        table.add_column("share", justify="right")
        for kind in DECIDED[:-1]:
            table.add_row(kind, f"{self.counts[kind]:,}", f"{self.share(kind):.2%}")
        for currency in sorted(self.before.keys() | self.after.keys()):
            spent, spends = self.before[currency] / PICOS, self.after[currency] / PICOS
            table.add_row(f"spend in {currency}", f"{spent:,.4f} → {spends:,.4f}", f"{self.share('cost'):+.2%}")
        console.print(table)
        if self.moves:
            moves = Table("model", "change", "from", "to", "requests", title="Most frequent", title_justify="left")
            for (model, kind, old, new), count in self.moves.most_common(MOST_MOVES):
                moves.add_row(plain(model), kind, plain(old or "–"), plain(new or "–"), f"{count:,}")
            console.print(moves)
        for note in self.notes:
            console.print(note, highlight=False, markup=False)


def _changes(before: RequestOutcome, after: RequestOutcome) -> list[tuple[str, str, str]]:
    """The kinds of changes with both values."""
    if before.refused != after.refused:
        if after.refused:
            return [("refused", before.refused or before.pool, after.refused)]
        return [("admitted", before.refused, after.pool)]
    changes = []
    if before.arm != after.arm:
        changes.append(("arm", before.arm or "", after.arm or ""))
    if before.pool != after.pool:
        changes.append(("pool", before.pool, after.pool))
    if before.failed != after.failed:
        changes.append(("failed", before.failed, after.failed))
    if before.cost != after.cost:
        changes.append(("cost", str(before.cost or ""), str(after.cost or "")))
    return changes


class Counted(Protocol):
    """The report of a replay."""

    @property
    def counts(self) -> Mapping[str, int]: ...
    def share(self, kind: str) -> float | None:
        """The share of a count; None if nothing was counted."""


class Expectation(NamedTuple):
    """A comparison of a count of changed requests, or of their share of all requests."""

    written: str
    kind: str
    compare: str
    number: float
    is_share: bool

    @classmethod
    def parse(cls, written: str, kinds: tuple[str, ...] = DECIDED) -> "Expectation":
        """Raises `ValueError`."""
        match = _FORM.fullmatch(written)
        if match is None or match[1] not in kinds:
            example = f"such as `{kinds[0]} <= 1%`"
            raise ValueError(f"expected a comparison of {', '.join(kinds)} {example}, got {written!r}")
        if match[1] == "cost" and not match[4]:
            raise ValueError("`cost` is the relative change of all costs: compare it with a percentage")
        return cls(written.strip(), match[1], match[2], float(match[3]), bool(match[4]))

    def unmet(self, report: Counted) -> str:
        """The difference; empty if the expectation is met. Nothing counted meets no expectation."""
        share = report.share(self.kind)
        if share is None:
            return f"expected {self.written}, but there is no request to count"
        value = share * 100 if self.is_share else report.counts[self.kind]
        if _COMPARE[self.compare](value, self.number):
            return ""
        got = f"{value:.4g}%" if self.is_share else f"{value:,}"
        return f"expected {self.written}, got {got}"
