"""The programs between the three models of OCR."""

import runpy
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from runtimes.tensor.catalogue import repository

pytestmark = pytest.mark.plain
Array = npt.NDArray[Any]


def program(name: str) -> dict[str, Any]:
    return runpy.run_path(str(repository._TEMPLATES / name / "1" / "model.py"))


CROP, TURN = program("ocr-crop"), program("ocr-turn")


@st.composite
def pixels(draw: st.DrawFn) -> Array:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.tuples(st.integers(1, 24), st.integers(1, 24)))
    return np.asarray(rng.random(shape) < draw(st.floats(0, 1)))


@given(pixels())
def test_areas_are_the_connected_components(marked: Array) -> None:
    labels, _ = ndimage.label(marked)
    expected = [(x.start, y.start, x.stop, y.stop) for y, x in ndimage.find_objects(labels)]
    assert sorted(CROP["areas_of"](marked)) == sorted(expected)


def cropped(boxes: list[tuple[int, int, int, int]]) -> dict[str, Array]:
    """The lines of a picture of 128 × 640 pixels with text in boxes."""
    probability = np.zeros((1, 1, 128, 640), np.float32)
    for left, top, right, bottom in boxes:
        probability[0, 0, top:bottom, left:right] = 1
    picture = np.arange(3 * 128 * 640, dtype=np.float32).reshape(1, 3, 128, 640)
    return dict(CROP["Model"]().infer({"picture": picture, "probability": probability}))


def test_a_line_is_scaled_to_the_height_of_the_models_and_padded() -> None:
    lines = cropped([(100, 80, 220, 90), (40, 20, 80, 30)])
    assert lines["boxes"].tolist() == [[33, 13, 87, 37], [93, 73, 227, 97]]
    assert lines["widths"].tolist() == [[108], [268]]
    assert lines["lines"].shape == (2, 3, 48, 320)
    assert lines["squeezed"].shape == (2, 3, 48, 192)
    assert not lines["lines"][0, :, :, 108:].any()
    assert lines["lines"][0, :, :, :108].all()


def test_a_picture_without_text_has_one_empty_line() -> None:
    lines = cropped([])
    assert {name: values.shape[0] for name, values in lines.items()} == dict.fromkeys(lines, 1)
    assert not lines["lines"].any()
    assert not lines["boxes"].any()


def test_a_picture_full_of_lines_has_the_first_of_them() -> None:
    boxes = [(x, y, x + 4, y + 4) for y in range(2, 120, 12) for x in range(4, 620, 14)]
    assert cropped(boxes)["lines"].shape[0] == 64


def test_only_lines_upside_down_are_turned_and_without_their_padding() -> None:
    line = np.zeros((2, 3, 48, 8), np.float32)
    line[:, :, 0, 0] = 1
    scores = np.array([[0.9, 0.1], [0.1, 0.9]], np.float32)
    upright, turned = TURN["Model"]().infer({"line": line, "width": np.array([[5], [5]]), "scores": scores})["line"]
    assert (upright == line[0]).all()
    assert (turned[:, 47, 4] == 1).all()
    assert turned.sum() == 3
