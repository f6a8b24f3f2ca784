"""A tiny random model of every other family, by transformers' own classes: its configuration, row for row."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Mistral4ForCausalLM,
    MllamaForCausalLM,
)

from tests.runtimes.llm.families import permuted

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
_LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
    "v_head_dim": 20,
}  # fmt: skip
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
_PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
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
    "qwen3_moe": _EXPERTS | {"head_dim": 32, "norm_topk_prob": True},
    "qwen3_moe-sparse": _EXPERTS | {"decoder_sparse_step": 2, "num_hidden_layers": 3, "mlp_only_layers": [1]},
    "qwen3_moe-vl": _EXPERTS | {"head_dim": 16, "norm_topk_prob": True},
    "qwen2_moe": _EXPERTS | {"shared_expert_intermediate_size": 80},
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
    "nemotron_h-pattern": _NEMOTRON | {"hybrid_override_pattern": "M-*-", "use_bias": True, "use_conv_bias": False},
    "qwen3_next": _EXPERTS | _DELTA | {
        "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention", *["linear_attention"] * 2],
        "shared_expert_intermediate_size": 80, "mlp_only_layers": [3],
    },
    "qwen3_next-every_fourth": _EXPERTS | _DELTA | {"num_hidden_layers": 4, "mlp_only_layers": [0, 1, 2, 3]},
    "qwen3_5_text": _DELTA | {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 6},
    "qwen3_5_moe_text": _EXPERTS | _DELTA | {
        "layer_types": ["full_attention", "linear_attention"], "shared_expert_intermediate_size": 80,
    },
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
    "glm4_moe_lite": _DEEPSEEK | _LATENT | {"n_group": 1, "topk_group": 1, "mlp_layer_types": ["dense", "sparse"]},
    "deepseek_v2": _DEEPSEEK | _LATENT | {"topk_method": "group_limited_greedy", "rope_parameters": _DEEPSEEK_YARN},
    "deepseek_v2-lite": _DEEPSEEK | _LATENT | {"q_lora_rank": None, "topk_method": "greedy", "n_group": 1},
    "deepseek_v3": _DEEPSEEK | _LATENT | {"rope_parameters": _DEEPSEEK_YARN},
    "deepseek_v3-halves": _DEEPSEEK | _LATENT | {"rope_interleave": False, "q_lora_rank": None},
    "dots1": _DEEPSEEK | {"layer_types": ["full_attention", "full_attention"], "sliding_window": None},
    "minimax_m2": _LOCAL | {"head_dim": 32, "rotary_dim": 16},
    "gemma": {"head_dim": 32, "tie_word_embeddings": True},
    "gemma3n_text": _GEMMA3N,
    "gemma3n_text-own_keys": _GEMMA3N | {
        "num_kv_shared_layers": 0, "altup_correct_scale": False, "altup_active_idx": 1, "altup_num_inputs": 3,
        "activation_sparsity_pattern": None, "intermediate_size": [96, 64, 32, 96, 80, 48],
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
    "apertus": {"rope_parameters": _PLAIN_ROPE},
    "arcee": {"head_dim": 16, "mlp_bias": True, "attention_bias": True},
    "gpt2": _GPT2,
    "lfm2": {
        "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "block_multiple_of": 16,
        "tie_word_embeddings": True,
    },
    "lfm2-biased": {"layer_types": ["full_attention", "conv"], "conv_bias": True, "conv_L_cache": 4},
    "gpt_oss": _LOCAL | _LAYERS | {"head_dim": 16, "rope_parameters": _PLAIN_ROPE},
}  # fmt: skip


# llama.cpp's name, and the fields that its converters write beside the common ones: (name, field of config.json).
_EXPERT_FIELDS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
_QWEN_FIELDS = {
    "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}  # fmt: skip
_GRANITE_FIELDS = {
    "attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling",
    "expert_shared_feed_forward_length": "shared_intermediate_size",
}  # fmt: skip
_DEEPSEEK_FIELDS = {
    "expert_count": "n_routed_experts", "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size", "expert_shared_count": "n_shared_experts",
    "expert_weights_scale": "routed_scaling_factor", "expert_weights_norm": "norm_topk_prob",
    "expert_group_count": "n_group", "expert_group_used_count": "topk_group",
    "leading_dense_block_count": "first_k_dense_replace",
}  # fmt: skip
GGUF: dict[str, tuple[str, dict[str, str]]] = {
    "qwen3_moe": ("qwen3moe", _QWEN_FIELDS),
    "qwen2_moe": (
        "qwen2moe", _QWEN_FIELDS | {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
    ),
    "qwen3_moe-vl": ("qwen3vlmoe", _QWEN_FIELDS),
    "mixtral": ("llama", _EXPERT_FIELDS),
    "granite": ("granite", _GRANITE_FIELDS),
    "granitemoe": ("granitemoe", _GRANITE_FIELDS | _EXPERT_FIELDS),
    "granitemoeshared": ("granitemoe", _GRANITE_FIELDS | _EXPERT_FIELDS),
    "olmo2": ("olmo2", {}),
    "olmoe": ("olmoe", _QWEN_FIELDS),
    "glm4": ("glm4", {}),
    "glm4_moe": ("glm4moe", _DEEPSEEK_FIELDS),
    "dots1": ("dots1", _DEEPSEEK_FIELDS),
    "minimax_m2": ("minimax-m2", _EXPERT_FIELDS),
    "gemma": ("gemma", {}),
    "phi": ("phi2", {}),
    "phimoe": ("phimoe", _EXPERT_FIELDS),
    "cohere": ("command-r", {"logit_scale": "logit_scale"}),
    "cohere2": ("cohere2", {"logit_scale": "logit_scale", "attention.sliding_window": "sliding_window"}),
    "seed_oss": ("seed_oss", {}),
    "hunyuan_v1_dense": ("hunyuan-dense", {}),
    "ernie4_5": ("ernie4_5", {}),
    "exaone4-full": ("exaone4", {}),
    "apertus": ("apertus", {}),
    "arcee": ("arcee", {}),
    "gpt2": ("gpt2", {}),
    "lfm2": ("lfm2", {"shortconv.l_cache": "conv_L_cache"}),
    "gpt_oss": ("gpt-oss", _EXPERT_FIELDS | {"attention.sliding_window": "sliding_window"}),
}  # fmt: skip
_PERMUTED = ("llama", "granite", "granitemoe", "arcee")  # whose converter makes neighbours of what turns together


_CLASSES = {"mistral4": Mistral4ForCausalLM, "mllama_text_model": MllamaForCausalLM}
"""Of text parts that transformers' AutoModelForCausalLM does not know."""


def tiny(row: str, **changes: Any) -> Any:
    """The model, float32; `changes` are of its row.

    Norms, biases and what else begins at 1 or 0 are random too: they would not be noticed.
    """
    torch.manual_seed(0)
    family = row.partition("-")[0]
    common = {name: _SHAPE[name] for name in ("eos_token_id", "bos_token_id", "initializer_range")}
    config = AutoConfig.for_model(family, **((common if family == "gpt2" else _SHAPE) | ROWS[row] | changes))
    factory = _CLASSES[family]._from_config if family in _CLASSES else AutoModelForCausalLM.from_config
    model = factory(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("bias", "sinks")) and "dt_" not in name:
                weight.normal_(0, 0.3)
            elif name.endswith(("router.weight", "gate.weight")):
                weight.normal_(0, 0.5)
            elif name.endswith(("A_log", ".D", "dt_bias")):
                weight.copy_(torch.rand_like(weight) * 2 - 0.5)
            elif "norm" in name or ".ln_" in name or "alpha_" in name or name.endswith("correct_output_scale"):
                weight.add_(torch.rand_like(weight) - 0.5)
    return model


_EYE = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 56,
    "patch_size": 14,
}  # fmt: skip
_QWEN_EYE = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
_VISION = {
    "idefics3": _EYE,
    "smolvlm": _EYE,
    "qwen2_5_vl": _QWEN_EYE,
    "qwen3_vl": _QWEN_EYE,
    "qwen3_vl_moe": _QWEN_EYE | {"deepstack_visual_indexes": [0]},
    "qwen3_5": _QWEN_EYE,
    "qwen3_5_moe": _QWEN_EYE,
    "mistral3": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
}


def tiny_with_pictures(family: str) -> Any:
    """A model that also sees, with a very small eye, float32."""
    torch.manual_seed(0)
    text: dict[str, Any] = _SHAPE | ({"head_dim": 16} if family != "qwen2_5_vl" else {})
    if family == "mistral3":
        text |= {"model_type": "ministral3", **ROWS["ministral3"]}
    elif family.startswith("qwen3_5"):
        text |= ROWS[f"{family}_text"]
    elif family in ("idefics3", "smolvlm"):
        text |= {"model_type": "llama"}
    else:
        sections = [2, 3, 3]
        text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections}
        text |= _EXPERTS if family == "qwen3_vl_moe" else {}
    config = AutoConfig.for_model(family, text_config=text, vision_config=_VISION[family])
    return AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval().float()


def write_gguf(path: Path, folder: Path, row: str, model: Any) -> Path:
    """The model in `folder` as llama.cpp's converter writes it, names by gguf's own table."""
    architecture, fields = GGUF[row]
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    _add_fields(writer, config, architecture, fields)
    kind = next(arch for arch, title in gguf.MODEL_ARCH_NAMES.items() if title == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    tensors = load_file(folder / "model.safetensors")
    for sign in ("alpha_p", "alpha_n"):
        if of_layers := [tensors[name].item() for name in sorted(tensors) if name.endswith(sign)]:
            writer.add_array(f"xielu.{sign}", of_layers)
    for name, weight in _converted(tensors, config, architecture).items():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        writer.add_tensor(stored, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_fields(writer: Any, config: Any, architecture: str, fields: dict[str, str]) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    size = getattr(config, "intermediate_size", None) or config.n_inner
    writer.add_feed_forward_length(size if architecture != "lfm2" else 2 * size // 3)
    writer.add_head_count(config.num_attention_heads)
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    if architecture == "lfm2":
        heads = [heads if kind == "full_attention" else 0 for kind in config.layer_types]
    writer.add_head_count_kv(heads)
    eps = ("rms_norm_eps", "norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon")
    writer.add_layer_norm_rms_eps(next(getattr(config, name) for name in eps if hasattr(config, name)))
    writer.add_eos_token_id(255)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if rope := getattr(config, "rope_parameters", None):
        theta = rope["rope_theta"]
        if alpha := rope.get("alpha"):
            theta *= alpha ** (head_dim / (head_dim - 2))
        writer.add_rope_freq_base(theta)
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    for key, name in fields.items():
        value = getattr(config, name, None)
        if isinstance(value, bool):
            writer.add_bool(f"{architecture}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{architecture}.{key}", value)
        elif value is not None:
            writer.add_float32(f"{architecture}.{key}", value)


def _converted(tensors: dict[str, Any], config: Any, architecture: str) -> dict[str, Any]:
    """What the converters change: experts stacked, halves apart, Gemma's norms whole, rows of neighbours."""
    made: dict[str, Any] = {}
    experts: dict[str, dict[int, Any]] = defaultdict(dict)
    for name, weight in tensors.items():
        name = name.removeprefix("transformer.")
        if match := re.fullmatch(r"(.*experts)\.(\d+)\.(\w+\.\w+)", name):
            experts[f"{match[1]}.{match[3]}"][int(match[2])] = weight
        elif "input_linear" in name:
            base = re.sub(r"(shared_mlp|block_sparse_moe)\.input_linear.*", "", name)
            part = "mlp.shared_experts" if "shared" in name else "mlp.experts"
            gate, up = weight.chunk(2, dim=-2)
            made |= {f"{base}{part}.gate_proj.weight": gate, f"{base}{part}.up_proj.weight": up}
        elif "experts.gate_up_proj" in name:  # gpt-oss
            base, bias = name.split("gate_up_proj")[0], name.endswith("bias")
            rows = weight if bias else weight.transpose(1, 2)
            end = ".bias" if bias else ".weight"
            made |= {f"{base}gate_proj{end}": rows[:, ::2], f"{base}up_proj{end}": rows[:, 1::2]}
        elif "experts.down_proj" in name and "gpt" in architecture:
            bias = name.endswith("bias")
            made[name.removesuffix("_bias") + (".bias" if bias else ".weight")] = (
                weight if bias else weight.transpose(1, 2)
            )
        elif name.endswith("conv.conv.weight"):
            made[name] = weight[:, 0]
        elif "act_fn" not in name:
            name = name.replace("e_score_correction_bias", "e_score_correction.bias")
            made[name.replace("sinks", "sinks.weight")] = weight
    made |= {name: torch.stack([parts[i] for i in range(len(parts))]) for name, parts in experts.items()}
    for name, weight in made.items():
        if architecture == "gemma" and name.endswith("norm.weight"):
            made[name] = weight + 1
        if architecture == "gpt2" and re.search(r"\.(c_attn|c_proj|c_fc)\.weight", name):
            made[name] = weight.t()
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if architecture in _PERMUTED and f".{part}." in name:
                made[name] = permuted(weight, getattr(config, heads))
    return made
