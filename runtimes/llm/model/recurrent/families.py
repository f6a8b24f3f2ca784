"""The rows of `families` of which some layers are recurrent."""

from collections.abc import Mapping
from dataclasses import replace

from runtimes.llm.model import family_features as features
from runtimes.llm.model import tensor_names
from runtimes.llm.model.family import Family
from runtimes.llm.model.recurrent import features as recurrent

_QWEN_NEXT = Family(
    names=tensor_names.QWEN_NEXT,
    defaults={
        "head_dim": 256,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "partial_rotary_factor": 0.25,
        "norm_topk_prob": True,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    },
    completed=recurrent.qwen_layers,
    features=recurrent.qwen3_next,
    slides=lambda raw, layer: False,
    alike=True,
    norms_are_offsets=True,
    refused=("attention_bias",),
)

RECURRENT_FAMILIES: Mapping[str, Family] = {
    "granitemoehybrid": Family(
        names=tensor_names.GRANITE_HYBRID,
        defaults=features.GRANITE
        | {
            "mamba_n_heads": 128,
            "mamba_n_groups": 1,
            "mamba_d_state": 256,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_conv_bias": True,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "intermediate_size": 11008,
            "shared_intermediate_size": 1024,
            "max_position_embeddings": 2048,
        },
        features=recurrent.granite_hybrid,
        slides=lambda raw, layer: False,
        turns=lambda raw, layer, sliding: raw.get("position_embedding_type") == "rope",
        alike=True,
    ),
    "falcon_h1": Family(
        names=tensor_names.FALCON_H1,
        defaults={
            "rms_norm_eps": 1e-5,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "mamba_d_ssm": 1024,
            "mamba_n_heads": 128,
            "mamba_n_groups": 1,
            "mamba_d_state": 256,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_conv_bias": True,
            "mamba_norm_before_gate": True,
        },
        features=recurrent.falcon_h1,
        slides=lambda raw, layer: False,
        alike=True,
        refused=("mamba_proj_bias", "attention_bias"),
    ),
    "nemotron_h": Family(
        names=tensor_names.NEMOTRON_H,
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 8,
            "max_position_embeddings": 4096,
            "intermediate_size": 21504,
            "rms_norm_eps": 1e-5,
            "hidden_act": "relu2",
            "ssm_state_size": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "conv_kernel": 4,
            "use_conv_bias": True,
        },
        keys={"rms_norm_eps": "layer_norm_epsilon", "hidden_act": "mlp_hidden_act"},
        completed=recurrent.nemotron_layers,
        features=recurrent.nemotron_h,
        slides=lambda raw, layer: False,
        turns=lambda raw, layer, sliding: False,
        alike=True,
        refused=("mlp_bias", "attention_bias"),
    ),
    "qwen3_next": _QWEN_NEXT,
    "qwen3_5_text": replace(_QWEN_NEXT, features=recurrent.qwen3_5),
    "qwen3_5_moe_text": replace(_QWEN_NEXT, features=recurrent.qwen3_5_moe),
}
