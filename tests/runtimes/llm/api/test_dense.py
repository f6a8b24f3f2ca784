"""Models whose vectors pass through dense layers, over a real socket: the modules applied by hand give the same."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.service import load
from tests.runtimes.llm.server_fixtures import MODEL, options_of, post, serving_model
from tests.support.embedders import vector_of, with_modules

TEXTS = ["A headrace brings the river to the turbines.", "x", "naïve café, 你好 😀"]


@pytest.fixture
def folder(tmp_path: Path, minilm: Path) -> Path:
    """The bundled encoder without its modules."""
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors", "config.json"):
        shutil.copy(minilm / name, tmp_path)
    return tmp_path


@torch.inference_mode()  # type: ignore[untyped-decorator]
def expected(folder: Path) -> Any:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    encoded = [tokenizer(text, return_tensors="pt")["input_ids"] for text in TEXTS]
    return np.stack([vector_of(folder, model(ids).last_hidden_state[0]).numpy() for ids in encoded])


async def embedded(folder: Path, **body: Any) -> Any:
    async with serving_model(load(options_of(folder, matryoshka=True))) as running:
        status, _, answer = await post(running, "/v1/embeddings", {"model": MODEL, "input": TEXTS} | body)
        assert status == 200, answer
    return np.array([entry["embedding"] for entry in answer["data"]])


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("dense", [[(384, 16, True, "Tanh")], [(384, 500, False, "Identity"), (500, 24, True, "Tanh")]])
async def test_vectors_are_those_of_the_modules(folder: Path, dense: Any, normalize: bool) -> None:
    with_modules(folder, dense=dense, normalize=normalize)
    made = await embedded(folder)
    np.testing.assert_allclose(made, expected(folder), atol=2e-4)
    cut = await embedded(folder, dimensions=8)
    np.testing.assert_allclose(cut, made[:, :8] / np.linalg.norm(made[:, :8], axis=1, keepdims=True), atol=1e-5)


async def test_embeddinggemma_beside_transformers(tmp_path: Path, minilm: Path) -> None:
    """Its layout: bidirectional, the mean, two dense layers without an activation, and length 1."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gemma3_text", vocab_size=30522, hidden_size=48, intermediate_size=64, num_hidden_layers=7,
        num_attention_heads=3, num_key_value_heads=1, head_dim=16, sliding_window=8, max_position_embeddings=128,
        use_bidirectional_attention=True, initializer_range=0.2,
    )  # fmt: skip
    AutoModel.from_config(config).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path)
    with_modules(tmp_path, dense=[(48, 96, False, "Identity"), (96, 48, False, "Identity")])
    made = await embedded(tmp_path)
    np.testing.assert_allclose(made, expected(tmp_path), atol=2e-4)
    for text, vector in zip(TEXTS, made, strict=True):
        [alone] = await embedded(tmp_path, input=[text])
        np.testing.assert_allclose(alone, vector, atol=1e-5)


async def test_a_layer_that_does_not_fit_is_refused(folder: Path) -> None:
    with_modules(folder, dense=[(384, 16, True, "Tanh"), (17, 8, False, "Identity")])
    with pytest.raises(UnsupportedModel, match="3_Dense takes 17 numbers; the vector before it has 16"):
        load(options_of(folder))
    with_modules(folder, dense=[(384, 16, False, "Tanh")])
    shutil.copy(folder / "3_Dense" / "model.safetensors", folder / "2_Dense")
    with pytest.raises(UnsupportedModel, match=r"weight of 2_Dense is \[8, 17\]"):
        load(options_of(folder))
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModel, match=r"2_Dense lacks model\.safetensors"):
        load(options_of(folder))
