"""The rows of `families` with latent attention."""

from collections.abc import Mapping
from dataclasses import replace

from runtimes.llm.model import family_features as features
from runtimes.llm.model import tensor_names
from runtimes.llm.model.family import Family

_DEEPSEEK_V3 = Family(
    names=tensor_names.DEEPSEEK_MOE,
    features=lambda raw: features.deepseek_moe(raw) | features.latent(raw),
    slides=lambda raw, layer: False,
    alike=True,
    refused=("attention_bias",),
)

LATENT_FAMILIES: Mapping[str, Family] = {
    "glm4_moe_lite": Family(
        names=tensor_names.DEEPSEEK_MOE,
        defaults={"rms_norm_eps": 1e-5},
        features=features.glm_moe_lite,
        slides=lambda raw, layer: False,
        alike=True,
        refused=("attention_bias",),
    ),
    "deepseek_v2": Family(
        names=tensor_names.DEEPSEEK_MOE,
        features=features.deepseek_v2,
        slides=lambda raw, layer: False,
        alike=True,
        refused=("attention_bias", "norm_topk_prob"),
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "deepseek_v32": replace(
        _DEEPSEEK_V3,
        defaults={"first_k_dense_replace": 3, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64},
        features=lambda raw: features.sparse(raw, neighbours=False),
    ),
    "glm_moe_dsa": replace(
        _DEEPSEEK_V3,
        defaults={
            "first_k_dense_replace": 3,
            "index_topk": 2048,
            "index_head_dim": 128,
            "index_n_heads": 32,
            "rms_norm_eps": 1e-5,
        },
        features=lambda raw: features.sparse(raw, neighbours=True),
    ),
    "mistral4": Family(
        names=tensor_names.MISTRAL4,
        completed=features.mistral4_rope,
        features=features.mistral4,
        slides=lambda raw, layer: False,
        alike=True,
        refused=("attention_bias",),
    ),
}
