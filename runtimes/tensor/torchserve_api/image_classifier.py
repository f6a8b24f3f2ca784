"""`ts.torch_handler.image_classifier`: the five most probable classes of a picture."""

from __future__ import annotations

from typing import Any

import torch

from runtimes.tensor.torchserve_api.utilities import map_class_to_label
from runtimes.tensor.torchserve_api.vision_handler import VisionHandler


class ImageClassifier(VisionHandler):
    """A model of logits; its answers are probabilities by the names of `index_to_name.json`, the highest first."""

    topk = 5

    def set_max_result_classes(self, topk: int) -> None:
        self.topk = topk

    def get_max_result_classes(self) -> int:
        return self.topk

    def postprocess(self, data: Any) -> Any:
        probabilities = torch.softmax(data, dim=1)
        values, classes = torch.topk(probabilities, min(self.topk, probabilities.shape[1]), dim=1)
        return map_class_to_label(values.tolist(), self.mapping, classes.tolist())
