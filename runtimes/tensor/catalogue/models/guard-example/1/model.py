"""Compares texts with examples of harmful and of harmless requests, by the embeddings of the model `minilm`."""

import runpy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

TOKENS = 256
"""Tokens of a text that are read."""


class Model:
    def __init__(self, folder: Path) -> None:
        """`folder` is that of the version; `minilm` is beside the model's folder."""
        torch.set_num_threads(1)
        minilm = folder.parents[1] / "minilm"
        self._embedder = runpy.run_path(str(minilm / "1" / "model.py"))["Model"]()
        self._embedder.load_state_dict(load_file(minilm / "1" / "model.safetensors"))
        self._embedder.eval()
        self._tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.enable_padding()
        self._harmful, self._harmless = (
            self._embed((folder.parent / name).read_text().splitlines()) for name in ("harmful.txt", "harmless.txt")
        )

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`text` [B, 1] → `score` [B, 1]: the similarity to the nearest harmful example less that to a harmless one."""
        texts = self._embed([text.decode(errors="replace") for text in inputs["text"][:, 0]])
        score = (texts @ self._harmful.T).amax(1) - (texts @ self._harmless.T).amax(1)
        return {"score": score[:, None].numpy()}

    @torch.inference_mode()
    def _embed(self, texts: Sequence[str]) -> Tensor:
        """Texts as unit vectors [n, 384]."""
        tokens = self._tokenizer.encode_batch(list(texts))
        ids = torch.tensor([each.ids for each in tokens])
        mask = torch.tensor([each.attention_mask for each in tokens])
        embedding: Tensor = self._embedder(ids, mask)["sentence_embedding"]
        return embedding
