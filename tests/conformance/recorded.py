"""The suite's recorded results, beside the page that shows them."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from adapters.conformance import matrix
from adapters.conformance.matrix import Cell
from adapters.conformance.subject import Subject
from adapters.conformance.suite import CHECKS, FEATURES, examine

FOLDER = Path("docs/conformance")
PAGE = Path("docs/servers/conformance.md")
RECORD = "HEADRACE_RECORD_CONFORMANCE"
"""Set by `make conformance`: results are recorded, not compared."""
BEGIN, END = "<!-- matrix: made by `make conformance` -->", "<!-- end of the matrix -->"
PASSED = "✓"
_MARKS = {"failed": "✗", "absent": "–"}
_BEHIND = {"real": "real", "conformance server": "stand-in", "foreign": "foreign"}
every_feature = pytest.mark.parametrize("feature", FEATURES)
_CHECKS = {check.feature: check for check in CHECKS}


async def conforms(subject: Subject, feature: str) -> None:
    """Examine one feature. Fails unless the feature conforms and the result equals the page's."""
    result = await examine(_CHECKS[feature], subject)
    if os.environ.get(RECORD):
        _record(result)
    assert result.verdict != "failed", result.why
    assert _recorded(result.system).get(feature) == result, f"{PAGE} says otherwise: run make conformance"


def all_cells() -> list[Cell]:
    """The recorded cells of every system."""
    return [one for path in sorted(FOLDER.glob("*.json")) for one in matrix.decode(path.read_bytes())]


def page() -> str:
    """The page with the matrix of the recorded results."""
    return in_page(PAGE.read_text(), markdown(all_cells(), FEATURES))


def _record(result: Cell) -> None:
    cells = {**_recorded(result.system), result.feature: result}
    FOLDER.mkdir(exist_ok=True)
    _path(result.system).write_bytes(matrix.encode([cells[feature] for feature in FEATURES if feature in cells]))


def _recorded(system: str) -> dict[str, Cell]:
    path = _path(system)
    return {one.feature: one for one in matrix.decode(path.read_bytes())} if path.exists() else {}


def _path(system: str) -> Path:
    return FOLDER / (re.sub(r"[^a-z0-9]+", "-", system.lower()).strip("-") + ".json")


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


def in_page(page: str, table: str, begin: str = BEGIN, end: str = END) -> str:
    """Replace the text between the two marks of a page by the table. Raises `ValueError` if a mark is missing."""
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError("the page has no place for the matrix")
    return f"{before}{begin}\n\n{table}\n{end}{after}"


def _mark(cell: Cell | None, reasons: dict[str, int]) -> str:
    if cell is None:
        return "?"
    if cell.verdict == "passed":
        return PASSED
    return f"{_MARKS[cell.verdict]} {reasons.setdefault(cell.why, len(reasons) + 1)}"


def _line(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
