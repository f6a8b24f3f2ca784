"""The matrix on the page equals the recorded results."""

import pytest

from adapters.conformance.matrix import Cell
from adapters.conformance.suite import CHECKS, FEATURES
from tests.conformance.recorded import PAGE, all_cells, in_page, markdown, page

pytestmark = pytest.mark.plain


def test_the_page_shows_the_recorded_results() -> None:
    assert PAGE.read_text() == page(), "run make conformance"


def test_every_system_was_examined_whole() -> None:
    cells = {(cell.system, cell.feature) for cell in all_cells()}
    systems = {system for system, _ in cells}
    assert len(systems) > 3
    assert cells == {(system, feature) for system in systems for feature in FEATURES}


def test_every_cell_that_is_not_ticked_has_its_reason() -> None:
    assert [
        cell for cell in all_cells() if cell.verdict == "failed" or not (cell.why or cell.verdict == "passed")
    ] == []


def test_every_feature_is_explained() -> None:
    text = PAGE.read_text()
    for check in CHECKS:
        reason = check.why.removesuffix(".")
        assert f"| {check.feature} | {reason[0].lower()}{reason[1:]}" in text


def test_a_table() -> None:
    ours = {"system": "B", "how": "real", "version": "1"}
    cells = [
        Cell(feature="x", verdict="passed", **ours),  # type: ignore[arg-type]
        Cell(feature="y", verdict="absent", why="It cannot.", **ours),  # type: ignore[arg-type]
        Cell(system="A", feature="y", verdict="failed", why="It did not.", how="conformance server", version="2"),
    ]
    assert markdown(cells, ["x", "y"]) == (
        "| system | behind it | x | y |\n"
        "| --- | --- | --- | --- |\n"
        "| A | stand-in, 2 | ? | ✗ 1 |\n"
        "| B | real, 1 | ✓ | – 2 |\n"
        "\n1. It did not.\n2. It cannot.\n"
    )
    with pytest.raises(ValueError, match="no place"):
        in_page("nothing", "table")
