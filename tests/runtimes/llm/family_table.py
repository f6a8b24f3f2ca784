"""A tiny random model of every other family, by transformers' own classes: as family_rows.py has it."""

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
    Mistral4ForCausalLM,
    MllamaForCausalLM,
)

from tests.runtimes.llm.families import permuted
from tests.runtimes.llm.family_rows import ROWS, SHAPE

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


_NUMBERS = ("correct_output_scale", "layer_scalar", "router.scale", "per_expert_scale")


def tiny(row: str, **changes: Any) -> Any:
    """The model, float32; `changes` are of its row.

    Norms, biases and what else begins at 1 or 0 are random too: they would not be noticed.
    """
    torch.manual_seed(0)
    family = row.partition("-")[0]
    common = {name: SHAPE[name] for name in ("eos_token_id", "bos_token_id", "initializer_range")}
    config = AutoConfig.for_model(family, **((common if family == "gpt2" else SHAPE) | ROWS[row] | changes))
    factory = _CLASSES[family]._from_config if family in _CLASSES else AutoModelForCausalLM.from_config
    model = factory(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("bias", "sinks")) and "dt_" not in name:
                weight.normal_(0, 0.3)
            elif name.endswith(("router.weight", "gate.weight", "router.proj.weight")):
                weight.normal_(0, 0.5)
            elif name.endswith(("A_log", ".D", "dt_bias")):
                weight.copy_(torch.rand_like(weight) * 2 - 0.5)
            elif "norm" in name or ".ln_" in name or "alpha_" in name or name.endswith(_NUMBERS):
                weight.add_(torch.rand_like(weight) - 0.5)
    return model


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
