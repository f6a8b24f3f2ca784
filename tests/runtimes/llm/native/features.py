"""Features of models that the native step computes, and how near to torch it must be."""

from typing import Any

from runtimes.llm.model.model_config import ExpertShape, LayerKind, QueryGrowth
from tests.runtimes.llm.native.models import rope

TOLERANCE = 0.02
"""A part of the logits' own spread: bfloat16 has eight bits of each factor of a product."""

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "own head": {"tie_word_embeddings": False},
    "biases": {"qkv_bias": True, "attention_out_bias": True, "mlp_bias": True},
    "norms of queries and keys": {"qk_norm": "head"},
    "gelu": {"activation": "gelu_tanh"},
    "norms after": {"post_norms": True},
    "soft caps": {"attention_soft_cap": 5.0, "logits_soft_cap": 3.0},
    "larger embeddings": {"embedding_multiplier": 8.0},
    "windows": {"kinds": (LayerKind(rope(32)), LayerKind(rope(32, 500.0), window=40)), "layer_kinds": (1, 0)},
    "a part of a head turned": {"kinds": (LayerKind(rope(12)),)},
    "one key head for all": {"num_heads": 15, "num_kv_heads": 1, "head_dim": 16, "kinds": (LayerKind(rope(16)),)},
    "a key head each": {"num_heads": 3, "num_kv_heads": 3, "head_dim": 80, "kinds": (LayerKind(rope(80)),)},
    "odd widths": {"hidden_size": 48, "intermediate_size": 80},
    "norms after turning": {"qk_norm": "head_after_rope"},
    "norms of all heads together": {"qk_norm": "whole"},
    "norms after alone": {"post_norms": True, "pre_norms": False},
    "layers that are not turned": {"kinds": (LayerKind(rope(32)), LayerKind(None)), "layer_kinds": (0, 1)},
    "sinks": {"sinks": True},
    "sinks and soft caps": {"sinks": True, "attention_soft_cap": 5.0},
    "layer norms": {"norm": "layer", "parallel": True, "logits_multiplier": 0.3},
    "biased layer norms": {"norm": "layer_biased", "head_bias": True, "position_embeddings": True},
    "multipliers": {"residual_multiplier": 0.4, "logits_multiplier": 2.0},
    "growing queries": {"query_growth": QueryGrowth(0.4, 16)},
    **{
        f"{activation} without a gate": {"gated": False, "activation": activation, "mlp_bias": True}
        for activation in ("gelu", "relu2", "xielu", "gelu_tanh")
    },
    "clamped": {"activation": "clamped_swiglu", "swiglu": (1.7, 1.0), "mlp_bias": True},
}
MIXTURES = {
    "softmax": ExpertShape(count=6, chosen=2, intermediate_size=64),
    "shared": ExpertShape(count=6, chosen=3, intermediate_size=64, normalized=True, shared_size=96, shared_gate=True),
    "groups": ExpertShape(
        count=8, chosen=3, intermediate_size=64, scoring="sigmoid", normalized=True, scale=1.7, groups=4,
        chosen_groups=2, selection_bias=True, shared_size=32,
    ),
    "biases": ExpertShape(count=6, chosen=2, intermediate_size=64, scoring="softmax_of_chosen", biases=True),
    "sparsemixer": ExpertShape(count=6, chosen=2, intermediate_size=64, scoring="sparsemixer", jitter=0.3),
}  # fmt: skip
WEIGHTS = {
    "bf16": None,
    "int8": (8, 32, False),
    "groups of 16": (8, 16, False),
    "int4": (4, 32, False),
    "int4 with offsets": (4, 16, True),
}
