"""`ts.torch_handler.text_classifier`: the probabilities of the classes of a text."""

from __future__ import annotations

from typing import Any

import torch

from runtimes.tensor.torchserve_api.context import Context
from runtimes.tensor.torchserve_api.text_handler import TextHandler
from runtimes.tensor.torchserve_api.utilities import map_class_to_label


class TextClassifier(TextHandler):
    """A model of numbers and offsets, such as an EmbeddingBag. Each request of a batch is computed alone."""

    ngrams = 2

    def preprocess(self, data: Any) -> Any:
        """The numbers of the first request."""
        return self.numbers(data[0].get("data") or data[0].get("body"), self.ngrams)

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        return super().inference(data, torch.tensor([0], device=self.device))

    def postprocess(self, data: Any) -> Any:
        return map_class_to_label(torch.softmax(data, dim=1).tolist(), self.mapping)

    def handle(self, data: Any, context: Context) -> Any:
        return [super(TextClassifier, self).handle([one], context)[0] for one in data]
