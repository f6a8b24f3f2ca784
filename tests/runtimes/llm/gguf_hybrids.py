"""GGUF files of models with recurrent layers or latent attention, as llama.cpp's converters write them."""

import copy
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.runtimes.llm.families import permuted

ARCHITECTURES = {
    "granitemoehybrid": "granitehybrid", "falcon_h1": "falcon-h1", "nemotron_h": "nemotron_h",
    "qwen3_next": "qwen3next", "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe",
    "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm4_moe_lite": "deepseek2",
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
    "mscale": 0.7, "mscale_all_dim": 0.7,
}  # fmt: skip
_QWEN = {"mlp_only_layers": [], "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
# A row of the table of families, and what is other in it: what no GGUF file can hold is left out.
HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "granitemoehybrid": ("granitemoehybrid", {}),
    "granitemoehybrid-dense": ("granitemoehybrid-dense", {}),
    "falcon_h1": ("falcon_h1", {}),
    "falcon_h1-normed": ("falcon_h1-gated_first", {"tie_word_embeddings": False, "projectors_bias": True}),
    "nemotron_h": ("nemotron_h-pattern", {}),
    "nemotron_h_moe": ("nemotron_h", {"layers_block_type": ["mamba", "moe", "attention", "moe", "mamba"]}),
    "nemotron_h_moe-latent": ("nemotron_h-latent", {}),
    "qwen3_next": ("qwen3_next", _QWEN),
    "qwen3_next-first": ("qwen3_next", _QWEN),
    "qwen3_5": ("qwen3_5_text", {}),
    "qwen3_5-shared": ("qwen3_5_text", {"linear_num_key_heads": 2, "linear_value_head_dim": 32}),
    "qwen3_5_moe": ("qwen3_5_moe_text", {}),
    "deepseek_v2": ("deepseek_v2", {"rope_parameters": _YARN}),
    "deepseek_v2-lite": ("deepseek_v2-lite", {}),
    "deepseek_v2-whole": ("deepseek_v2-lite", {}),
    "deepseek_v3": ("deepseek_v3", {"rope_parameters": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}),
    "deepseek-glm": ("glm4_moe_lite", {}),
}
"""`first` and `whole` are as the first converters wrote them."""


def write_hybrid(
    path: Path, folder: Path, name: str, config: Any, quantise: Any = None, fields: dict[str, int] | None = None
) -> Path:
    """The model in `folder`, of the row `name` of HYBRIDS. Matrices are quantised on demand; `fields` of the
    configuration are written in place of its own."""
    tensors = load_file(folder / "model.safetensors")
    architecture = ARCHITECTURES[config.model_type] + "_moe" * name.startswith("nemotron_h_moe")
    kind = next(arch for arch, title in gguf.MODEL_ARCH_NAMES.items() if title == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, architecture)
    described = copy.copy(config)
    for field, value in (fields or {}).items():
        setattr(described, field, value)
    _Fields(writer, described, architecture, tensors, old=name.endswith("-whole")).add()
    for tensor, weight in _converted(tensors, config, name):
        stored = tensor if tensor.startswith("blk.") else names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        assert stored is not None, tensor
        data = weight.float().contiguous().numpy()
        if quantise is not None and data.ndim > 1 and data.shape[-1] % 32 == 0 and "ssm" not in stored:
            writer.add_tensor(stored, gguf.quants.quantize(data, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(stored, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class _Fields:
    def __init__(self, writer: Any, config: Any, architecture: str, tensors: dict[str, Tensor], old: bool) -> None:
        self._writer, self._config, self._architecture, self._old = writer, config, architecture, old
        self._attending = {int(name.split(".")[2]) for name in tensors if ".q_proj." in name}
        self._dense = {int(name.split(".")[2]) for name in tensors if re.search(r"mixer\.(up_proj|gate)\.weight", name)}

    def add(self) -> None:
        writer, config = self._writer, self._config
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(getattr(config, "rms_norm_eps", None) or config.layer_norm_epsilon)
        writer.add_eos_token_id(255)
        if rope := getattr(config, "rope_parameters", None):
            writer.add_rope_freq_base(rope["rope_theta"])
        {
            "granitehybrid": self._granite, "falcon-h1": self._falcon, "nemotron_h": self._nemotron,
            "nemotron_h_moe": self._nemotron, "qwen3next": self._qwen,
            "qwen35": self._qwen, "qwen35moe": self._qwen, "deepseek2": self._deepseek,
        }[self._architecture]()  # fmt: skip

    def _each(self, number: int, layers: set[int]) -> list[int]:
        return [number if index in layers else 0 for index in range(self._config.num_hidden_layers)]

    def _ssm(self, conv: int, state: int, groups: int, inner: int, heads: int) -> None:
        self._writer.add_ssm_conv_kernel(conv)
        self._writer.add_ssm_state_size(state)
        self._writer.add_ssm_group_count(groups)
        self._writer.add_ssm_inner_size(inner)
        self._writer.add_ssm_time_step_rank(heads)

    def _mamba(self, inner: int) -> None:
        one = self._config
        self._ssm(one.mamba_d_conv, one.mamba_d_state, one.mamba_n_groups, inner, one.mamba_n_heads)

    def _granite(self) -> None:
        writer, config = self._writer, self._config
        self._mamba(config.mamba_expand * config.hidden_size)
        writer.add_head_count_kv(self._each(config.num_key_value_heads, self._attending))
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
        if config.num_local_experts:
            writer.add_expert_count(config.num_local_experts)
            writer.add_expert_used_count(config.num_experts_per_tok)

    def _falcon(self) -> None:
        config = self._config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._mamba(config.mamba_d_ssm)
        self._writer.add_key_length(size)
        self._writer.add_value_length(size)

    def _nemotron(self) -> None:
        writer, config = self._writer, self._config
        inner = config.mamba_num_heads * config.mamba_head_dim
        self._ssm(config.conv_kernel, config.ssm_state_size, config.n_groups, inner, config.mamba_num_heads)
        writer.add_head_count_kv(self._each(config.num_key_value_heads, self._attending))
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        if not self._architecture.endswith("moe"):
            writer.add_feed_forward_length(self._each(config.intermediate_size, self._dense))
            return
        writer.add_feed_forward_length(self._each(config.moe_intermediate_size, self._dense))
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
        if getattr(config, "moe_latent_size", None):
            writer.add_moe_latent_size(config.moe_latent_size)
        self._experts()

    def _experts(self) -> None:
        writer, config = self._writer, self._config
        writer.add_expert_count(config.n_routed_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        if config.norm_topk_prob:
            writer.add_expert_weights_norm(config.norm_topk_prob)
        if config.n_group:
            writer.add_expert_group_count(config.n_group)
            writer.add_expert_group_used_count(config.topk_group or 1)

    def _qwen(self) -> None:
        writer, config = self._writer, self._config
        inner = config.linear_value_head_dim * config.linear_num_value_heads
        self._ssm(
            config.linear_conv_kernel_dim, config.linear_key_head_dim, config.linear_num_key_heads, inner,
            config.linear_num_value_heads,
        )  # fmt: skip
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
        if self._architecture == "qwen35":
            return
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)

    def _deepseek(self) -> None:
        writer, config = self._writer, self._config
        key, value = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
        if self._old:
            writer.add_key_length(key)
            writer.add_value_length(value)
        else:
            writer.add_head_count_kv(1)
            writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
            writer.add_value_length(config.kv_lora_rank)
            writer.add_key_length_mla(key)
            writer.add_value_length_mla(value)
        if config.q_lora_rank is not None:
            writer.add_q_lora_rank(config.q_lora_rank)
        writer.add_kv_lora_rank(config.kv_lora_rank)
        writer.add_rope_dimension_count(config.qk_rope_head_dim)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        gating = gguf.ExpertGatingFuncType
        if config.model_type != "glm4_moe_lite":  # as its first files are
            writer.add_expert_gating_func(gating.SOFTMAX if config.model_type == "deepseek_v2" else gating.SIGMOID)
        self._experts()
        rope = config.rope_parameters
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def _converted(tensors: dict[str, Tensor], config: Any, row: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors as the file has them, by names that gguf's table knows, or by those of the file."""
    experts: dict[str, dict[int, Tensor]] = defaultdict(dict)
    for name, weight in tensors.items():
        if match := re.fullmatch(r"(.*)\.(?:mlp|mixer)\.experts\.(\d+)\.(\w+)\.weight", name):
            layer = match[1].replace("backbone", "model")
            experts[f"{layer}.mlp.experts.{match[3]}.weight"][int(match[2])] = weight
            continue
        converted = {"granite": _granite, "falcon": _falcon, "qwen3": _qwen, "deepse": _deepseek}.get(
            next((start for start in ("granite", "falcon", "qwen3", "deepse") if row.startswith(start)), "")
        )
        parts = [(name, weight)] if converted is None else converted(name, weight, config, row)
        yield from (_state(part, tensor, config) for part, tensor in parts)
    for name, of in experts.items():
        yield name, torch.stack([of[index] for index in range(len(of))])


def _state(name: str, weight: Tensor, config: Any) -> tuple[str, Tensor]:
    """What all converters do to a recurrent layer's small tensors, and to the bias of a choice."""
    if name.endswith("A_log"):
        weight = -weight.exp()
    if name.endswith(("A_log", ".D")) and "linear_attn" not in name:
        weight = weight.reshape(-1, 1)
    if name.endswith("conv1d.weight"):
        weight = weight.squeeze()
    if name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
        weight = weight.reshape(config.mamba_n_groups if "mamba." in name else config.n_groups, -1)
    name = name.replace("dt_bias", "dt_proj.bias").replace("e_score_correction_bias", "e_score_correction.bias")
    return name, weight


def _granite(name: str, weight: Tensor, config: Any, row: str) -> Iterator[tuple[str, Tensor]]:
    layer = ".".join(name.split(".")[:3])
    for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
        if f".{part}." in name:
            weight = permuted(weight, heads)
    if "input_linear" in name:
        kind = "mlp.experts" if "sparse" in name else "mlp.shared_experts" if config.num_local_experts else "mlp"
        for part, half in zip(("gate_proj", "up_proj"), weight.chunk(2, dim=-2), strict=True):
            yield f"{layer}.{kind}.{part}.weight", half
    elif "shared_mlp.output_linear" in name and not config.num_local_experts:
        yield f"{layer}.mlp.down_proj.weight", weight
    else:
        yield name, weight


def _falcon(name: str, weight: Tensor, config: Any, row: str) -> Iterator[tuple[str, Tensor]]:
    """Multipliers become a part of the weights."""
    factors = {
        "down_proj": config.mlp_multipliers[1], "gate_proj": config.mlp_multipliers[0],
        "k_proj": config.key_multiplier * config.attention_in_multiplier, "q_proj": config.attention_in_multiplier,
        "v_proj": config.attention_in_multiplier, "o_proj": config.attention_out_multiplier,
        "out_proj": config.ssm_out_multiplier, "lm_head": config.lm_head_multiplier,
        "embed_tokens": config.embedding_multiplier,
    }  # fmt: skip
    module = name.split(".")[-2]
    if module == "in_proj":
        shared = config.mamba_n_groups * config.mamba_d_state
        sizes = [config.mamba_d_ssm, config.mamba_d_ssm, shared, shared, config.mamba_n_heads]
        rows = torch.tensor(config.ssm_multipliers).repeat_interleave(torch.tensor(sizes))
        weight = weight * config.ssm_in_multiplier * rows[:, None]
    yield name, weight * factors.get(module, 1.0)


def _qwen(name: str, weight: Tensor, config: Any, row: str) -> Iterator[tuple[str, Tensor]]:
    if name.endswith("norm.weight") and "linear_attn" not in name:
        weight = weight + 1
    if name.endswith("shared_expert_gate.weight"):
        weight = weight.squeeze()
    if row.startswith("qwen3_5") and "linear_attn" in name:
        weight = _in_turns(name.split(".")[4], weight, config)
    if "in_proj_qkvz" not in name or row.endswith("first"):
        yield name, weight
        return
    values = config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
    sizes = [config.linear_key_head_dim, config.linear_key_head_dim, values, values]
    parts = weight.view(config.linear_num_key_heads, sum(sizes), -1).split(sizes, dim=1)
    q, k, v, z = (part.reshape(-1, weight.shape[1]) for part in parts)
    layer = name.split(".")[2]
    yield f"blk.{layer}.attn_qkv.weight", torch.cat([q, k, v])
    yield f"blk.{layer}.attn_gate.weight", z


def _in_turns(part: str, weight: Tensor, config: Any) -> Tensor:
    """Value heads one for each key head in turn, in place of all of one key head first."""
    keys, size = config.linear_num_key_heads, config.linear_value_head_dim
    size = 1 if part in ("A_log", "dt_bias", "in_proj_a", "in_proj_b") else size
    others = 2 * keys * config.linear_key_head_dim if part in ("in_proj_qkv", "conv1d") else 0
    if part == "norm":
        return weight
    if part == "out_proj":
        return weight.unflatten(1, (keys, -1, size)).transpose(1, 2).flatten(1)
    turned = weight[others:].unflatten(0, (keys, -1, size)).transpose(0, 1).flatten(0, 2)
    return torch.cat([weight[:others], turned])


def _deepseek(name: str, weight: Tensor, config: Any, row: str) -> Iterator[tuple[str, Tensor]]:
    if not name.endswith("kv_b_proj.weight") or row.endswith("whole"):
        yield name, weight
        return
    sizes = [config.qk_nope_head_dim, config.v_head_dim]
    keys, values = weight.view(config.num_attention_heads, sum(sizes), -1).split(sizes, dim=1)
    yield name.replace("kv_b", "k_b"), keys.transpose(1, 2)
    yield name.replace("kv_b", "v_b"), values
