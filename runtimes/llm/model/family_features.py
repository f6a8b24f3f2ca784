"""What is special in families of decoders: fields of `ModelShape`, computed from config.json.

A function has the fields of one family, or those that several have. Each raises KeyError for a field that config.json
must have, and UnsupportedModel for one that changes what is computed.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtimes.llm.model.model_config import (
    ExpertShape,
    IndexShape,
    LatentShape,
    QueryGrowth,
    UnsupportedModel,
    checked_count,
)

Raw = Mapping[str, Any]


# ── experts ───────────────────────────────────────────────────────────────────────────────────────────


def experts(raw: Raw, size: str = "moe_intermediate_size", **how: Any) -> ExpertShape:
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    count = next((raw[name] for name in names if raw.get(name) is not None), None)
    if count is None:
        raise KeyError(names[0])
    chosen = raw["moe_k"] if "moe_k" in raw else raw["num_experts_per_tok"]
    return ExpertShape(count=count, chosen=chosen, intermediate_size=raw[size], **how)


def qwen_moe(raw: Raw) -> dict[str, Any]:
    shared = raw.get("shared_expert_intermediate_size") or 0
    step, dense = raw.get("decoder_sparse_step") or 1, raw.get("mlp_only_layers") or []
    return {
        "experts": experts(
            raw, normalized=bool(raw.get("norm_topk_prob")), shared_size=shared, shared_gate=bool(shared)
        ),
        "dense_layers": frozenset(
            layer for layer in range(raw["num_hidden_layers"]) if layer in dense or (layer + 1) % step
        ),
    }


def deepseek_moe(raw: Raw) -> dict[str, Any]:
    """A sigmoid, a bias for the choice, groups, and shared experts, which are one MLP."""
    mixture = experts(
        raw,
        scoring="sigmoid",
        normalized=bool(raw.get("norm_topk_prob", True)),
        scale=raw.get("routed_scaling_factor", 1.0),
        groups=raw.get("n_group") or 1,
        chosen_groups=raw.get("topk_group") or 1,
        selection_bias=True,
        shared_size=raw["moe_intermediate_size"] * (raw.get("n_shared_experts") or 0),
    )
    return {"experts": mixture, "dense_layers": frozenset(range(raw.get("first_k_dense_replace") or 0))}


def mistral4_rope(raw: Raw) -> Raw:
    """config.json whose part of a head that is turned is that of `qk_rope_head_dim`, which is all of it."""
    name = "rope_scaling" if raw.get("rope_scaling") else "rope_parameters"
    rope = dict(raw.get(name) or {})
    rope.pop("partial_rotary_factor", None)
    return {**raw, name: rope}


def mistral4(raw: Raw) -> dict[str, Any]:
    """A softmax, groups by their two best experts, and queries that grow."""
    given = deepseek_moe(raw)
    mixture = replace(given["experts"], scoring="softmax", selection_bias=False)
    return latent(raw) | ministral(raw) | given | {"experts": mixture}


def deepseek_v2(raw: Raw) -> dict[str, Any]:
    """A softmax, and groups by their best expert alone."""
    if (method := raw.get("topk_method") or "greedy") not in ("greedy", "group_limited_greedy"):
        raise UnsupportedModel(f"topk_method {method!r} is not supported for deepseek_v2")
    grouped = method != "greedy"
    mixture = experts(
        raw,
        normalized=bool(raw.get("norm_topk_prob")),
        scale=raw.get("routed_scaling_factor", 1.0),
        groups=(raw.get("n_group") or 1) if grouped else 1,
        chosen_groups=(raw.get("topk_group") or 1) if grouped else 1,
        best_of_group=1,
        shared_size=raw["moe_intermediate_size"] * (raw.get("n_shared_experts") or 0),
    )
    dense = frozenset(range(raw.get("first_k_dense_replace") or 0))
    return latent(raw) | {"experts": mixture, "dense_layers": dense}


def sparse(raw: Raw, neighbours: bool) -> dict[str, Any]:
    """Latent attention to the positions that indexers select."""
    given = glm_moe_lite(raw)
    index = IndexShape(
        heads=raw["index_n_heads"],
        size=raw["index_head_dim"],
        most=raw["index_topk"],
        layers=_indexing(raw) if neighbours else frozenset(range(raw["num_hidden_layers"])),
        neighbours=neighbours,
    )
    return given | {"latent": replace(given["latent"], index=index)}


def _indexing(raw: Raw) -> frozenset[int]:
    """Layers with an indexer of their own: as listed, by a pattern of F and S, or every so many."""
    layers, types = range(raw["num_hidden_layers"]), raw.get("indexer_types")
    if types is None and (pattern := raw.get("index_topk_pattern")) is not None:
        types = ["full" if one in ("F", "full") else "shared" for one in pattern]
    if types is None:
        step, offset = max(raw.get("index_topk_freq") or 1, 1), raw.get("index_skip_topk_offset", 2)
        types = ["shared" if max(layer - offset + 1, 0) % step else "full" for layer in layers]
    if len(types) != len(layers) or not set(types) <= {"full", "shared"}:
        raise UnsupportedModel(f"indexer_types is {types!r}, which is not {len(layers)} times full or shared")
    return frozenset(layer for layer, kind in enumerate(types) if kind == "full")


def glm_moe_lite(raw: Raw) -> dict[str, Any]:
    types = raw.get("mlp_layer_types") or ["dense"] * (raw.get("first_k_dense_replace") or 1)
    dense = frozenset(layer for layer, kind in enumerate(types) if kind == "dense")
    return deepseek_moe(raw) | latent(raw) | {"dense_layers": dense}


def latent(raw: Raw) -> dict[str, Any]:
    """DeepSeek's attention. YaRN's strength also scales its scores."""
    shape = LatentShape(
        query_rank=raw.get("q_lora_rank") or 0,
        rank=raw["kv_lora_rank"],
        plain_dim=raw["qk_nope_head_dim"],
        turned_dim=raw["qk_rope_head_dim"],
        value_dim=raw["v_head_dim"],
        neighbours=raw.get("rope_interleave", True) is not False,
    )
    scale = (shape.plain_dim + shape.turned_dim) ** -0.5
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    strength, factor = rope.get("mscale_all_dim") or 0, rope.get("factor") or 1
    if strength and factor > 1:
        scale *= (0.1 * strength * math.log(factor) + 1) ** 2
    size = shape.rank + shape.turned_dim
    return {"latent": shape, "num_kv_heads": 1, "head_dim": size, "attention_scale": scale}


def ernie_moe(raw: Raw) -> dict[str, Any]:
    layers, interval = raw["num_hidden_layers"], raw.get("moe_layer_interval") or 1
    first, last = raw.get("moe_layer_start_index") or 0, raw.get("moe_layer_end_index", -1)
    last = layers - 1 if last == -1 else last
    shared = raw["moe_intermediate_size"] * (raw.get("moe_num_shared_experts") or 0)
    return ernie(raw) | {
        "experts": experts(raw, normalized=True, selection_bias=True, shared_size=shared),
        "dense_layers": frozenset(
            layer for layer in range(layers) if not (first <= layer <= last and (layer + 1) % interval == 0)
        ),
    }


# ── what is special ───────────────────────────────────────────────────────────────────────────────────


def gemma(raw: Raw) -> dict[str, Any]:
    return {"embedding_multiplier": raw["hidden_size"] ** 0.5}


def gemma1(raw: Raw) -> dict[str, Any]:
    """Its first files name GELU where the approximation is meant."""
    exact = raw["hidden_act"] == "gelu" and not raw.get("hidden_activation")
    return gemma(raw) | ({"activation": "gelu_tanh"} if exact else {})


def gemma2(raw: Raw) -> dict[str, Any]:
    return gemma(raw) | {
        "attention_scale": raw["query_pre_attn_scalar"] ** -0.5,
        "attention_soft_cap": raw.get("attn_logit_softcapping"),
        "logits_soft_cap": raw.get("final_logit_softcapping"),
        "post_norms": True,
    }


GRANITE = {
    "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1.0,
}  # fmt: skip


def granite(raw: Raw) -> dict[str, Any]:
    return {
        "attention_scale": raw["attention_multiplier"],
        "embedding_multiplier": raw["embedding_multiplier"],
        "residual_multiplier": raw["residual_multiplier"],
        "logits_multiplier": 1 / raw["logits_scaling"],
    }


def granite_moe(raw: Raw) -> dict[str, Any]:
    shared = raw.get("shared_intermediate_size") or 0
    return granite(raw) | {
        "experts": experts(raw, "intermediate_size", scoring="softmax_of_chosen", shared_size=shared)
    }


def cohere(raw: Raw) -> dict[str, Any]:
    return {"norm": "layer", "parallel": True, "logits_multiplier": raw["logit_scale"]}


def ernie(raw: Raw) -> dict[str, Any]:
    bias = bool(raw.get("use_bias"))
    return {"qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias}


def phi_moe(raw: Raw) -> dict[str, Any]:
    jitter = raw["router_jitter_noise"]
    return {
        "norm": "layer_biased",
        "head_bias": bool(raw.get("lm_head_bias")),
        "experts": experts(raw, "intermediate_size", scoring="sparsemixer", jitter=jitter),
    }


def gpt_oss(raw: Raw) -> dict[str, Any]:
    return {
        "sinks": True,
        "activation": "clamped_swiglu",
        "swiglu": (raw["swiglu_alpha"], raw["swiglu_limit"]),
        "experts": experts(raw, "intermediate_size", scoring="softmax_of_chosen", biases=True),
    }


def lfm2(raw: Raw) -> dict[str, Any]:
    layers, size = raw["num_hidden_layers"], raw["intermediate_size"]
    listed, attending = raw.get("layer_types"), raw.get("full_attn_idxs")
    if listed is None:
        listed = ["full_attention" if attending is None or i in attending else "conv" for i in range(layers)]
    if len(listed) != layers or not set(listed) <= {"conv", "full_attention"}:
        raise UnsupportedModel(f"layer_types is {listed!r}, which is not {layers} times conv or full_attention")
    if raw.get("block_auto_adjust_ff_dim", True):
        multiple = checked_count("block_multiple_of", raw.get("block_multiple_of", 256))
        size = int(2 * size / 3)
        if (factor := raw.get("block_ffn_dim_multiplier", 1.0)) is not None:
            size = multiple * -(-int(factor * size) // multiple)
    return {
        "intermediate_size": size,
        "qk_norm": "head",
        "conv_layers": frozenset(index for index, kind in enumerate(listed) if kind == "conv"),
        "conv_length": raw.get("conv_L_cache", 3),
        "conv_bias": bool(raw.get("conv_bias")),
    }


def ministral(raw: Raw) -> dict[str, Any]:
    rope = raw.get("rope_scaling") or raw.get("rope_parameters")
    if not rope:
        raise KeyError("rope_parameters")  # transformers has a default of its own in their place
    beta = rope.get("llama_4_scaling_beta")
    return {"query_growth": QueryGrowth(beta, rope["original_max_position_embeddings"]) if beta else None}


def llama4_layers(raw: Raw) -> Raw:
    """config.json with the kind of each layer: every fourth has no positions, and attends to all tokens."""
    layers, interval = raw["num_hidden_layers"], checked_count("no_rope_layer_interval", raw["no_rope_layer_interval"])
    turned = raw.get("no_rope_layers") or [(layer + 1) % interval for layer in range(layers)]
    if not isinstance(turned, list) or len(turned) < layers:
        raise UnsupportedModel(f"no_rope_layers has not one number for each of {layers} layers")
    pieces = [bool(one) and raw.get("attention_chunk_size") is not None for one in turned[:layers]]
    types = raw.get("layer_types") or [("chunked" if one else "full") + "_attention" for one in pieces]
    return {**raw, "no_rope_layers": turned, "layer_types": types}


def llama4(raw: Raw) -> dict[str, Any]:
    layers, size = range(raw["num_hidden_layers"]), raw["intermediate_size"]
    step = checked_count("interleave_moe_layer_step", raw["interleave_moe_layer_step"])
    mixed = raw.get("moe_layers")
    mixed = [layer for layer in layers if (layer + 1) % step == 0] if mixed is None else mixed
    grows = raw["attn_temperature_tuning"]
    return {
        "intermediate_size": raw["intermediate_size_mlp"],
        "experts": experts(raw, "intermediate_size", scoring="sigmoid", shared_size=size, weighs_inputs=True),
        "dense_layers": frozenset(layers) - frozenset(mixed),
        "qk_norm": "turned_alone" if raw["use_qk_norm"] else None,
        "query_growth": QueryGrowth(raw["attn_scale"], raw["floor_scale"], 1, True) if grows else None,
    }


def mllama_layers(raw: Raw) -> Raw:
    """config.json without the layers that attend to pictures: a text passes them by."""
    seeing = set(raw["cross_attention_layers"] or ())
    stored = [layer for layer in range(raw["num_hidden_layers"]) if layer not in seeing]
    return {**raw, "num_hidden_layers": len(stored), "stored_layers": stored}


def gpt2(raw: Raw) -> dict[str, Any]:
    if not raw.get("scale_attn_weights", True) or raw.get("scale_attn_by_inverse_layer_idx"):
        raise UnsupportedModel("a GPT-2 whose scores are scaled by layer, or not at all, is not supported")
    return biased_layers(raw) | ernie({"use_bias": True}) | {"position_embeddings": True}


def biased_layers(raw: Raw) -> dict[str, Any]:
    """LayerNorm with biases, and an MLP without a gate."""
    return {"norm": "layer_biased", "gated": False}


def qwen2(raw: Raw) -> dict[str, Any]:
    return {"qkv_bias": bool(raw.get("qkv_bias", True)), "attention_out_bias": False}


def query_bias_alone(raw: Raw) -> dict[str, Any]:
    """`attention_bias` is that of queries, keys and values."""
    return {"attention_out_bias": False}
