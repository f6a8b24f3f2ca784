"""Counts, differences and quantiles of sent requests, as a table and as JSON."""

from array import array
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.features.replay.exchanging import Judgement, ReceivedAnswer, ResentRequest
from gateway.terminal import plain

LATE = 0.005
"""Seconds after its time from which a request is late."""
QUANTILES = (0.5, 0.9, 0.99)


class SentReport:
    """The results of all sent requests. Holds 40 bytes a request for the quantiles."""

    def __init__(self) -> None:
        self.sent = 0
        self.cancelled = 0
        """Requests that a signal cancelled."""
        self.seconds = 0.0
        self.interrupted = False
        self.late = 0
        self.failed = 0
        """Answers with a status of 400 and above, or none."""
        self.statuses: Counter[str] = Counter()
        """Changed statuses."""
        self.compared = 0
        self.differing = 0
        self.parts: Counter[str] = Counter()
        """Answers by a part that differs."""
        self.tokens = [0, 0]
        """Prompt and completion tokens of the answers."""
        self.recorded_tokens = [0, 0]
        """The same of the records, for requests whose answers have them."""
        self.unsent: Counter[str] = Counter()
        self.notes: list[str] = []
        self._late, self._first, self._end = array("d"), array("d"), array("d")
        self._old_first, self._old_end = array("d"), array("d")

    @property
    def counts(self) -> dict[str, int]:
        """The counts that an expectation may name."""
        return {
            "failed": self.failed,
            "status": self.statuses.total(),
            "differing": self.differing,
            "late": self.late,
        }

    def share(self, kind: str) -> float | None:
        """The share of a count: of the compared bodies, or of the sent requests. None without any."""
        total = self.compared if kind == "differing" else self.sent
        return self.counts[kind] / total if total else None

    def add(
        self, request: ResentRequest, received: ReceivedAnswer, judgement: Judgement, *, due: float, sent: float
    ) -> None:
        """Count an answer. `due` and `sent` are monotonic seconds."""
        self.sent += 1
        self.late += sent - due > LATE
        self._late.append(sent - due)
        self.failed += bool(received.error) or received.status >= 400
        if not received.error:
            self._first.append(received.first_byte - due)
            self._end.append(received.end - due)
        if judgement.status:
            self.statuses[judgement.status] += 1
        if judgement.parts is not None:
            self.compared += 1
            self.differing += bool(judgement.parts)
            self.parts.update(judgement.parts)
        recorded = request.recorded
        if judgement.tokens is not None:
            self._add_tokens(self.tokens, *judgement.tokens)
        if recorded is None:
            return
        if judgement.tokens is not None and recorded.usage is not None:
            self._add_tokens(self.recorded_tokens, recorded.usage.prompt_tokens, recorded.usage.completion_tokens)
        self._old_end.append(recorded.end)
        if recorded.first_byte is not None:
            self._old_first.append(recorded.first_byte)

    @staticmethod
    def _add_tokens(sums: list[int], prompt: int, completion: int) -> None:
        sums[0] += prompt
        sums[1] += completion

    def as_json(self) -> dict[str, Any]:
        """The report for programs. Times are seconds."""
        return {
            "sent": self.sent,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "cancelled": self.cancelled,
            "not_sent": dict(self.unsent),
            "late": self.late,
            "lateness": _quantiles(self._late),
            "failed": self.failed,
            "status": {"changed": self.statuses.total(), "moves": dict(self.statuses.most_common())},
            "body": {"compared": self.compared, "differing": self.differing, "parts": dict(self.parts.most_common(50))},
            "tokens": {"recorded": self.recorded_tokens, "now": self.tokens},
            "first_byte": {"recorded": _quantiles(self._old_first), "now": _quantiles(self._first)},
            "end": {"recorded": _quantiles(self._old_end), "now": _quantiles(self._end)},
            "notes": self.notes,
        }

    def show(self, console: Console) -> None:
        """Print the report for people."""
        rate = self.sent / self.seconds if self.seconds else 0.0
        title = f"{self.sent:,} requests sent in {self.seconds:,.1f} s ({rate:,.1f}/s)"
        table = Table("result", "recorded", "now", title=title, title_justify="left")
        table.add_row("failed", "", f"{self.failed:,}")
        for move, count in self.statuses.most_common(10):
            old, _, new = move.partition(" → ")
            table.add_row(f"status of {count:,}", plain(old), plain(new))
        table.add_row("bodies that differ", f"{self.compared:,} compared", f"{self.differing:,}")
        for part, count in self.parts.most_common(10):
            table.add_row(plain(f"  {part}"), "", f"{count:,}")
        for name, number in (("prompt tokens", 0), ("completion tokens", 1)):
            table.add_row(name, f"{self.recorded_tokens[number]:,}", f"{self.tokens[number]:,}")
        for label, earlier, later in (("first byte", self._old_first, self._first), ("end", self._old_end, self._end)):
            before, after = _quantiles(earlier), _quantiles(later)
            for quantile in after:
                old, new = _milliseconds(before.get(quantile)), _milliseconds(after[quantile])
                table.add_row(f"{label} {quantile}", old, new)
        table.add_row("sent late", "", f"{self.late:,}")
        for quantile, seconds in _quantiles(self._late).items():
            table.add_row(f"  lateness {quantile}", "", _milliseconds(seconds))
        for reason, count in self.unsent.most_common():
            table.add_row(plain(f"not sent: {reason}"), f"{count:,}", "")
        console.print(table)
        if self.interrupted:
            self.notes.append(f"Interrupted: {self.cancelled:,} requests in flight were cancelled.")
        for note in self.notes:
            console.print(note, highlight=False, markup=False)


def _quantiles(values: "array[float]") -> dict[str, float]:
    """The quantiles of the values, and the largest; empty without values."""
    if not values:
        return {}
    ordered = sorted(values)
    chosen = {f"p{share * 100:g}": ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in QUANTILES}
    return {**chosen, "max": ordered[-1]}


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:,.1f} ms"
