"""Models whose layers a search has made different, as Nvidia's Puzzle does (Bercovich et al. 2024,
https://arxiv.org/abs/2411.19146): Llama-Nemotron Super and Ultra.

Each layer has a number of key heads and an MLP of its own. Attention or MLP may be missing, or be one matrix.
"""

from collections.abc import Mapping
from typing import Any

from runtimes.llm.model.family_features import Raw
from runtimes.llm.model.shapes.checks import UnsupportedModel, checked_count

_MULTIPLE = 256
"""Sizes of MLPs are rounded up to it."""
_UNSUPPORTED = (
    "sparsify",
    "window_length",
    "num_sink_tokens",
    "unshifted_sink",
    "use_prefill_window_in_sink_attention",
)


def layers(raw: Raw) -> Raw:
    """config.json with a size for the greatest MLP and the most key heads."""
    blocks = _blocks(raw)
    groups = [_group(raw, one["attention"]) for one in blocks if _kind(one["attention"]) == "whole"]
    sizes = [_size(raw, one["ffn"]) for one in blocks if _kind(one["ffn"]) == "whole"]
    if not groups or not sizes:
        raise UnsupportedModel("block_configs has no layer with attention, or none with an MLP")
    heads = checked_count("num_attention_heads", raw["num_attention_heads"])
    return {**raw, "num_key_value_heads": max(heads // group for group in groups), "intermediate_size": max(sizes)}


def heads(raw: Raw, layer: int) -> tuple[int, int] | None:
    """Key heads of a layer and their size, where they are fewer than in others."""
    attention, count = _blocks(raw)[layer]["attention"], raw["num_attention_heads"]
    keys = count // _group(raw, attention) if _kind(attention) == "whole" else raw["num_key_value_heads"]
    return None if keys == raw["num_key_value_heads"] else (keys, raw.get("head_dim") or raw["hidden_size"] // count)


def features(raw: Raw) -> dict[str, Any]:
    blocks, greatest = _blocks(raw), raw["intermediate_size"]
    attention, mlp = ([_kind(one[part]) for one in blocks] for part in ("attention", "ffn"))
    sizes = [_size(raw, one["ffn"]) if kind == "whole" else greatest for one, kind in zip(blocks, mlp, strict=True)]
    return {
        "unattended": frozenset(layer for layer, kind in enumerate(attention) if kind != "whole"),
        "straight_attention": frozenset(layer for layer, kind in enumerate(attention) if kind == "straight"),
        "without_mlp": frozenset(layer for layer, kind in enumerate(mlp) if kind != "whole"),
        "straight_mlp": frozenset(layer for layer, kind in enumerate(mlp) if kind == "straight"),
        "mlp_sizes": tuple(sizes) if set(sizes) != {greatest} else (),
    }


def _blocks(raw: Raw) -> list[Mapping[str, Any]]:
    blocks: list[Mapping[str, Any]] = raw["block_configs"]
    count = raw["num_hidden_layers"]
    fits = isinstance(blocks, list) and len(blocks) == count
    if not fits or not all(isinstance(one.get(part), dict) for one in blocks for part in ("attention", "ffn")):
        raise UnsupportedModel(f"block_configs has not an attention and an ffn for each of {count} layers")
    return blocks


def _kind(part: Mapping[str, Any]) -> str:
    for name in _UNSUPPORTED:
        if part.get(name):
            raise UnsupportedModel(f"{name} of block_configs is not supported for nemotron-nas")
    return "none" if part.get("no_op") else "straight" if part.get("replace_with_linear") else "whole"


def _group(raw: Raw, attention: Mapping[str, Any]) -> int:
    """The heads that share a key head."""
    count = raw["num_attention_heads"]
    group = checked_count("n_heads_in_group", attention.get("n_heads_in_group"), count)
    if count % group:
        raise UnsupportedModel(f"n_heads_in_group is {group}, of {count} heads")
    return group


def _size(raw: Raw, mlp: Mapping[str, Any]) -> int:
    if mlp.get("intermediate_size") is not None:
        return checked_count("intermediate_size of a layer", mlp["intermediate_size"])
    if not isinstance(factor := mlp.get("ffn_mult"), int | float):
        raise UnsupportedModel(f"ffn_mult of block_configs is {factor!r}")
    return -(-int(2 * factor * raw["hidden_size"] / 3) // _MULTIPLE) * _MULTIPLE
