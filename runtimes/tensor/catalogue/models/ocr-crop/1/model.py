"""Cuts the lines of text out of a picture, by the probability of text at each pixel."""

from collections.abc import Iterator
from itertools import pairwise
from math import ceil

import numpy as np
from PIL import Image

HEIGHT, SQUEEZED = 48, 192
MIN_WIDTH, MAX_WIDTH = 320, 1280
STEP = 32
"""A width is a multiple of it."""
MAX_LINES = 64
THRESHOLD, GROWTH, MARGIN = 0.3, 2, 0.35
"""The detector marks the middle of a line: areas grow by pixels, boxes by a share of their height."""
MIN_SIDE = 3

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


class Model:
    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`picture` [1, 3, H, W] and `probability` [1, 1, H, W] → N lines from the top, at most 64."""
        picture = inputs["picture"][0]
        boxes = lines_of(inputs["probability"][0, 0])[:MAX_LINES] or [(0, 0, 0, 0)]
        widths = [_width(box) for box in boxes]
        width = max(MIN_WIDTH, ceil(max(widths) / STEP) * STEP)
        lines = np.zeros((len(boxes), 3, HEIGHT, width), np.float32)
        squeezed = np.zeros((len(boxes), 3, HEIGHT, SQUEEZED), np.float32)
        for line, small, box, taken in zip(lines, squeezed, boxes, widths, strict=True):
            if taken:
                _fill(line, picture, box, taken)
                _fill(small, picture, box, min(taken, SQUEEZED))
        return {
            "lines": lines,
            "squeezed": squeezed,
            "widths": np.array(widths, np.int64)[:, None],
            "boxes": np.array(boxes, np.int64),
        }


def lines_of(probability: np.ndarray) -> list[Box]:
    """The boxes of the lines of text in probabilities [H, W], from the top."""
    height, width = probability.shape
    boxes = []
    for left, top, right, bottom in areas_of(_grown(probability > THRESHOLD)):
        if min(right - left, bottom - top) >= MIN_SIDE + 2 * GROWTH:
            margin = ceil((bottom - top) * MARGIN)
            box = max(left - margin, 0), max(top - margin, 0), min(right + margin, width), min(bottom + margin, height)
            boxes.append(box)
    return sorted(boxes, key=lambda box: (box[1], box[0]))


def areas_of(marked: np.ndarray) -> list[Box]:
    """The boxes of the areas of pixels [H, W] that touch at their sides: runs of each row, joined to those above."""
    roots: list[int] = []
    boxes: list[list[int]] = []
    above: list[tuple[int, int, int]] = []
    for y, row in enumerate(marked):
        runs = []
        for left, right in _runs(row):
            area = len(roots)
            roots.append(area)
            boxes.append([left, y, right, y + 1])
            touching = {_root(roots, each) for begin, end, each in above if begin < right and left < end}
            for other in touching:
                roots[other] = area
                boxes[area] = _around(boxes[area], boxes[other])
            runs.append((left, right, area))
        above = runs
    return [(left, top, right, bottom) for area, (left, top, right, bottom) in enumerate(boxes) if roots[area] == area]


def _runs(row: np.ndarray) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0, append=0)).tolist()
    return ((begin, end) for index, (begin, end) in enumerate(pairwise(edges)) if index % 2 == 0)


def _root(roots: list[int], area: int) -> int:
    while roots[area] != area:
        roots[area] = area = roots[roots[area]]
    return area


def _around(one: list[int], other: list[int]) -> list[int]:
    return [min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])]


def _grown(marked: np.ndarray) -> np.ndarray:
    """Areas with one more pixel at each side, `GROWTH` times."""
    for _ in range(GROWTH):
        padded = np.pad(marked, 1)
        marked = marked | padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
    return marked


def _width(box: Box) -> int:
    left, top, right, bottom = box
    return min(ceil(HEIGHT * (right - left) / (bottom - top)), MAX_WIDTH) if bottom > top else 0


def _fill(line: np.ndarray, picture: np.ndarray, box: Box, width: int) -> None:
    """Draw a part of the picture into a line [3, 48, W], `width` pixels wide."""
    for target, channel in zip(line, picture, strict=True):
        resized = Image.fromarray(channel).resize((width, HEIGHT), Image.Resampling.BICUBIC, box=box)
        target[:, :width] = np.asarray(resized)
