"""The families of decoders, one row for each: what config.json calls things, and what is special.

A row's features are fields of `ModelShape`, computed from config.json; all else is a Llama.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtimes.llm.model import tensor_names
from runtimes.llm.model.model_config import ExpertShape, UnsupportedModel
from runtimes.llm.model.tensor_names import Names

Raw = Mapping[str, Any]


def _no_features(raw: Raw) -> dict[str, Any]:
    return {}


def _has_window(raw: Raw, layer: int) -> bool:
    return raw.get("sliding_window") is not None


def _always(raw: Raw, layer: int, sliding: bool) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`slides` tells which layers have a window where config.json does not list them, `turns` which are turned by their
    positions. Of `neighbours`, a rotation turns (2i, 2i + 1). `alike` layers all have the same attention, whatever
    config.json lists. `defaults` are transformers' for absent fields, `keys` the family's own spellings of fields;
    `refused` fields change what is computed, and have no place here."""

    names: Names = field(default_factory=lambda: tensor_names.LLAMA)
    defaults: Raw = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    features: Callable[[Raw], dict[str, Any]] = _no_features
    slides: Callable[[Raw, int], bool] = _has_window
    turns: Callable[[Raw, int, bool], bool] = _always
    alike: bool = False
    neighbours: bool = False
    local_rope: bool = False
    """Whether only layers without a window are scaled."""
    norms_are_offsets: bool = False
    """Whether norm weights are stored as their difference from 1."""
    refused: tuple[str, ...] = ()


# ── experts ───────────────────────────────────────────────────────────────────────────────────────────


def _experts(raw: Raw, size: str = "moe_intermediate_size", **how: Any) -> ExpertShape:
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    count = next((raw[name] for name in names if raw.get(name) is not None), None)
    if count is None:
        raise KeyError(names[0])
    chosen = raw["moe_k"] if "moe_k" in raw else raw["num_experts_per_tok"]
    return ExpertShape(count=count, chosen=chosen, intermediate_size=raw[size], **how)


def _qwen_moe(raw: Raw) -> dict[str, Any]:
    shared = raw.get("shared_expert_intermediate_size") or 0
    step, dense = raw.get("decoder_sparse_step") or 1, raw.get("mlp_only_layers") or []
    return {
        "experts": _experts(
            raw, normalized=bool(raw.get("norm_topk_prob")), shared_size=shared, shared_gate=bool(shared)
        ),
        "dense_layers": frozenset(
            layer for layer in range(raw["num_hidden_layers"]) if layer in dense or (layer + 1) % step
        ),
    }


def _deepseek_moe(raw: Raw) -> dict[str, Any]:
    """A sigmoid, a bias for the choice, groups, and shared experts, which are one MLP."""
    experts = _experts(
        raw,
        scoring="sigmoid",
        normalized=bool(raw.get("norm_topk_prob", True)),
        scale=raw.get("routed_scaling_factor", 1.0),
        groups=raw.get("n_group") or 1,
        chosen_groups=raw.get("topk_group") or 1,
        selection_bias=True,
        shared_size=raw["moe_intermediate_size"] * (raw.get("n_shared_experts") or 0),
    )
    return {"experts": experts, "dense_layers": frozenset(range(raw.get("first_k_dense_replace") or 0))}


def _ernie_moe(raw: Raw) -> dict[str, Any]:
    layers, interval = raw["num_hidden_layers"], raw.get("moe_layer_interval") or 1
    first, last = raw.get("moe_layer_start_index") or 0, raw.get("moe_layer_end_index", -1)
    last = layers - 1 if last == -1 else last
    shared = raw["moe_intermediate_size"] * (raw.get("moe_num_shared_experts") or 0)
    return _ernie(raw) | {
        "experts": _experts(raw, normalized=True, selection_bias=True, shared_size=shared),
        "dense_layers": frozenset(
            layer for layer in range(layers) if not (first <= layer <= last and (layer + 1) % interval == 0)
        ),
    }


# ── what is special ───────────────────────────────────────────────────────────────────────────────────


def _gemma(raw: Raw) -> dict[str, Any]:
    return {"embedding_multiplier": raw["hidden_size"] ** 0.5}


def _gemma1(raw: Raw) -> dict[str, Any]:
    """Its first files name GELU where the approximation is meant."""
    exact = raw["hidden_act"] == "gelu" and not raw.get("hidden_activation")
    return _gemma(raw) | ({"activation": "gelu_tanh"} if exact else {})


def _gemma2(raw: Raw) -> dict[str, Any]:
    return _gemma(raw) | {
        "attention_scale": raw["query_pre_attn_scalar"] ** -0.5,
        "attention_soft_cap": raw.get("attn_logit_softcapping"),
        "logits_soft_cap": raw.get("final_logit_softcapping"),
        "post_norms": True,
    }


def _granite(raw: Raw) -> dict[str, Any]:
    return {
        "attention_scale": raw["attention_multiplier"],
        "embedding_multiplier": raw["embedding_multiplier"],
        "residual_multiplier": raw["residual_multiplier"],
        "logits_multiplier": 1 / raw["logits_scaling"],
    }


def _granite_moe(raw: Raw) -> dict[str, Any]:
    shared = raw.get("shared_intermediate_size") or 0
    return _granite(raw) | {
        "experts": _experts(raw, "intermediate_size", scoring="softmax_of_chosen", shared_size=shared)
    }


def _cohere(raw: Raw) -> dict[str, Any]:
    return {"norm": "layer", "parallel": True, "logits_multiplier": raw["logit_scale"]}


def _ernie(raw: Raw) -> dict[str, Any]:
    bias = bool(raw.get("use_bias"))
    return {"qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias}


def _phi_moe(raw: Raw) -> dict[str, Any]:
    jitter = raw["router_jitter_noise"]
    return {
        "norm": "layer_biased",
        "head_bias": bool(raw.get("lm_head_bias")),
        "experts": _experts(raw, "intermediate_size", scoring="sparsemixer", jitter=jitter),
    }


def _gpt_oss(raw: Raw) -> dict[str, Any]:
    return {
        "sinks": True,
        "activation": "clamped_swiglu",
        "swiglu": (raw["swiglu_alpha"], raw["swiglu_limit"]),
        "experts": _experts(raw, "intermediate_size", scoring="softmax_of_chosen", biases=True),
    }


def _ministral(raw: Raw) -> dict[str, Any]:
    rope = raw.get("rope_parameters") or {}
    beta = rope.get("llama_4_scaling_beta")
    return {"query_growth": (beta, rope["original_max_position_embeddings"]) if beta else None}


def _gpt2(raw: Raw) -> dict[str, Any]:
    if not raw.get("scale_attn_weights", True) or raw.get("scale_attn_by_inverse_layer_idx"):
        raise UnsupportedModel("a GPT-2 whose scores are scaled by layer, or not at all, is not supported")
    return _biased_layers(raw) | _ernie({"use_bias": True}) | {"position_embeddings": True}


def _biased_layers(raw: Raw) -> dict[str, Any]:
    """LayerNorm with biases, and an MLP without a gate."""
    return {"norm": "layer_biased", "gated": False}


def _sliding_from(raw: Raw, layer: int) -> bool:
    return bool(raw.get("use_sliding_window")) and layer >= raw["max_window_layers"]


def _one_in(default: int, key: str = "sliding_window_pattern") -> Callable[[Raw, int], bool]:
    """All layers but every nth have a window."""
    return lambda raw, layer: bool((layer + 1) % (raw.get(key) or default))


def _turned_if_sliding(raw: Raw, layer: int, sliding: bool) -> bool:
    return sliding or raw.get("sliding_window") is None


def _smollm3_turns(raw: Raw, layer: int, sliding: bool) -> bool:
    listed = raw.get("no_rope_layers")  # 1 for the layers that do turn
    return bool(listed[layer]) if listed else bool((layer + 1) % (raw.get("no_rope_layer_interval") or 4))


_GEMMA = {
    "vocab_size": 256_000, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 8192, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
    "sliding_window": 4096, "tie_word_embeddings": True,
}  # fmt: skip
_QWEN = {
    "num_key_value_heads": 32, "sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28,
    "max_position_embeddings": 32_768,
}  # fmt: skip
_GRANITE = {
    "attention_multiplier": 1.0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1.0,
}  # fmt: skip
_LAYER_EPS = {"rms_norm_eps": "layer_norm_eps"}
_GPT2_KEYS = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions", "intermediate_size": "n_inner", "hidden_act": "activation_function",
    "rms_norm_eps": "layer_norm_epsilon",
}  # fmt: skip
_GPT_OSS_ROPE = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096, "rope_theta": 150_000.0,
}  # fmt: skip
_GLM = {"attention_bias": True, "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-7, "head_dim": 128}


def _qwen2_features(raw: Raw) -> dict[str, Any]:
    return {"qkv_bias": bool(raw.get("qkv_bias", True)), "attention_out_bias": False}


def _query_bias_alone(raw: Raw) -> dict[str, Any]:
    """`attention_bias` is that of queries, keys and values."""
    return {"attention_out_bias": False}


FAMILIES: Mapping[str, Family] = {
    "llama": Family(defaults={"max_position_embeddings": 2048}, alike=True, slides=lambda raw, layer: False),
    "mistral": Family(
        defaults={"num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131_072}, alike=True
    ),
    "ministral3": Family(defaults={"num_key_value_heads": 8, "head_dim": 128}, features=_ministral, alike=True),
    "qwen2": Family(defaults=_QWEN | {"num_key_value_heads": 32}, features=_qwen2_features, slides=_sliding_from),
    "qwen2_moe": Family(
        names=tensor_names.QWEN_MOE,
        defaults=_QWEN,
        features=lambda raw: _qwen2_features(raw) | _qwen_moe(raw),
        slides=_sliding_from,
    ),
    "qwen3": Family(
        defaults=_QWEN | {"num_key_value_heads": 32, "head_dim": 128},
        features=lambda raw: {"qk_norm": "head"},
        slides=_sliding_from,
    ),
    "qwen3_moe": Family(
        names=tensor_names.QWEN_MOE,
        defaults=_QWEN,
        features=lambda raw: {"qk_norm": "head"} | _qwen_moe(raw),
        slides=lambda raw, layer: bool(raw.get("use_sliding_window")),
        alike=True,
    ),
    "mixtral": Family(
        names=tensor_names.MIXTRAL,
        defaults={"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "num_experts_per_tok": 2},
        features=lambda raw: {"experts": _experts(raw, "intermediate_size", normalized=True)},
        alike=True,
    ),
    "gemma": Family(
        defaults=_GEMMA
        | {
            "num_key_value_heads": 16,
            "sliding_window": None,
            "hidden_activation": None,
            "hidden_act": "gelu_pytorch_tanh",
        },
        features=_gemma1,
        norms_are_offsets=True,
    ),
    "gemma2": Family(
        names=tensor_names.OWN,
        defaults=_GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        features=_gemma2,
        slides=lambda raw, layer: layer % 2 == 0,
        norms_are_offsets=True,
    ),
    "gemma3_text": Family(
        names=tensor_names.OWN,
        defaults=_GEMMA | {"vocab_size": 262_208, "max_position_embeddings": 131_072, "rope_theta": 1e6},
        features=lambda raw: _gemma2(raw) | {"qk_norm": "head"},
        slides=_one_in(6),
        local_rope=True,
        norms_are_offsets=True,
        refused=("attn_logit_softcapping",),  # which its code has no place for
    ),
    "phi3": Family(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}
    ),
    "granite": Family(defaults=_GRANITE, features=_granite),
    "granitemoe": Family(names=tensor_names.GRANITE_MOE, defaults=_GRANITE, features=_granite_moe),
    "granitemoeshared": Family(names=tensor_names.GRANITE_MOE, defaults=_GRANITE, features=_granite_moe),
    "olmo2": Family(
        names=tensor_names.OWN,
        defaults={"rms_norm_eps": 1e-5},
        features=lambda raw: {"qk_norm": "whole", "pre_norms": False, "post_norms": True},
    ),
    "olmo3": Family(
        names=tensor_names.OWN,
        defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 500_000.0},
        features=lambda raw: {"qk_norm": "whole", "pre_norms": False, "post_norms": True},
        slides=_one_in(4),
        local_rope=True,
    ),
    "olmoe": Family(
        names=tensor_names.QWEN_MOE,
        defaults={"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8},
        features=lambda raw: {
            "qk_norm": "whole",
            "experts": _experts(raw, "intermediate_size", normalized=bool(raw.get("norm_topk_prob"))),
        },
        refused=("clip_qkv",),
    ),
    "smollm3": Family(
        defaults={
            "num_key_value_heads": 4,
            "use_sliding_window": False,
            "rope_theta": 2e6,
            "tie_word_embeddings": True,
        },
        slides=lambda raw, layer: bool(raw.get("use_sliding_window")) and not _smollm3_turns(raw, layer, False),
        turns=_smollm3_turns,
    ),
    "glm": Family(defaults=_GLM, features=_query_bias_alone, neighbours=True),
    "glm4": Family(
        names=tensor_names.GLM4,
        defaults=_GLM,
        features=lambda raw: {"post_norms": True, "attention_out_bias": False},
        neighbours=True,
    ),
    "glm4_moe": Family(
        names=tensor_names.DEEPSEEK_MOE,
        defaults={"partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "first_k_dense_replace": 1},
        features=lambda raw: (
            _deepseek_moe(raw) | {"attention_out_bias": False, "qk_norm": "head" if raw.get("use_qk_norm") else None}
        ),
    ),
    "dots1": Family(
        names=tensor_names.DEEPSEEK_MOE,
        features=lambda raw: _deepseek_moe({"norm_topk_prob": False, **raw}) | {"qk_norm": "head"},
        slides=lambda raw, layer: layer >= raw.get("max_window_layers", 62),
    ),
    "minimax_m2": Family(
        names=tensor_names.MIXTRAL,
        defaults={"rope_theta": 5e6},
        features=lambda raw: {
            "qk_norm": "whole",
            "experts": _experts(raw, "intermediate_size", scoring="sigmoid", normalized=True, selection_bias=True),
        },
        alike=True,
        slides=lambda raw, layer: False,
    ),
    "phi": Family(
        names=tensor_names.PHI,
        defaults={"partial_rotary_factor": 0.5, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5},
        keys=_LAYER_EPS,
        features=lambda raw: (
            _biased_layers(raw)
            | {"parallel": True, "head_bias": True, "qkv_bias": True, "attention_out_bias": True, "mlp_bias": True}
        ),
        refused=("qk_layernorm",),
    ),
    "phimoe": Family(
        names=tensor_names.MIXTRAL,
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6, "router_jitter_noise": 0.01, "num_experts_per_tok": 2},
        features=_phi_moe,
    ),
    "cohere": Family(
        defaults={"logit_scale": 0.0625, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": True},
        keys=_LAYER_EPS,
        features=_cohere,
        neighbours=True,
        refused=("use_qk_norm",),
    ),
    "cohere2": Family(
        defaults={
            "logit_scale": 0.0625,
            "rms_norm_eps": 1e-5,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
        },
        keys=_LAYER_EPS,
        features=_cohere,
        slides=_one_in(4),
        turns=_turned_if_sliding,
        neighbours=True,
    ),
    "starcoder2": Family(
        names=tensor_names.STARCODER2,
        defaults={
            "hidden_act": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "use_bias": True,
        },
        keys={"rms_norm_eps": "norm_epsilon"},
        features=lambda raw: _ernie(raw) | _biased_layers(raw),
        alike=True,
    ),
    "internlm3": Family(
        defaults={"head_dim": 128, "rms_norm_eps": 1e-5},
        keys={"attention_bias": "qkv_bias", "mlp_bias": "bias"},
        features=lambda raw: {"attention_out_bias": bool(raw.get("mlp_bias"))},
    ),
    "seed_oss": Family(
        defaults={"attention_bias": True, "head_dim": 128},
        features=lambda raw: {"attention_out_bias": bool(raw.get("attention_out_bias"))},
    ),
    "hunyuan_v1_dense": Family(
        names=tensor_names.HUNYUAN,
        defaults={"rms_norm_eps": 1e-5},
        features=lambda raw: {"qk_norm": "head_after_rope"},
    ),
    "ernie4_5": Family(
        defaults={"head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": True},
        features=_ernie,
        neighbours=True,
    ),
    "ernie4_5_moe": Family(
        names=tensor_names.ERNIE_MOE,
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": True},
        features=_ernie_moe,
        neighbours=True,
    ),
    "exaone4": Family(
        names=tensor_names.OWN,
        defaults={"rms_norm_eps": 1e-5},
        features=lambda raw: {"qk_norm": "head", "pre_norms": False, "post_norms": True},
        slides=_one_in(4),
        turns=_turned_if_sliding,
    ),
    "apertus": Family(
        names=tensor_names.APERTUS,
        defaults={"rms_norm_eps": 1e-5, "hidden_act": "xielu"},
        features=lambda raw: {"qk_norm": "head", "gated": False},
    ),
    "arcee": Family(defaults={"rms_norm_eps": 1e-5, "hidden_act": "relu2"}, features=lambda raw: {"gated": False}),
    "gpt2": Family(
        names=tensor_names.GPT2,
        defaults={"hidden_act": "gelu_new", "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
        keys=_GPT2_KEYS,
        features=_gpt2,
        turns=lambda raw, layer, sliding: False,
    ),
    "gpt_oss": Family(
        names=tensor_names.GPT_OSS,
        defaults={
            "head_dim": 64,
            "attention_bias": True,
            "sliding_window": 128,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
            "rms_norm_eps": 1e-5,
            "rope_parameters": _GPT_OSS_ROPE,
        },
        features=_gpt_oss,
        slides=lambda raw, layer: layer % 2 == 0,
    ),
}
