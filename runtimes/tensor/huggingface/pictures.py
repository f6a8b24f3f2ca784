"""Tasks of pictures: their classes, and the objects in them.

A picture is a file, or pixels in RGB. Its format, size and parts are bounded before it is decompressed
(`adapters.wire.media.images`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from PIL import Image

from adapters.errors import CallerError, TooLarge
from adapters.wire.media.images import MAX_PIXELS, decode_rgb
from runtimes.tensor.huggingface.folder import PipelineSettings
from runtimes.tensor.huggingface.rows import PipelineTask, column, json_of, named, ragged
from runtimes.tensor.huggingface.texts import Scores
from runtimes.tensor.interfaces import Array, Tensors

MAX_RATIO: Final = 100
"""The longest shape. Processors that enlarge the shorter side would make gigabytes of a line of pixels."""


class PictureTask(PipelineTask):
    @property
    def examples(self) -> Sequence[Any]:
        random = np.random.default_rng(3)
        sizes = ((32, 48), (40, 40), (64, 32))
        return [Image.fromarray(random.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]

    def read(self, inputs: Tensors, row: int) -> Any:
        if ("args" in inputs) == ("pixels" in inputs):
            raise CallerError("send either `args`, which are files, or `pixels`.", param="args")
        if (files := inputs.get("args")) is not None:
            return _of_usual_shape(decode_rgb(files[row], "args"), "args")
        pixels = inputs["pixels"][row]
        height, width = pixels.shape[:2]
        if not height or not width:
            raise CallerError("`pixels` has no pixels: the shape is [rows, height, width, 3].", param="pixels")
        if height * width > (most := max(MAX_PIXELS.values())):
            raise TooLarge(f"`pixels` has {height * width} pixels in a row, and {most} is the most.", param="pixels")
        return _of_usual_shape(Image.fromarray(np.ascontiguousarray(pixels)), "pixels")

    def size(self, item: Any) -> Hashable:
        return item.width, item.height

    def cost(self, item: Any) -> int:
        pixels: int = item.width * item.height
        return 3 * pixels


def _of_usual_shape(picture: Image.Image, name: str) -> Image.Image:
    """The picture itself. Raises `CallerError` for a line of pixels."""
    if max(picture.size) > MAX_RATIO * min(picture.size):
        size = f"{picture.width} × {picture.height}"
        raise CallerError(f"`{name}` has {size} pixels: at most {MAX_RATIO} times as long as wide.", param=name)
    return picture


class ImageClassification(PictureTask):
    TOP = 5
    """Classes in the JSON, as the pipeline has them."""

    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        super().__init__(pipe, settings)
        self._scores = Scores(pipe)

    def compute(self, items: list[Any], *, together: bool) -> list[Any]:
        from transformers import Pipeline

        size = len(items) if together else 1
        results: list[Any] = Pipeline.__call__(self.pipe, items, batch_size=size, top_k=len(self._scores.names))
        return results

    def values(self, result: Any) -> Mapping[str, Any]:
        return self._scores.values(result, self.TOP)

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        return self._scores.outputs(rows)


class ObjectDetection(PictureTask):
    """The objects of a picture. A box is the place of its left, upper, right and lower side, in pixels."""

    def compute(self, items: list[Any], *, together: bool) -> list[Any]:
        from transformers import Pipeline

        results: list[Any] = Pipeline.__call__(
            self.pipe, items, batch_size=len(items) if together else 1, threshold=self.settings.threshold
        )
        return results

    def values(self, result: Any) -> Mapping[str, Any]:
        return {
            "output": json_of(result),
            "labels": [one["label"] for one in result],
            "scores": [one["score"] for one in result],
            "boxes": [[one["box"][side] for side in ("xmin", "ymin", "xmax", "ymax")] for one in result],
        }

    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        return {
            "output": column(named(rows, "output"), object),
            "labels": ragged(named(rows, "labels"), object),
            "scores": ragged(named(rows, "scores"), np.float32),
            "boxes": ragged(named(rows, "boxes"), np.float32, (4,)),
            "count": column([len(row or ()) for row in named(rows, "labels")], np.int32),
        }
