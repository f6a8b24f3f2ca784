"""Compares texts with examples of harmful and of harmless requests, by the embeddings of the model `minilm`."""

import runpy
from pathlib import Path

import numpy as np


class Model:
    def __init__(self, folder: Path) -> None:
        """`folder` is that of the version; `minilm` is beside the model's folder."""
        minilm = folder.parents[1] / "minilm"
        self._embed = runpy.run_path(str(minilm / "1" / "sentences.py"))["Embedder"](minilm)
        self._harmful, self._harmless = (
            self._embed((folder.parent / name).read_text().splitlines()) for name in ("harmful.txt", "harmless.txt")
        )

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`text` [B, 1] → `score` [B, 1]: the similarity to the nearest harmful example less that to a harmless one."""
        texts = self._embed([text.decode(errors="replace") for text in inputs["text"][:, 0]])
        score = (texts @ self._harmful.T).amax(1) - (texts @ self._harmless.T).amax(1)
        return {"score": score[:, None].numpy()}
