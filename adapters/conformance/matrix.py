"""Renders results as a table: a row for each system, a column for each feature, and numbered reasons below."""

from collections.abc import Iterable, Sequence

from adapters.conformance.cell import Cell

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
