"""A tiny random model of every other family, by transformers' own classes: its configuration, row for row."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

WINDOW = 24
CONTEXT = 256
_SHAPE = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "initializer_range": 0.15, "eos_token_id": 255,
    "bos_token_id": 254, "pad_token_id": 253, "tie_word_embeddings": False,
}  # fmt: skip
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LOCAL = {"num_local_experts": 6, "num_experts_per_tok": 2}
_DEEPSEEK = {
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "first_k_dense_replace": 1,
    "n_shared_experts": 2, "routed_scaling_factor": 1.7, "n_group": 4, "topk_group": 2,
}  # fmt: skip
_GRANITE = {
    "attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.6, "logits_scaling": 2.0,
}  # fmt: skip
_PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
_GPT2 = {"vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "n_inner": 96}

ROWS: dict[str, dict[str, Any]] = {
    "qwen3_moe": _EXPERTS | {"head_dim": 32, "norm_topk_prob": True},
    "qwen3_moe-sparse": _EXPERTS | {"decoder_sparse_step": 2, "num_hidden_layers": 3, "mlp_only_layers": [1]},
    "qwen2_moe": _EXPERTS | {"shared_expert_intermediate_size": 80},
    "mixtral": _LOCAL,
    "granite": _GRANITE,
    "granitemoe": _LOCAL | _GRANITE,
    "granitemoeshared": _LOCAL | _GRANITE | {"shared_intermediate_size": 80},
    "olmo2": {},
    "olmo3": _LAYERS,
    "olmoe": _EXPERTS,
    "smollm3": {"no_rope_layers": [1, 0]},
    "ministral3": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    },
    "glm": {"head_dim": 16, "attention_bias": True},
    "glm4": {"head_dim": 16, "attention_bias": True},
    "glm4_moe": _DEEPSEEK | {"head_dim": 32, "attention_bias": True, "use_qk_norm": True},
    "dots1": _DEEPSEEK | {"layer_types": ["full_attention", "full_attention"], "sliding_window": None},
    "minimax_m2": _LOCAL | {"head_dim": 32, "rotary_dim": 16},
    "gemma": {"head_dim": 32, "tie_word_embeddings": True},
    "phi": {"partial_rotary_factor": 0.5},
    "phimoe": _LOCAL | {"lm_head_bias": True, "attention_bias": True, "router_jitter_noise": 0.2},
    "cohere": {"tie_word_embeddings": True},
    "cohere2": _LAYERS | {"tie_word_embeddings": True, "logit_scale": 0.4},
    "starcoder2": {"sliding_window": WINDOW},
    "internlm3": {"head_dim": 16, "attention_bias": True, "mlp_bias": True},
    "seed_oss": {"head_dim": 16, "attention_out_bias": True},
    "hunyuan_v1_dense": {
        "head_dim": 16,
        "rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0},
    },
    "ernie4_5": {"head_dim": 16, "tie_word_embeddings": True, "use_bias": True},
    "ernie4_5_moe": {
        "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 48, "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1, "tie_word_embeddings": True,
    },
    "exaone4": _LAYERS,
    "exaone4-full": {"sliding_window": None, "layer_types": ["full_attention", "full_attention"]},
    "apertus": {"rope_parameters": _PLAIN_ROPE},
    "arcee": {"head_dim": 16, "mlp_bias": True, "attention_bias": True},
    "gpt2": _GPT2,
    "gpt_oss": _LOCAL | _LAYERS | {"head_dim": 16, "rope_parameters": _PLAIN_ROPE},
}  # fmt: skip


def tiny(row: str) -> Any:
    """The model, float32. Norms, biases and what else begins at 1 or 0 are random too: they would not be noticed."""
    torch.manual_seed(0)
    family = row.partition("-")[0]
    common = {name: _SHAPE[name] for name in ("eos_token_id", "bos_token_id", "initializer_range")}
    config = AutoConfig.for_model(family, **((common if family == "gpt2" else _SHAPE) | ROWS[row]))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("bias", "sinks")):
                weight.normal_(0, 0.3)
            elif name.endswith(("router.weight", "gate.weight")):
                weight.normal_(0, 0.5)
            elif "norm" in name or ".ln_" in name or "alpha_" in name:
                weight.add_(torch.rand_like(weight) - 0.5)
    return model
