"""A cause of failures, and groups of requests that have the same cause."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.features.journal.lines import time_of

Row = Mapping[str, Any]
"""One stored request, with `at` in microseconds and its `detail` decoded."""
_MOST_NAMED = 4


class Finding(NamedTuple):
    """One cause."""

    name: str
    """Stable, for scripts."""
    sentence: str
    evidence: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """The next steps, the most useful first."""
    requests: int = 0
    """The requests that it explains, of those examined."""
    severe: bool = False
    """Whether it comes first even if it explains no request."""

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        made: dict[str, Any] = {"name": self.name, "cause": self.sentence, "requests": self.requests}
        return made | {"evidence": list(self.evidence), "next": list(self.steps)}


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> dict[Any, list[Row]]:
    """Rows by a key, the largest group first. Rows of the key None are left out."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if (of := key(row)) is not None:
            groups.setdefault(of, []).append(row)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def counted(rows: Sequence[Row]) -> str:
    """How many requests, and when: "12 requests from 03:01:07 to 03:04:55 UTC"."""
    first, last = min(row["at"] for row in rows), max(row["at"] for row in rows)
    noun = "request" if len(rows) == 1 else "requests"
    if len(rows) == 1:
        return f"1 {noun} at {moment(first)}"
    return f"{len(rows)} {noun} from {moment(first)} to {moment(last)}"


def moment(at: int) -> str:
    """A time in microseconds, to the second."""
    return time_of(at)[:19].replace("T", " ") + " UTC"


def named(rows: Iterable[Row], field: str, noun: str) -> tuple[str, ...]:
    """The most frequent values of a field, as one line of evidence; none if it is empty everywhere."""
    counts = Counter(str(value) for row in rows if (value := row.get(field) or row["detail"].get(field)))
    if not counts:
        return ()
    texts = [f"{plain(value)} ({count})" for value, count in counts.most_common(_MOST_NAMED)]
    more = f" and {len(counts) - _MOST_NAMED} more" if len(counts) > _MOST_NAMED else ""
    return (f"{noun}: {', '.join(texts)}{more}",)


def example(rows: Sequence[Row]) -> tuple[str, ...]:
    """The command that shows the newest request of a group."""
    newest = max(rows, key=lambda row: int(row["at"]))
    return (f"see one of them: `headrace requests show {plain(newest['id'])}`",) if newest["id"] else ()


def plain(text: object) -> str:
    """A text of a client or an upstream without control characters."""
    return "".join(char if char.isprintable() else "?" for char in str(text))[:200]
