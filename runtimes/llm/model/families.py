"""The families of decoders, one row for each: what config.json calls things, and what is special.

A row's features are fields of `ModelShape`, computed from config.json; all else is a Llama.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from runtimes.llm.model import family_features as features
from runtimes.llm.model import searched, tensor_names
from runtimes.llm.model.family import Family
from runtimes.llm.model.family_features import Raw
from runtimes.llm.model.gemma.families import GEMMA_FAMILIES
from runtimes.llm.model.latents.families import LATENT_FAMILIES
from runtimes.llm.model.recurrent.families import RECURRENT_FAMILIES


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

_PHI4 = Family(
    defaults={
        "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096,
        "num_key_value_heads": 8, "eos_token_id": [199_999, 200_020],
    },
)  # fmt: skip


FAMILIES: Mapping[str, Family] = {
    **RECURRENT_FAMILIES,
    **GEMMA_FAMILIES,
    **LATENT_FAMILIES,
    "llama": Family(defaults={"max_position_embeddings": 2048}, alike=True, slides=lambda raw, layer: False),
    "llama4_text": Family(
        names=tensor_names.LLAMA4,
        defaults={
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "max_position_embeddings": 131_072,
            "head_dim": 128,
            "intermediate_size_mlp": 16_384,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "use_qk_norm": True,
            "interleave_moe_layer_step": 1,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
            "attn_temperature_tuning": True,
            "floor_scale": 8192,
            "attn_scale": 0.1,
        },
        completed=features.llama4_layers,
        features=features.llama4,
        turns=lambda raw, layer, sliding: bool(raw["no_rope_layers"][layer]),
        neighbours=True,
    ),
    "mllama_text_model": Family(
        names=tensor_names.MLLAMA,
        defaults={
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "max_position_embeddings": 131_072,
            "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
        },
        completed=features.mllama_layers,
        features=lambda raw: {"stored_layers": tuple(raw["stored_layers"])},
        alike=True,
        slides=lambda raw, layer: False,
    ),
    "mistral": Family(
        defaults={"num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131_072}, alike=True
    ),
    "ministral3": Family(defaults={"num_key_value_heads": 8, "head_dim": 128}, features=features.ministral, alike=True),
    "qwen2": Family(defaults=_QWEN | {"num_key_value_heads": 32}, features=features.qwen2, slides=_sliding_from),
    "qwen2_moe": Family(
        names=tensor_names.QWEN_MOE,
        defaults=_QWEN,
        features=lambda raw: features.qwen2(raw) | features.qwen_moe(raw),
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
        features=lambda raw: {"qk_norm": "head"} | features.qwen_moe(raw),
        slides=lambda raw, layer: bool(raw.get("use_sliding_window")),
        alike=True,
    ),
    "qwen3_vl_moe_text": Family(
        names=tensor_names.QWEN_VL_MOE,
        defaults={"num_key_value_heads": 16, "max_position_embeddings": 128_000, "rope_theta": 500_000.0},
        features=lambda raw: {"qk_norm": "head"} | features.qwen_moe({**raw, "norm_topk_prob": True}),
        alike=True,
        slides=lambda raw, layer: False,
    ),
    "mixtral": Family(
        names=tensor_names.MIXTRAL,
        defaults={"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "num_experts_per_tok": 2},
        features=lambda raw: {"experts": features.experts(raw, "intermediate_size", normalized=True)},
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
        features=features.gemma1,
        norms_are_offsets=True,
    ),
    "gemma2": Family(
        names=tensor_names.OWN,
        defaults=_GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        features=features.gemma2,
        slides=lambda raw, layer: layer % 2 == 0,
        norms_are_offsets=True,
    ),
    "gemma3_text": Family(
        names=tensor_names.OWN,
        defaults=_GEMMA | {"vocab_size": 262_208, "max_position_embeddings": 131_072, "rope_theta": 1e6},
        features=lambda raw: features.gemma2(raw) | {"qk_norm": "head"},
        slides=_one_in(6),
        local_rope=True,
        norms_are_offsets=True,
        refused=("attn_logit_softcapping",),  # which its code has no place for
    ),
    "phi3": Family(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096}
    ),
    "phi4_multimodal": _PHI4,
    "phi4mm": replace(_PHI4, names=tensor_names.PHI4MM),
    "granite": Family(defaults=features.GRANITE, features=features.granite),
    "granitemoe": Family(names=tensor_names.GRANITE_MOE, defaults=features.GRANITE, features=features.granite_moe),
    "granitemoeshared": Family(
        names=tensor_names.GRANITE_MOE, defaults=features.GRANITE, features=features.granite_moe
    ),
    "nemotron-nas": Family(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "rope_theta": 500_000.0},
        completed=searched.layers,
        features=searched.features,
        heads=searched.heads,
        slides=lambda raw, layer: False,
        alike=True,
    ),
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
            "experts": features.experts(raw, "intermediate_size", normalized=bool(raw.get("norm_topk_prob"))),
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
    "glm": Family(defaults=_GLM, features=features.query_bias_alone, neighbours=True),
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
            features.deepseek_moe(raw)
            | {"attention_out_bias": False, "qk_norm": "head" if raw.get("use_qk_norm") else None}
        ),
    ),
    "dots1": Family(
        names=tensor_names.DEEPSEEK_MOE,
        features=lambda raw: features.deepseek_moe({"norm_topk_prob": False, **raw}) | {"qk_norm": "head"},
        slides=lambda raw, layer: layer >= raw.get("max_window_layers", 62),
    ),
    "minimax_m2": Family(
        names=tensor_names.MIXTRAL,
        defaults={"rope_theta": 5e6},
        features=lambda raw: {
            "qk_norm": "whole",
            "experts": features.experts(
                raw, "intermediate_size", scoring="sigmoid", normalized=True, selection_bias=True
            ),
        },
        alike=True,
        slides=lambda raw, layer: False,
    ),
    "phi": Family(
        names=tensor_names.PHI,
        defaults={"partial_rotary_factor": 0.5, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5},
        keys=_LAYER_EPS,
        features=lambda raw: (
            features.biased_layers(raw)
            | {"parallel": True, "head_bias": True, "qkv_bias": True, "attention_out_bias": True, "mlp_bias": True}
        ),
        refused=("qk_layernorm",),
    ),
    "phimoe": Family(
        names=tensor_names.MIXTRAL,
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6, "router_jitter_noise": 0.01, "num_experts_per_tok": 2},
        features=features.phi_moe,
    ),
    "cohere": Family(
        defaults={"logit_scale": 0.0625, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": True},
        keys=_LAYER_EPS,
        features=features.cohere,
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
        features=features.cohere,
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
        features=lambda raw: features.ernie(raw) | features.biased_layers(raw),
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
        features=features.ernie,
        neighbours=True,
    ),
    "ernie4_5_moe": Family(
        names=tensor_names.ERNIE_MOE,
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": True},
        features=features.ernie_moe,
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
        features=features.gpt2,
        turns=lambda raw, layer, sliding: False,
    ),
    "lfm2": Family(
        names=tensor_names.LFM2,
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8, "tie_word_embeddings": True},
        keys={"rms_norm_eps": "norm_eps", "intermediate_size": "block_ff_dim", "tie_word_embeddings": "tie_embedding"},
        features=features.lfm2,
        alike=True,
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
        features=features.gpt_oss,
        slides=lambda raw, layer: layer % 2 == 0,
    ),
}
