"""Reading a picture with three models: the places of text, the orientation of each line, and its characters."""

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

Array = npt.NDArray[Any]
Infer = Callable[[str, Array], Array]
"""A session of a model, with its only input and its only output."""

HEIGHT = 48
"""The picture of a line in the form that the models require."""
UPSIDE_DOWN = 1


def picture() -> Array:
    """Two lines of text, the second of them upside down. Rows, columns, blue-green-red."""
    font = ImageFont.load_default(28)
    page = Image.new("RGB", (480, 192), "white")
    ImageDraw.Draw(page).text((20, 20), "Headrace 2026", fill="black", font=font)
    line = Image.new("RGB", (300, HEIGHT), "white")
    ImageDraw.Draw(line).text((10, 6), "turned around", fill="black", font=font)
    page.paste(line.rotate(180), (100, 110))
    return np.asarray(page)[:, :, ::-1]


def characters(metadata: str) -> list[str]:
    """The characters of the recogniser's classes: none, the model's own list, a space."""
    return ["", *metadata.splitlines(), " "]


def read(page: Array, alphabet: list[str], infer: Infer) -> list[str]:
    """The lines, from the top."""
    return [_decode_text(infer("ocr-recognise", _recognisable(line)), alphabet) for line in _upright(page, infer)]


def _upright(page: Array, infer: Infer) -> Iterator[Array]:
    for line in _lines(page, infer):
        turned = infer("ocr-classify", _fit(line, 192))[0].argmax() == UPSIDE_DOWN
        yield np.ascontiguousarray(line[::-1, ::-1]) if turned else line


def _lines(page: Array, infer: Infer) -> Iterator[Array]:
    text = infer("ocr-detect", _scaled(page)[None])[0, 0] > 0.3
    areas, _ = ndimage.label(ndimage.binary_dilation(text, iterations=2))
    for rows, columns in ndimage.find_objects(areas):
        margin = ceil((rows.stop - rows.start) * 0.35)  # the detector marks the middle of a line
        top, left = max(rows.start - margin, 0), max(columns.start - margin, 0)
        yield page[top : rows.stop + margin, left : columns.stop + margin]


def _recognisable(line: Array) -> Array:
    width = ceil(HEIGHT * line.shape[1] / line.shape[0] / 32) * 32
    return _fit(line, max(width, 320))


def _fit(line: Array, width: int) -> Array:
    """A batch of one: scaled to the height, and filled up on its right."""
    image = Image.fromarray(line)
    taken = min(width, ceil(HEIGHT * image.width / image.height))
    fitted = np.zeros((1, 3, HEIGHT, width), np.float32)
    fitted[0, :, :, :taken] = _scaled(np.asarray(image.resize((taken, HEIGHT))))
    return fitted


def _scaled(pixels: Array) -> Array:
    """Colours first, from -1 to 1."""
    return ((pixels.astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)


def _decode_text(scores: Array, alphabet: list[str]) -> str:
    """The best class of each step; repetitions are merged (Graves et al. 2006)."""
    best = scores[0].argmax(1)
    return "".join(alphabet[c] for i, c in enumerate(best) if i == 0 or best[i - 1] != c)
