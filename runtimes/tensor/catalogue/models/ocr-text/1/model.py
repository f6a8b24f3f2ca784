"""Decodes the probabilities of characters along lines of text."""

from pathlib import Path

import numpy as np
import onnxruntime


class Model:
    def __init__(self, folder: Path) -> None:
        """`folder` is that of the version; `ocr-recognise` is beside the model's folder."""
        recogniser = folder.parents[1] / "ocr-recognise" / "1" / "model.onnx"
        session = onnxruntime.InferenceSession(recogniser, providers=["CPUExecutionProvider"])
        listed = session.get_modelmeta().custom_metadata_map["character"]
        self._alphabet = ["", *listed.splitlines(), " "]

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`scores` [B, T, 6625] → `text` [B, 1]: the best class of each step, without repetitions (Graves 2006)."""
        texts = [self._text(best) for best in inputs["scores"].argmax(2)]
        return {"text": np.array([[text.encode()] for text in texts], object)}

    def _text(self, best: np.ndarray) -> str:
        first = np.diff(best, prepend=-1) != 0
        return "".join(self._alphabet[index] for index in best[first])
