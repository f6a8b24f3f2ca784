"""Embeddings of texts, for programs of other models that read this model's files."""

import runpy
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

TOKENS = 256
"""The number of tokens of a text that are read, at most."""


class Embedder:
    """Texts as unit vectors [n, 384]. `folder` is that of the model, not of a version."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self._encoder = runpy.run_path(str(folder / "1" / "model.py"))["Model"]()
        self._encoder.load_state_dict(load_file(folder / "1" / "model.safetensors"))
        self._encoder.eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.enable_padding()

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        tokens = self._tokenizer.encode_batch(list(texts))
        ids = torch.tensor([each.ids for each in tokens])
        mask = torch.tensor([each.attention_mask for each in tokens])
        embedding: Tensor = self._encoder(ids, mask)["sentence_embedding"]
        return embedding
