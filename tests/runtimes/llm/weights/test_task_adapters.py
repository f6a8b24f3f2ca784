"""Jina v3 as its authors publish it: an adapter for each task in the model's own file, one of which is added."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModel

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.service import load
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from tests.runtimes.llm.server_fixtures import MODEL, options_of, post, serving_model
from tests.support.embedders import vector_of, with_modules

TASKS = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
TEXTS = ["A headrace brings the river to the turbines.", "x", "naïve café, 你好 😀"]
PROMPTS = {"retrieval.query": "Represent the query: ", "retrieval.passage": "Represent the document: "}
RANK = 4
SHAPE = {
    "vocab_size": 30522, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "type_vocab_size": 1,
}  # fmt: skip
OWN = {
    "model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 20000.0,
    "lora_adaptations": TASKS, "lora_rank": RANK, "lora_alpha": 1, "task_instructions": PROMPTS, "emb_pooler": "mean",
    "truncate_dim": None, "use_reg_tokens": False, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
    "matryoshka_dimensions": [8, 16],
}  # fmt: skip


def adapted(name: str, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The adapters of all tasks for a matrix."""
    rows, columns = weight.shape
    if name.startswith("embeddings"):
        return torch.randn(len(TASKS), rows, RANK), torch.randn(len(TASKS), RANK, columns)
    return torch.randn(len(TASKS), RANK, columns), torch.randn(len(TASKS), rows, RANK)


def published(folder: Path, minilm: Path) -> Path:
    """Write the model in the authors' layout. Returns a folder with transformers' layout, without adapters."""
    torch.manual_seed(0)
    config = AutoConfig.for_model("jina_embeddings_v3", **SHAPE, pad_token_id=1, initializer_range=0.2)
    AutoModel.from_config(config, add_pooling_layer=False).save_pretrained(folder / "plain")
    own = dict[str, Tensor]()
    for name, weight in load_file(folder / "plain" / "model.safetensors").items():
        if weight.dim() == 1:
            own[f"roberta.{name}"] = weight
            continue
        base = f"roberta.{name.removesuffix('.weight')}.parametrizations.weight"
        own[f"{base}.original"] = weight
        own[f"{base}.0.lora_A"], own[f"{base}.0.lora_B"] = adapted(name, weight)
    save_file(own, folder / "model.safetensors")
    shutil.copy(minilm / "tokenizer.json", folder)
    (folder / "config.json").write_text(json.dumps(SHAPE | OWN))
    with_modules(folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder / "plain"


def merge(folder: Path, plain: Path, task: str) -> None:
    """Add a task's adapter to the tensors of transformers' layout."""
    own, made = load_file(folder / "model.safetensors"), load_file(plain / "model.safetensors")
    for name in [name for name in own if name.endswith("lora_A")]:
        base = name.removesuffix(".parametrizations.weight.0.lora_A").removeprefix("roberta.")
        first, second = (own[name[:-1] + part][TASKS.index(task)] for part in "AB")
        change = first @ second if base.startswith("embeddings") else second @ first
        made[f"{base}.weight"] = made[f"{base}.weight"] + change / RANK
    save_file(made, plain / "model.safetensors", metadata={"format": "pt"})


async def embedded(folder: Path, **options: Any) -> Any:
    async with serving_model(load(options_of(folder, **options))) as running:
        status, _, answer = await post(running, "/v1/embeddings", {"model": MODEL, "input": TEXTS})
        assert status == 200, answer
    return np.array([entry["embedding"] for entry in answer["data"]])


@pytest.mark.parametrize("task", ["auto", "retrieval.query", "text-matching"])
async def test_a_task_has_its_vectors(tmp_path: Path, minilm: Path, task: str) -> None:
    plain = published(tmp_path, minilm)
    if task != "auto":
        merge(tmp_path, plain, task)
    theirs = AutoModel.from_pretrained(plain, add_pooling_layer=False).eval()
    tokenizer, prompt = load_tokenizer(tmp_path), PROMPTS.get(task, "")
    rows = [tokenizer.encode_whole(prompt + text) for text in TEXTS]
    with torch.inference_mode():
        states = [theirs(torch.tensor([row])).last_hidden_state[0] for row in rows]
    expected = [vector_of(tmp_path, one).numpy() for one in states]
    np.testing.assert_allclose(await embedded(tmp_path, task=task), expected, atol=2e-4)


def changed(folder: Path, **fields: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora_adaptations": ["separation"]}, "this one has separation"),
        ({"lora_adaptations": None}, "this one has none"),
        ({"lora_rank": 0}, "lora_rank 0"),
        ({"position_embedding_type": "absolute"}, "register tokens"),
        ({"use_reg_tokens": True}, "register tokens"),
        ({"truncate_dim": 64}, "shorter vectors"),
        ({"emb_pooler": "cls"}, "emb_pooler 'cls'"),
    ],
)
def test_another_model_of_jina_is_refused(tmp_path: Path, minilm: Path, fields: Any, message: str) -> None:
    published(tmp_path, minilm)
    with pytest.raises(UnsupportedModel, match=message):
        load(options_of(changed(tmp_path, **fields), task="retrieval.query"))


def test_an_adapter_of_another_shape_is_refused(tmp_path: Path, minilm: Path) -> None:
    published(tmp_path, minilm)
    file = tmp_path / "model.safetensors"
    name = "roberta.encoder.layers.0.mlp.fc1.parametrizations.weight.0.lora_A"
    save_file(load_file(file) | {name: torch.ones(5, RANK, 31)}, file)
    with pytest.raises(UnsupportedModel, match="of another shape than its tensor"):
        load(options_of(tmp_path, task="separation"))


def test_a_model_without_adapters_has_no_tasks(minilm: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"task: separation is for .*Jina v3.*this one has none"):
        load(options_of(minilm, task="separation"))
