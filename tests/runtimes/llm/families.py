"""A tiny random model of every family, by transformers' own classes, and its GGUF file as llama.cpp writes it."""

from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

WINDOW = 24
CONTEXT = 256
UINT32, STRING, ARRAY = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.STRING, gguf.GGUFValueType.ARRAY
SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.15,  # scores and logits that are neither all alike nor all one
    "eos_token_id": 255,
    "bos_token_id": 254,
    "pad_token_id": 253,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0],
}  # fmt: skip
_GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": WINDOW, "tie_word_embeddings": True}

FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, {"rope_parameters": LLAMA3_ROPE}),
    "llama-biased": (LlamaConfig, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral": (MistralConfig, {"sliding_window": WINDOW, "head_dim": 24}),
    "qwen2": (Qwen2Config, {"rope_parameters": YARN_ROPE}),
    "qwen2-window": (Qwen2Config, {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen3": (Qwen3Config, {"head_dim": 32, "tie_word_embeddings": True}),
    "gemma2": (Gemma2Config, _GEMMA | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0}),
    "gemma3": (
        Gemma3TextConfig,
        _GEMMA
        | {
            "num_hidden_layers": 7,  # the sixth looks at everything
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1_000_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
    ),
    "phi3": (Phi3Config, {"sliding_window": WINDOW, "partial_rotary_factor": 0.75}),
    "phi3-longrope": (
        Phi3Config,
        {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 64, "rope_parameters": LONGROPE},
    ),
}


def tiny(family: str, **changes: Any) -> Any:
    """The model, float32. Norms and biases are random too: at 1 and 0 they would not be noticed."""
    config_class, of_family = FAMILIES[family]
    torch.manual_seed(0)
    config = config_class(**(SHAPE | of_family | changes))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight.add_(torch.rand_like(weight) - 0.5)
            elif name.endswith(".bias"):
                weight.normal_(0, 0.3)
    return model


def permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The order in which llama.cpp's converter stores a Llama's query and key rows (its `LlamaModel.permute`)."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path, model: Any, *, fields: dict[str, Any] | None = None, quantise: Any = None, odd_tensor: str = ""
) -> Path:
    """`model` as llama.cpp's converter (conversion/*.py) writes it; `fields` replaces metadata, None leaves one out.

    Matrices are quantised on demand, and `odd_tensor` is of a type that no model has.
    """
    config = model.config
    name = {"mistral": "llama", "gemma3_text": "gemma3"}.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, name)
    _add_shape(writer, config, name)
    _add_rope(writer, config, name, model)
    architecture = next(arch for arch, title in gguf.MODEL_ARCH_NAMES.items() if title == name)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for tensor, weight in model.state_dict().items():
        if tensor == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name == "llama" and "q_proj" in tensor:
            weight = permuted(weight, config.num_attention_heads)
        if name == "llama" and "k_proj" in tensor:
            weight = permuted(weight, config.num_key_value_heads)
        if name.startswith("gemma") and tensor.endswith("norm.weight"):
            weight = weight + 1
        stored, data = names.get_name(tensor, try_suffixes=(".weight", ".bias")), weight.detach().numpy()
        if quantise is not None and data.ndim == 2:
            writer.add_tensor(stored, gguf.quants.quantize(data, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(stored, data.astype("int8") if stored == odd_tensor else data)
    for key, value in (fields or {}).items():
        writer.kv_data[0].pop(key, None)
        if value is not None:
            kind = STRING if isinstance(value, str) else ARRAY if isinstance(value, list) else UINT32
            writer.add_key_value(key, value, kind, UINT32 if kind is ARRAY else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_shape(writer: Any, config: Any, name: str) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_eos_token_id(config.eos_token_id)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if name.startswith("gemma") or name == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _add_rope(writer: Any, config: Any, name: str, model: Any) -> None:
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_freq_base(rope["rope_theta"])
    if not name.startswith("gemma"):
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        writer.add_rope_scaling_attn_factors(model.model.rotary_emb.attention_scaling)
        for length in ("long", "short"):
            factors = torch.tensor(rope[f"{length}_factor"], dtype=torch.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors.numpy())
    if rope["rope_type"] == "llama3":
        plain = rope["rope_theta"] ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy())
