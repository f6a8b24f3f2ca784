"""Renders results as a table: a row for each system, a column for each feature, and numbered reasons below."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

# The result of a check, as data.

How = Literal["real", "conformance server", "foreign"]
"""The server behind the adapter: the system itself, a server built from its published documents, or a server that
another party operates."""
Verdict = Literal["passed", "failed", "absent"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one feature of one system.

    `why` is empty for `passed`. For `absent` it states why the protocol lacks the feature, or why this server cannot
    show it.
    """

    system: str
    feature: str
    verdict: Verdict
    why: str = ""
    how: How
    version: str


def encode(cells: list[Cell]) -> bytes:
    """Encode results as stored: one line for each result, so that a diff shows each change as one line."""
    lines = ",\n".join(msgspec.json.encode(cell).decode() for cell in cells)
    return f"[\n{lines}\n]\n".encode()


def decode(body: bytes) -> list[Cell]:
    """Decode stored results. Raises `msgspec.ValidationError`."""
    return msgspec.json.decode(body, type=list[Cell])


BEGIN, END = "<!-- matrix: made by `make conformance` -->", "<!-- end of the matrix -->"
PASSED = "✓"
_MARKS = {"failed": "✗", "absent": "–"}
_BEHIND = {"real": "real", "conformance server": "stand-in", "foreign": "foreign"}


def markdown(cells: Iterable[Cell], features: Sequence[str]) -> str:
    """Render the table and its reasons. A feature without a result is shown as `?`."""
    systems: dict[str, dict[str, Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.system.lower()):
        systems.setdefault(cell.system, {})[cell.feature] = cell
    reasons: dict[str, int] = {}
    head = ["system", "behind it", *features]
    lines = [_line(head), _line(["---"] * len(head))]
    for system, results in systems.items():
        first = next(iter(results.values()))
        marks = [_mark(results.get(feature), reasons) for feature in features]
        lines.append(_line([system, f"{_BEHIND[first.how]}, {first.version}", *marks]))
    notes = [f"{number}. {why}" for why, number in reasons.items()]
    return "\n".join([*lines, "", *notes]) + "\n"


def in_page(page: str, table: str) -> str:
    """Replace the text between the two marks of a page by the table. Raises `ValueError` if a mark is missing."""
    before, begun, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ValueError("the page has no place for the matrix")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def _mark(cell: Cell | None, reasons: dict[str, int]) -> str:
    if cell is None:
        return "?"
    if cell.verdict == "passed":
        return PASSED
    return f"{_MARKS[cell.verdict]} {reasons.setdefault(cell.why, len(reasons) + 1)}"


def _line(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"
