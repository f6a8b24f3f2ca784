"""The small models that the tensor runtime adds to a repository, and the extras that they need."""

from collections.abc import Mapping
from typing import Literal

BundledModel = Literal[
    "magika", "silero-vad", "silero-vad-jit", "minilm", "guard-example", "search-example", "speech-parts", "ocr-detect",
    "ocr-classify", "ocr-recognise", "ocr-crop", "ocr-turn", "ocr-text", "basic-pitch", "basic-pitch-tf",
]  # fmt: skip
"""The names of `headrace models list`."""
EXTRAS: Mapping[BundledModel, tuple[str, ...]] = {
    "magika": ("onnx",),
    "silero-vad": ("onnx",),
    "silero-vad-jit": ("torch",),
    "minilm": ("torch",),
    "guard-example": ("embeddings", "torch"),
    "search-example": ("embeddings", "torch"),
    "speech-parts": ("onnx",),
    "ocr-detect": ("onnx",),
    "ocr-classify": ("onnx",),
    "ocr-recognise": ("onnx",),
    "ocr-crop": ("pipelines",),
    "ocr-turn": (),
    "ocr-text": ("onnx",),
    "basic-pitch": ("onnx",),
    "basic-pitch-tf": ("tensorflow",),
}
"""The extras of each model, those of the models that it needs included. All need the extra ``tensor``."""
