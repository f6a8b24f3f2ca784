"""The parts of a sound that have speech."""

import runpy

import numpy as np
import pytest

from runtimes.tensor.catalogue import repository

PARTS_OF = runpy.run_path(str(repository._TEMPLATES / "speech-parts" / "1" / "model.py"))["parts_of"]


@pytest.mark.parametrize(
    ("speech", "parts"),
    [
        ("", []),
        ("....", []),
        ("##", [(0, 2)]),
        ("..###..", [(2, 5)]),
        ("#...#", [(0, 5)]),
        ("#....#", [(0, 1), (5, 6)]),
    ],
)
def test_a_short_pause_does_not_end_a_part(speech: str, parts: list[tuple[int, int]]) -> None:
    assert PARTS_OF(np.array([step == "#" for step in speech], bool)) == parts
