"""What is special in families of encoders: fields of `EncoderConfig` from config.json."""

from collections.abc import Mapping
from typing import Any

from runtimes.llm.model.encoders.distances import Disentangled
from runtimes.llm.model.model_config import Rope, UnsupportedModel, checked_count
from runtimes.llm.model.shapes.checks import MOST

Raw = Mapping[str, Any]


def after_padding(raw: Raw) -> dict[str, Any]:
    """Positions begin after the padding token's."""
    return {"first_position": raw.get("pad_token_id", 1) + 1}


def rope(raw: Raw, layer_type: str | None = None, theta: float = 10_000.0) -> Rope:
    from runtimes.llm.model.rope import rope_of  # needs torch, and the table does not

    head_dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    given = raw.get("rope_parameters") or {}
    given = (given.get(layer_type) or {}) if layer_type in given else given
    parameters = {"rope_theta": theta, **{name: value for name, value in given.items() if value is not None}}
    return rope_of(parameters, head_dim, raw["max_position_embeddings"])


def nomic(raw: Raw) -> dict[str, Any]:
    """RoPE and a gate, without biases, as the authors' own code and transformers call it."""
    if raw.get("prenorm") or raw.get("use_rms_norm") or raw.get("rotary_emb_interleaved"):
        raise UnsupportedModel("a Nomic model with other norms or another order of rotations is not supported")
    if raw.get("rotary_emb_scale_base") or raw.get("rotary_emb_fraction", 1.0) != 1.0:
        raise UnsupportedModel("a Nomic model whose rotation is scaled or partial is not supported")
    if raw.get("parallel_block") or raw.get("causal"):
        raise UnsupportedModel("a Nomic model with parallel_block or causal is not supported")
    for name, usual in (("activation_function", "swiglu"), ("hidden_act", "silu")):
        if (given := raw.get(name, usual)) != usual:
            raise UnsupportedModel(f"{name} {given!r} is not supported for a Nomic model; {usual} is")
    # Longer texts than it was trained with are turned by another base, which depends on their length.
    trained = checked_count("max_trained_positions", raw.get("max_trained_positions", 2048))
    return {
        "num_positions": min(raw["max_position_embeddings"], trained if raw.get("rotary_scaling_factor") else MOST),
        "ropes": (rope(raw, theta=raw.get("rotary_emb_base", 1000.0)),),
        "gated": True,
        "attention_bias": False,
        "up_bias": False,
        "down_bias": False,
        "activation": "silu",
    }


def gte(raw: Raw) -> dict[str, Any]:
    """Alibaba's "new" architecture."""
    import torch

    from runtimes.llm.model.rope import divided

    theta, scaling = raw.get("rope_theta", 160_000.0), raw.get("rope_scaling") or {}
    if raw.get("position_embedding_type", "rope") != "rope" or raw.get("layer_norm_type", "layer_norm") != "layer_norm":
        raise UnsupportedModel("a model of type `new` with other positions or norms than its first is not supported")
    if raw.get("logn_attention_scale"):
        raise UnsupportedModel("logn_attention_scale is not supported for a model of type `new`")
    divisor = 1.0
    if scaling:
        if scaling.get("type", scaling.get("rope_type")) != "ntk" or scaling.get("mixed_b") is not None:
            raise UnsupportedModel(f"rope scaling {scaling} is not supported for a model of type `new`")
        theta *= scaling["factor"]
        divisor = scaling["factor"] ** (2 * raw["num_attention_heads"] / raw["hidden_size"])
    plain = rope(raw, theta=theta)
    slower = divided(plain, torch.full((len(plain.frequencies),), divisor))
    return {"ropes": (slower,), "gated": True, "up_bias": False}


def modern(raw: Raw) -> dict[str, Any]:
    """ModernBERT (Warner et al. 2024, https://arxiv.org/abs/2412.13663)."""
    layers, every = raw["num_hidden_layers"], raw.get("global_attn_every_n_layers") or 3
    full, sliding = "full_attention", "sliding_attention"
    types = raw.get("layer_types") or [sliding if layer % every else full for layer in range(layers)]
    if len(types) != layers or set(types) - {full, sliding}:
        raise UnsupportedModel(f"layer_types must name {layers} layers as {full} or {sliding}")
    if raw.get("rope_scaling"):
        raise UnsupportedModel("rope_scaling is not supported for modernbert")
    bias = bool(raw.get("attention_bias")), bool(raw.get("mlp_bias"))
    return {
        "ropes": (
            rope(raw, full, raw.get("global_rope_theta", 160_000.0)),
            rope(raw, sliding, raw.get("local_rope_theta") or 10_000.0),
        ),
        "windows": (None, raw.get("local_attention", 128) // 2),
        "layer_kinds": tuple(int(kind == sliding) for kind in types),
        "num_types": 0,
        "gated": True,
        "pre_norms": True,
        "first_norm": False,
        "attention_bias": bias[0],
        "up_bias": bias[1],
        "down_bias": bias[1],
        "norm_bias": bool(raw.get("norm_bias")),
        "layer_norm_eps": raw.get("norm_eps", 1e-5),
    }


def gemma(raw: Raw) -> dict[str, Any]:
    """EmbeddingGemma (Schechter Vera et al. 2025, https://arxiv.org/abs/2509.20354): Gemma 3 without its mask."""
    full, sliding = "full_attention", "sliding_attention"
    every = raw.get("_sliding_window_pattern") or raw.get("sliding_window_pattern") or 6
    layers = raw["num_hidden_layers"]
    types = raw.get("layer_types") or [sliding if (layer + 1) % every else full for layer in range(layers)]
    if len(types) != layers or set(types) - {full, sliding}:
        raise UnsupportedModel(f"layer_types must name {layers} layers as {full} or {sliding}")
    for option in ("rope_scaling", "attention_bias", "attn_logit_softcapping"):
        if raw.get(option):
            raise UnsupportedModel(f"{option} is not supported for a Gemma that embeds")
    return {
        "ropes": (
            rope(raw, full, raw.get("rope_theta", 1_000_000.0)),
            rope(raw, sliding, raw.get("rope_local_base_freq", 10_000.0)),
        ),
        "windows": (None, raw["sliding_window"] // 2),
        "layer_kinds": tuple(int(kind == sliding) for kind in types),
        "num_types": 0,
        "gated": True,
        "pre_norms": True,
        "post_norms": True,
        "embedding_norm": False,
        "square_norms": True,
        "norm_offset": 1.0,
        "head_norms": True,
        "attention_bias": False,
        "up_bias": False,
        "down_bias": False,
        "head_size": raw["head_dim"],
        "key_heads": raw["num_key_value_heads"],
        "attention_scale": raw["query_pre_attn_scalar"] ** -0.5,
        "embedding_scale": raw["hidden_size"] ** 0.5,
        "layer_norm_eps": raw.get("rms_norm_eps", 1e-6),
    }


_T5_ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "silu": "silu", "gated-gelu": "gelu_tanh", "gated-relu": "relu",
    "gated-silu": "silu",
}  # fmt: skip


def t5(raw: Raw) -> dict[str, Any]:
    """The encoder of T5 (Raffel et al. 2020, https://arxiv.org/abs/1910.10683)."""
    kind = raw.get("feed_forward_proj", "relu")
    if kind not in _T5_ACTIVATIONS:
        raise UnsupportedModel(
            f"feed_forward_proj {kind!r} is not supported; these are: {', '.join(sorted(_T5_ACTIVATIONS))}"
        )
    return {
        "activation": _T5_ACTIVATIONS[kind],
        "gated": kind.startswith("gated-"),
        "buckets": raw.get("relative_attention_num_buckets", 32),
        "farthest": raw.get("relative_attention_max_distance", 128),
        "num_types": 0,
        "place_vectors": False,
        "embedding_norm": False,
        "pre_norms": True,
        "square_norms": True,
        "attention_bias": False,
        "up_bias": False,
        "down_bias": False,
        "head_size": raw["d_kv"],
        "attention_scale": 1.0,
    }


def electra(raw: Raw) -> dict[str, Any]:
    """ELECTRA's discriminator (Clark et al. 2020, https://arxiv.org/abs/2003.10555)."""
    size = raw.get("embedding_size") or raw["hidden_size"]
    return {"embedding_size": None if size == raw["hidden_size"] else size}


def albert(raw: Raw) -> dict[str, Any]:
    """ALBERT (Lan et al. 2020, https://arxiv.org/abs/1909.11942): the layers of a group are one."""
    layers, groups = raw["num_hidden_layers"], raw.get("num_hidden_groups", 1)
    if raw.get("inner_group_num", 1) != 1 or not 1 <= groups <= layers:
        raise UnsupportedModel("an ALBERT with several layers in a group, or more groups than layers, is not supported")
    return {
        "embedding_size": raw.get("embedding_size", 128),
        "stored_layers": tuple(int(layer / (layers / groups)) for layer in range(layers)),
    }


def deberta(raw: Raw) -> dict[str, Any]:
    """DeBERTa v2 and v3 (He et al. 2021, https://arxiv.org/abs/2111.09543)."""
    if not raw.get("relative_attention"):
        raise UnsupportedModel("a DeBERTa without relative_attention is not supported")
    if raw.get("conv_kernel_size"):
        raise UnsupportedModel("a DeBERTa with a convolution (conv_kernel_size) is not supported")
    for size in ("embedding_size", "pooler_hidden_size"):
        if raw.get(size, raw["hidden_size"]) != raw["hidden_size"]:
            raise UnsupportedModel(f"a DeBERTa whose {size} is not its hidden_size is not supported")
    kinds = raw.get("pos_att_type") or []
    kinds = kinds.lower().split("|") if isinstance(kinds, str) else kinds
    if unknown := {kind.strip() for kind in kinds} - {"c2p", "p2c"}:
        raise UnsupportedModel(f"pos_att_type {min(unknown)!r} is not supported; c2p and p2c are")
    farthest, buckets = raw.get("max_relative_positions", -1), raw.get("position_buckets", -1)
    farthest = farthest if farthest > 0 else raw["max_position_embeddings"]
    return {
        "place_vectors": bool(raw.get("position_biased_input", True)),
        "disentangled": Disentangled(
            span=buckets if buckets > 0 else farthest,
            farthest=farthest,
            logarithmic=buckets > 0,
            keys=any("c2p" in kind for kind in kinds),
            queries=any("p2c" in kind for kind in kinds),
            shared=bool(raw.get("share_att_key")),
            normed="layer_norm" in str(raw.get("norm_rel_ebd", "none")).lower(),
        ),
    }


def jina(raw: Raw) -> dict[str, Any]:
    """Jina v3 as its authors' code describes it (https://arxiv.org/abs/2409.10173): XLM-RoBERTa with rotations."""
    if raw.get("position_embedding_type") != "rotary" or raw.get("use_reg_tokens") or raw.get("truncate_dim"):
        raise UnsupportedModel("an XLM-RoBERTa of Jina's with register tokens, or shorter vectors, is not supported")
    if raw.get("emb_pooler", "mean") not in (None, "mean"):
        raise UnsupportedModel(f"emb_pooler {raw['emb_pooler']!r} is not supported; mean is")
    return {"ropes": (rope(raw, theta=raw.get("rotary_emb_base", 10_000.0)),)}


def jina_of_transformers(raw: Raw) -> dict[str, Any]:
    """Jina v3 as transformers has it."""
    return {"ropes": (rope(raw, theta=20_000.0),)}
