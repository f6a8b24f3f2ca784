"""Encoders as llama.cpp's converter writes them (https://github.com/ggml-org/llama.cpp/blob/master/conversion/bert.py)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
from safetensors.torch import load_file
from torch import Tensor

NORMAL, CONTROL = 1, 3
POOLINGS = {"mean": 1, "cls": 2, "last": 3, "rank": 4}


def write_encoder(
    path: Path,
    folder: Path,
    architecture: str,
    *,
    pooling: str | None = "mean",
    fields: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
    tokenizer: bool = True,
) -> Path:
    """The model in `folder` under the names of gguf's own table. `fields` and `tensors` are more of them, or others."""
    raw = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (_fields(raw) | dict(fields or {})).items():
        _add(writer, f"{architecture}.{key}", value)
    if pooling is not None:
        _add(writer, f"{architecture}.pooling_type", POOLINGS[pooling])
    if tokenizer:
        _add_wordpiece(writer, json.loads((folder / "tokenizer.json").read_text()))
    for name, weight in (_named(folder, raw, architecture) | dict(tensors or {})).items():
        writer.add_tensor(name, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _fields(raw: dict[str, Any]) -> dict[str, Any]:
    keys = {
        "embedding_length": ("hidden_size", "n_embd", "d_model"),
        "feed_forward_length": ("intermediate_size", "n_inner", "d_ff"),
        "block_count": ("num_hidden_layers", "n_layer", "num_layers"),
        "attention.head_count": ("num_attention_heads", "n_head", "num_heads"),
        "attention.head_count_kv": ("num_key_value_heads",),
        "attention.key_length": ("head_dim", "d_kv"),
        "attention.layer_norm_epsilon": ("layer_norm_eps", "norm_eps", "layer_norm_epsilon"),
        "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "layer_norm_epsilon"),
        "attention.sliding_window": ("sliding_window", "local_attention"),
        "context_length": ("max_position_embeddings", "n_positions"),
    }
    given = {key: next((raw[name] for name in names if name in raw), None) for key, names in keys.items()}
    return {key: value for key, value in given.items() if value is not None} | {"attention.causal": False}


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_string(key, value)


def _named(folder: Path, raw: dict[str, Any], architecture: str) -> dict[str, Tensor]:
    kind = next(arch for arch, title in gguf.MODEL_ARCH_NAMES.items() if title == architecture)
    layers = next(raw[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in raw)
    names = gguf.get_tensor_name_map(kind, layers)
    made: dict[str, Tensor] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if name.startswith("pooler.") or "position_ids" in name:
            continue
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        offset = architecture == "gemma-embedding" and name.endswith("norm.weight")
        if name == "embeddings.position_embeddings.weight" and raw["model_type"] != "bert":
            weight = weight[raw["pad_token_id"] + 1 :]
        made[stored] = weight + 1 if offset else weight
    return made


def _add_wordpiece(writer: Any, tokenizer: dict[str, Any]) -> None:
    """With phantom spaces: a word begins with one, and its other pieces lose their ##."""
    vocab: dict[str, int] = tokenizer["model"]["vocab"]
    special = {token["content"] for token in tokenizer["added_tokens"] if token["special"]}
    ordered = sorted(vocab, key=vocab.__getitem__)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")
    writer.add_token_list([
        token if token in special else token[2:] if token.startswith("##") else f"▁{token}" for token in ordered
    ])  # fmt: skip
    writer.add_token_types([CONTROL if token in special else NORMAL for token in ordered])
    for role, token in (("unknown", "[UNK]"), ("seperator", "[SEP]"), ("padding", "[PAD]"), ("cls", "[CLS]")):
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", vocab[token])
