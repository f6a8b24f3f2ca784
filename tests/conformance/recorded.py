"""The suite's recorded results, beside the page that shows them."""

import os
import re
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
    return matrix.in_page(PAGE.read_text(), matrix.markdown(all_cells(), FEATURES))


def _record(result: Cell) -> None:
    cells = {**_recorded(result.system), result.feature: result}
    FOLDER.mkdir(exist_ok=True)
    _path(result.system).write_bytes(matrix.encode([cells[feature] for feature in FEATURES if feature in cells]))


def _recorded(system: str) -> dict[str, Cell]:
    path = _path(system)
    return {one.feature: one for one in matrix.decode(path.read_bytes())} if path.exists() else {}


def _path(system: str) -> Path:
    return FOLDER / (re.sub(r"[^a-z0-9]+", "-", system.lower()).strip("-") + ".json")


if __name__ == "__main__":
    PAGE.write_text(page())
