"""Pictures, texts, models and archives for TorchServe's own handlers. Every number follows from a formula."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tests.support.torchserve_store import archive

NAMES = """{"0": ["n01", "tench"], "1": ["n02", "goldfish"], "2": "shark", "3": "ray", "4": "cock", "5": "hen",
 "6": "ostrich"}"""
DETECTOR = """
import torch

class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        answers = []
        for picture in x:
            means = picture.mean(dim=(1, 2)) * self.scale
            boxes = torch.stack([means.sum() * torch.arange(1.0, 5.0), torch.arange(4.0), -torch.arange(4.0)])
            scores = torch.stack([means.max() / 2 + 0.5, torch.tensor(0.49), torch.tensor(0.5)])
            answers.append({"boxes": boxes, "labels": torch.tensor([1, 2, 6]), "scores": scores})
        return answers
"""


WORDS = """
import torch

class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(12, 3)

    def forward(self, numbers, offsets):
        return self.embedding(numbers, offsets)
"""
TEXTS = {
    "plain": "the cat sat, the cat can't",
    "marked": "<b>The</b>  CÁT&amp; don't   sat! ain't <br />o'clock",
}


VOCABULARY = dict(
    zip(
        ["<unk>", "the", "cat", "sat", "cannot", "do", "not", "as", "the cat", "cat sat", "of", "clock"],
        range(12),
        strict=True,
    )
)


class Classifier(torch.nn.Module):  # type: ignore[misc]
    """Logits of means over parts of a picture, so that a pixel in another place changes them."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = torch.nn.AdaptiveAvgPool2d(4)
        self.line = torch.nn.Linear(48, 7)
        with torch.no_grad():
            self.line.weight.copy_(torch.sin(torch.arange(7 * 48.0)).view(7, 48))
            self.line.bias.copy_(torch.cos(torch.arange(7.0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(self.pool(x).flatten(1))


class Segmenter(torch.nn.Module):  # type: ignore[misc]
    """Logits of three classes for each of 64 parts."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = torch.nn.AdaptiveAvgPool2d(8)
        self.mix = torch.nn.Conv2d(3, 3, 1)
        with torch.no_grad():
            self.mix.weight.copy_(torch.sin(torch.arange(9.0)).view(3, 3, 1, 1))
            self.mix.bias.zero_()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.mix(self.pool(x))}


def picture(width: int, height: int, mode: str = "RGB") -> bytes:
    """A picture as PNG, in colours that change with the place."""
    rows, columns = np.mgrid[0:height, 0:width]
    channels = [(rows * 7 + columns * 3) % 256, (rows * columns) % 256, (columns * 11) % 256]
    made = Image.fromarray(np.stack(channels, axis=2).astype(np.uint8)).convert(mode)
    made.save(buffer := io.BytesIO(), "PNG")
    return buffer.getvalue()


PICTURES = {"wide": (301, 129), "high": (40, 77), "exact": (256, 256)}


def own_handlers_store(store: Path) -> Path:
    """A store with an archive for each handler: `classes`, `pixels`, `objects` and `words`."""

    def script(module: torch.nn.Module, size: int = 224) -> bytes:
        with warnings.catch_warnings(action="ignore"):
            traced = torch.jit.trace(module.eval(), torch.zeros(1, 3, size, size), strict=False)
            torch.jit.save(traced, buffer := io.BytesIO())
        return buffer.getvalue()

    names: dict[str, Any] = {"index_to_name.json": NAMES}
    more = {"serializedFile": "w.pt"}
    batch = "batchSize: 4\nmaxBatchDelay: 50\n"
    files = {**names, "w.pt": script(Classifier())}
    archive(store / "classes.mar", "classes", "image_classifier", files, settings=batch, **more)
    archive(store / "pixels.mar", "pixels", "image_segmenter", {"w.pt": script(Segmenter())}, **more)
    torch.save({"scale": torch.full((1,), 0.75)}, buffer := io.BytesIO())
    files = {**names, "w.pt": buffer.getvalue(), "detector.py": DETECTOR}
    archive(store / "objects.mar", "objects", "object_detector", files, **more, modelFile="detector.py")
    table = torch.sin(torch.arange(36.0)).view(12, 3)
    weights, vocabulary = io.BytesIO(), io.BytesIO()
    torch.save({"embedding.weight": table}, weights)
    torch.save(VOCABULARY, vocabulary)
    files = {"w.pt": weights.getvalue(), "words.py": WORDS, "source_vocab.pt": vocabulary.getvalue(), **names}
    archive(store / "words.mar", "words", "text_classifier", files, settings=batch, **more, modelFile="words.py")
    return store
