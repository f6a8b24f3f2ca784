"""The configurations of the tiny models of family_table.py, row for row."""

from typing import Any

WINDOW = 24
CONTEXT = 256
SHAPE = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "initializer_range": 0.15, "eos_token_id": 255,
    "bos_token_id": 254, "pad_token_id": 253, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LOCAL = {"num_local_experts": 6, "num_experts_per_tok": 2}
_DEEPSEEK = {
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "first_k_dense_replace": 1,
    "n_shared_experts": 2, "routed_scaling_factor": 1.7, "n_group": 4, "topk_group": 2,
}  # fmt: skip
_LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
    "v_head_dim": 20,
}  # fmt: skip
_INDEX = {"index_topk": 20, "index_head_dim": 24, "index_n_heads": 24, "q_lora_rank": 32}
_DEEPSEEK_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
    "mscale": 0.7, "mscale_all_dim": 1.0,
}  # fmt: skip
_GRANITE = {
    "attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.6, "logits_scaling": 2.0,
}  # fmt: skip
_MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 12, "mamba_n_groups": 2, "mamba_d_conv": 4,
}  # fmt: skip
_NEMOTRON = {
    "head_dim": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 12, "n_groups": 2,
    "num_hidden_layers": None,
}  # fmt: skip
_DELTA = {
    "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 12,
    "linear_value_head_dim": 16,
}  # fmt: skip
_PHI4 = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
    "vision_config": {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 56,
        "crop_size": 56,
    },
    "audio_config": {
        "hidden_size": 32,
        "num_blocks": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "nemo_conv_channels": 32,
        "ext_pw_out_channel": 32,
    },
}
_GEMMA4 = {
    "num_hidden_layers": 5,
    "head_dim": 16,
    "pad_token_id": 0,
    "sliding_window": WINDOW,
    "tie_word_embeddings": True,
    "layer_types": ["sliding_attention", "full_attention", *["sliding_attention"] * 2, "full_attention"],
    "final_logit_softcapping": 8.0,
}
_LLAMA4 = _LOCAL | {
    "num_hidden_layers": 5,
    "head_dim": 16,
    "intermediate_size": 48,
    "intermediate_size_mlp": 80,
    "attention_chunk_size": 40,
    "floor_scale": 16,
    "attn_scale": 0.3,
    "moe_layers": [0, 2, 4],
}
_GEMMA3N = {
    "num_hidden_layers": 6,
    "head_dim": 16,
    "pad_token_id": 0,
    "hidden_size_per_layer_input": 24,
    "vocab_size_per_layer_input": 200,
    "num_kv_shared_layers": 2,
    "laurel_rank": 12,
    "sliding_window": WINDOW,
    "tie_word_embeddings": True,
    "activation_sparsity_pattern": [0.8, 0.6, 0.0, 0.0, 0.7, 0.0],
    "final_logit_softcapping": 8.0,
    "layer_types": [*["sliding_attention"] * 3, "full_attention", "sliding_attention", "full_attention"],
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
_GPT2 = {"vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "n_inner": 96}

ROWS: dict[str, dict[str, Any]] = {
    "llama4_text": _LLAMA4,
    "llama4_text-plain": _LLAMA4 | {
        "use_qk_norm": False, "attn_temperature_tuning": False, "interleave_moe_layer_step": 2, "moe_layers": None,
        "num_experts_per_tok": 1, "attention_chunk_size": None, "num_hidden_layers": 3, "attention_bias": True,
    },
    "mllama_text_model": {"num_hidden_layers": 5, "cross_attention_layers": [1, 3]},
    "mistral4": _DEEPSEEK | _LATENT | {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    },
    "phi4_multimodal": _PHI4,
    "qwen3_moe": EXPERTS | {"head_dim": 32, "norm_topk_prob": True},
    "qwen3_moe-sparse": EXPERTS | {"decoder_sparse_step": 2, "num_hidden_layers": 3, "mlp_only_layers": [1]},
    "qwen3_moe-vl": EXPERTS | {"head_dim": 16, "norm_topk_prob": True},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 80},
    "mixtral": _LOCAL,
    "granite": _GRANITE,
    "granitemoe": _LOCAL | _GRANITE,
    "granitemoeshared": _LOCAL | _GRANITE | {"shared_intermediate_size": 80},
    "granitemoehybrid": _LOCAL | _GRANITE | _MAMBA | {
        "num_hidden_layers": 4, "layer_types": ["mamba", "attention", "mamba", "mamba"],
        "shared_intermediate_size": 80,
    },
    "granitemoehybrid-dense": _GRANITE | _MAMBA | {
        "num_local_experts": 0, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 80,
        "position_embedding_type": "rope", "mamba_proj_bias": True, "mamba_n_groups": 4, "mamba_d_conv": 3,
    },
    "granitemoehybrid-micro": _GRANITE | {
        "num_local_experts": 0, "layer_types": ["attention"] * 2, "shared_intermediate_size": 80,
        "position_embedding_type": "rope", "mamba_n_heads": 8,
    },
    "falcon_h1": _MAMBA | {
        "mamba_d_ssm": 128, "head_dim": 16, "key_multiplier": 0.7, "attention_in_multiplier": 1.3,
        "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.6,
        "mlp_multipliers": [0.9, 1.4], "ssm_multipliers": [0.7, 1.1, 0.9, 1.2, 0.8],
        "lm_head_multiplier": 0.5, "embedding_multiplier": 3.0,
    },
    "falcon_h1-normed": _MAMBA | {"mamba_d_ssm": None, "mamba_rms_norm": True, "projectors_bias": True},
    "falcon_h1-gated_first": _MAMBA | {
        "mamba_d_ssm": 128, "mamba_rms_norm": True, "mamba_norm_before_gate": False, "tie_word_embeddings": True,
    },
    "nemotron_h": _NEMOTRON | {
        "layers_block_type": ["mamba", "moe", "attention", "mlp", "mamba"], "n_routed_experts": 8, "n_group": 4,
        "topk_group": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "routed_scaling_factor": 1.7,
        "moe_shared_expert_intermediate_size": 40,
    },
    "nemotron_h-latent": _NEMOTRON | {
        "layers_block_type": ["moe", "attention", "moe"], "n_routed_experts": 8, "n_group": 1, "topk_group": 1,
        "num_experts_per_tok": 3, "moe_intermediate_size": 48, "moe_latent_size": 32,
        "moe_shared_expert_intermediate_size": 40,
    },
    "nemotron_h-pattern": _NEMOTRON | {"hybrid_override_pattern": "M-*-", "use_bias": True, "use_conv_bias": False},
    "qwen3_next": EXPERTS | _DELTA | {
        "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention", *["linear_attention"] * 2],
        "shared_expert_intermediate_size": 80, "mlp_only_layers": [3],
    },
    "qwen3_next-every_fourth": EXPERTS | _DELTA | {"num_hidden_layers": 4, "mlp_only_layers": [0, 1, 2, 3]},
    "qwen3_5_text": _DELTA | {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 6},
    "qwen3_5_moe_text": EXPERTS | _DELTA | {
        "layer_types": ["full_attention", "linear_attention"], "shared_expert_intermediate_size": 80,
    },
    "olmo2": {},
    "olmo3": _LAYERS,
    "olmoe": EXPERTS,
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
    "glm4_moe_lite": _DEEPSEEK | _LATENT | {"n_group": 1, "topk_group": 1, "mlp_layer_types": ["dense", "sparse"]},
    "deepseek_v2": _DEEPSEEK | _LATENT | {"topk_method": "group_limited_greedy", "rope_parameters": _DEEPSEEK_YARN},
    "deepseek_v2-lite": _DEEPSEEK | _LATENT | {"q_lora_rank": None, "topk_method": "greedy", "n_group": 1},
    "deepseek_v3": _DEEPSEEK | _LATENT | {"rope_parameters": _DEEPSEEK_YARN},
    "deepseek_v3-halves": _DEEPSEEK | _LATENT | {"rope_interleave": False, "q_lora_rank": None},
    "deepseek_v32": _DEEPSEEK | _LATENT | _INDEX | {"rope_parameters": _DEEPSEEK_YARN},
    "deepseek_v32-short": _DEEPSEEK | _LATENT | _INDEX | {"index_topk": 200, "mlp_layer_types": ["sparse", "dense"]},
    "glm_moe_dsa": _DEEPSEEK | _LATENT | _INDEX | {"num_hidden_layers": 4, "index_topk_freq": 2},
    "glm_moe_dsa-pattern": _DEEPSEEK | _LATENT | _INDEX | {"num_hidden_layers": 3, "index_topk_pattern": "FSF"},
    "dots1": _DEEPSEEK | {"layer_types": ["full_attention", "full_attention"], "sliding_window": None},
    "minimax_m2": _LOCAL | {"head_dim": 32, "rotary_dim": 16},
    "gemma": {"head_dim": 32, "tie_word_embeddings": True},
    "gemma3n_text": _GEMMA3N,
    "gemma3n_text-own_keys": _GEMMA3N | {
        "num_kv_shared_layers": 0, "altup_correct_scale": False, "altup_active_idx": 1, "altup_num_inputs": 3,
        "activation_sparsity_pattern": None, "intermediate_size": [96, 64, 32, 96, 80, 48],
    },
    "gemma4_text": _GEMMA4 | {
        "global_head_dim": 24, "hidden_size_per_layer_input": 24, "vocab_size_per_layer_input": 256,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
    },
    "gemma4_text-experts": _GEMMA4 | EXPERTS | {
        "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "enable_moe_block": True,
        "top_k_experts": 2, "hidden_size_per_layer_input": 0,
    },
    "gemma4_text-alike": _GEMMA4 | {
        "global_head_dim": 16, "hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision",
    },
    "phi": {"partial_rotary_factor": 0.5},
    "phimoe": _LOCAL | {"lm_head_bias": True, "attention_bias": True},
    "phimoe-jitter": _LOCAL | {"router_jitter_noise": 0.2},
    "cohere": {"tie_word_embeddings": True},
    "cohere2": {
        "num_hidden_layers": 4, "layer_types": [*["sliding_attention"] * 3, "full_attention"], "logit_scale": 0.4,
        "sliding_window": WINDOW, "tie_word_embeddings": True,
    },
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
    "apertus": {"rope_parameters": PLAIN_ROPE},
    "arcee": {"head_dim": 16, "mlp_bias": True, "attention_bias": True},
    "gpt2": _GPT2,
    "lfm2": {
        "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "block_multiple_of": 16,
        "tie_word_embeddings": True,
    },
    "lfm2-biased": {"layer_types": ["full_attention", "conv"], "conv_bias": True, "conv_L_cache": 4},
    "gpt_oss": _LOCAL | _LAYERS | {"head_dim": 16, "rope_parameters": PLAIN_ROPE},
}  # fmt: skip
