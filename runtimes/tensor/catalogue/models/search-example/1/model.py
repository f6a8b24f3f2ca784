"""Searches a set of passages in memory, by the embeddings of the model `minilm`."""

import runpy
from pathlib import Path

import numpy as np

FOUND = 6
"""The number of passages in an answer, at most."""


class Model:
    def __init__(self, folder: Path) -> None:
        """`folder` is that of the version; `minilm` is beside the model's folder."""
        minilm = folder.parents[1] / "minilm"
        self._embed = runpy.run_path(str(minilm / "1" / "sentences.py"))["Embedder"](minilm)
        passages = (folder.parent / "passages.txt").read_text().splitlines()
        self._passages = np.array([passage.encode() for passage in passages], object)
        self._vectors = self._embed(passages)

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`query` [B, 1] → `passages` [B, 6] and their `similarity` [B, 6], the most similar first."""
        queries = self._embed([query.decode(errors="replace") for query in inputs["query"][:, 0]])
        similarity, places = (queries @ self._vectors.T).topk(min(FOUND, len(self._passages)))
        return {"passages": self._passages[places.numpy()], "similarity": similarity.numpy()}
