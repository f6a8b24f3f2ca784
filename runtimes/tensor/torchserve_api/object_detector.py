"""`ts.torch_handler.object_detector`: the objects in a picture, with their boxes."""

from __future__ import annotations

from typing import Any, Final

import torch

from runtimes.tensor.torchserve_api.utilities import PredictionException, map_class_to_label
from runtimes.tensor.torchserve_api.vision_handler import VisionHandler, to_tensor

MAX_PIXELS: Final = 1 << 25
"""A model gets all pixels of a picture, in float32: these are 384 MiB."""


def whole(picture: Any) -> torch.Tensor:
    """All pixels. Raises `PredictionException` for more than `MAX_PIXELS`."""
    width, height = picture.size
    if width * height > MAX_PIXELS:
        message = f"The request's picture has {width} × {height} pixels. Send at most {MAX_PIXELS:,}."
        raise PredictionException(message, 400)
    return to_tensor(picture)


class ObjectDetector(VisionHandler):
    """A model whose answer has `boxes`, `labels` and `scores` for each picture."""

    image_processing = staticmethod(whole)
    threshold = 0.5

    def postprocess(self, data: Any) -> Any:
        if isinstance(data, tuple) and len(data) == 2:  # a script of torchvision's, which answers losses first
            data = data[1]
        return [self._objects(one) for one in data]

    def _objects(self, one: Any) -> list[dict[str, Any]]:
        chosen = one["scores"] >= self.threshold
        boxes, labels, scores = (one[name][chosen].tolist() for name in ("boxes", "labels", "scores"))
        return [
            {**map_class_to_label([[box]], self.mapping, [[label]])[0], "score": score}
            for box, label, score in zip(boxes, labels, scores, strict=True)
        ]
