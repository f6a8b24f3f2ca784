"""`ts.torch_handler.image_segmenter`: the class of each pixel, and its probability."""

from __future__ import annotations

from typing import Any

import torch

from runtimes.tensor.torchserve_api.vision_handler import VisionHandler


class ImageSegmenter(VisionHandler):
    """A model whose answer has logits as `out`: pictures, classes, rows, columns."""

    def postprocess(self, data: Any) -> Any:
        values, indices = torch.max(torch.softmax(data["out"], dim=1), dim=1)
        return torch.stack([indices.type(values.dtype), values], dim=3).tolist()
