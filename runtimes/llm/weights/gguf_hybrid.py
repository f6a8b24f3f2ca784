"""GGUF files of models with recurrent layers or latent attention: config.json's fields, and tensors as they were there.

llama.cpp's converters change some tensors: A is stored in place of its logarithm, a convolution without its middle
dimension, Falcon-H1's multipliers within its weights, and DeepSeek's expansion of latents as two tensors
(https://github.com/ggml-org/llama.cpp/tree/master/conversion).
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from runtimes.llm.model.matrix import Weight, with_columns, with_rows
from runtimes.llm.model.model_config import DeltaShape, LatentShape, ModelShape, UnsupportedModel
from runtimes.llm.model.tensor_names import Names

_RECURRENT, _ATTENDING = "linear_attention", "full_attention"
_SIGMOID = 2


class Tensors(Protocol):
    """The tensors of a file by name."""

    def __contains__(self, name: str) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> Tensor: ...


class HybridFile(Protocol):
    """A file's fields, those of its architecture by `own(key, default)`, and its tensors."""

    @property
    def tensors(self) -> Tensors: ...

    @property
    def layers(self) -> int: ...

    def own(self, key: str, *default: Any) -> Any: ...


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────


def _layer_types(model: HybridFile) -> list[str]:
    """What each layer is, by the tensors that it has."""
    return [_layer_type(model.tensors, f"blk.{index}.") for index in range(model.layers)]


def _layer_type(tensors: Tensors, layer: str) -> str:
    if layer + "ssm_a" in tensors:
        return _RECURRENT
    if layer + "attn_q.weight" in tensors:
        return _ATTENDING
    return "moe" if layer + "ffn_gate_inp.weight" in tensors else "mlp"


def _stored(model: HybridFile, name: str) -> bool:
    """Whether some layer has the tensor `name`."""
    return any(f"blk.{index}.{name}" in model.tensors for index in range(model.layers))


def _mamba(model: HybridFile) -> dict[str, Any]:
    """The fields of Mamba-2 by Bamba's names."""
    return {
        "mamba_n_heads": model.own("ssm.time_step_rank"),
        "mamba_n_groups": model.own("ssm.group_count"),
        "mamba_d_state": model.own("ssm.state_size"),
        "mamba_d_conv": model.own("ssm.conv_kernel"),
        "mamba_conv_bias": _stored(model, "ssm_conv1d.bias"),
    }


def granite_hybrid(model: HybridFile) -> dict[str, Any]:
    inner, hidden, experts = model.own("ssm.inner_size"), model.own("embedding_length"), model.own("expert_count", 0)
    if inner % hidden:
        raise UnsupportedModel(f"ssm.inner_size is {inner}, which is no multiple of embedding_length, {hidden}")
    shared = model.own("expert_shared_feed_forward_length", 0)
    return _mamba(model) | {
        "layer_types": _layer_types(model),
        "mamba_expand": inner // hidden,
        "mamba_proj_bias": _stored(model, "ssm_in.bias"),
        "num_local_experts": experts,
        "shared_intermediate_size": shared if experts else model.tensors.shape("blk.0.ffn_down.weight")[1],
        "position_embedding_type": "rope" if model.own("rope.scaling.finetuned", False) else "nope",
    }


def falcon_h1(model: HybridFile) -> dict[str, Any]:
    """Its multipliers are in the weights. A norm follows the gate: llama.cpp computes no other."""
    return _mamba(model) | {
        "mamba_d_ssm": model.own("ssm.inner_size"),
        "mamba_rms_norm": _stored(model, "ssm_norm.weight"),
        "mamba_norm_before_gate": False,
        "projectors_bias": _stored(model, "ssm_out.bias"),
    }


def nemotron_h(model: HybridFile) -> dict[str, Any]:
    heads = model.own("ssm.time_step_rank")
    return {
        "layer_types": _layer_types(model),
        "mamba_num_heads": heads,
        "mamba_head_dim": model.own("ssm.inner_size") // max(heads, 1),
        "ssm_state_size": model.own("ssm.state_size"),
        "n_groups": model.own("ssm.group_count"),
        "conv_kernel": model.own("ssm.conv_kernel"),
        "use_conv_bias": _stored(model, "ssm_conv1d.bias"),
        "use_bias": _stored(model, "ssm_in.bias"),
        "moe_latent_size": model.own("moe_latent_size", 0),
        "moe_shared_expert_intermediate_size": model.own("expert_shared_feed_forward_length", 0),
    }


def qwen3_next(model: HybridFile) -> dict[str, Any]:
    heads = model.own("ssm.time_step_rank")
    return {
        "layer_types": _layer_types(model),
        "linear_num_key_heads": model.own("ssm.group_count"),
        "linear_num_value_heads": heads,
        "linear_key_head_dim": model.own("ssm.state_size"),
        "linear_value_head_dim": model.own("ssm.inner_size") // max(heads, 1),
        "linear_conv_kernel_dim": model.own("ssm.conv_kernel"),
    }


def is_by_key_head(tensors: Tensors, layers: int) -> bool:
    """Whether Qwen3-Next's rows are in the order of config.json's files, as the first converters left them."""
    return any(f"blk.{index}.ssm_in.weight" in tensors for index in range(layers))


def deepseek_family(model: HybridFile) -> str:
    """By the function of the router's scores. Where a file does not name it, only a sigmoid's have a bias."""
    gating = model.own("expert_gating_func", 0)
    return "deepseek_v3" if gating == _SIGMOID or (not gating and _stored(model, "exp_probs_b.bias")) else "deepseek_v2"


def deepseek2(model: HybridFile) -> dict[str, Any]:
    """Files from before the two tensors have the sizes of keys and values under the names of all others."""
    if model.own("attention.temperature_scale", 0.0):
        raise UnsupportedModel("attention.temperature_scale is not supported for deepseek2")
    turned = model.own("rope.dimension_count")
    groups = model.own("expert_group_count", 1)
    return {
        "q_lora_rank": model.own("attention.q_lora_rank", None),
        "kv_lora_rank": model.own("attention.kv_lora_rank"),
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": model.own("attention.key_length_mla", model.own("attention.key_length")) - turned,
        "v_head_dim": model.own("attention.value_length_mla", model.own("attention.value_length")),
        "topk_method": "greedy" if groups <= 1 else "group_limited_greedy",
        "norm_topk_prob": bool(model.own("expert_weights_norm", False)),
        # Written times 0.1; the strength of the rotation itself is taken to be the same.
        "rope_parameters": {
            "mscale_all_dim": 10 * model.own("rope.scaling.yarn_log_multiplier", 0.0),
            "factor": model.own("rope.scaling.factor", 1.0),
        },
    }


# ── tensors ───────────────────────────────────────────────────────────────────────────────────────────

HYBRID_NAMES: Names = {
    "mlp.experts_into": "ffn_latent_down",
    "mlp.experts_out": "ffn_latent_up",
    "mamba.in_proj": "ssm_in",
    "mamba.conv1d": "ssm_conv1d",
    "mamba.dt_bias": "ssm_dt.bias",
    "mamba.A_log": "ssm_a",
    "mamba.D": "ssm_d",
    "mamba.norm": "ssm_norm",
    "mamba.out_proj": "ssm_out",
    "linear_attn.in_proj_qkvz": "ssm_in",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_ba",
    "linear_attn.in_proj_a": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.scale_of_values": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}


IN_TURNS: Names = {"linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha"}
"""Qwen3.5's own."""


def as_in_folders(name: str, stored: Tensor) -> Tensor:
    """The tensor `name`, a vector or a convolution of a recurrent layer, with config.json's numbers and shape."""
    if name.endswith("conv1d.weight"):
        return stored.unflatten(0, (-1, 1))
    flat = stored.flatten()
    return (-flat).log() if name.endswith("A_log") else flat


RESTORED = ("conv1d.weight", ".A_log", "mamba.D", "mamba.norm.weight")
"""Ends of the names of tensors that `as_in_folders` restores."""


def delta_weight(name: str, stored: Weight, shape: DeltaShape, *, in_turns: bool) -> Weight:
    """The tensor `name` of a layer of the gated delta rule, with its rows or columns as in config.json's files.

    Value heads of Qwen3.5 are `in_turns`: the first of every key head, then the second of every one.
    """
    if not in_turns:
        rows = _rates(name, shape)
        return stored if rows is None else with_rows(stored, rows)
    part = name.split(".")[4]
    heads = torch.arange(shape.value_heads).view(-1, shape.key_heads).t().flatten()
    values = (heads[:, None] * shape.value_dim + torch.arange(shape.value_dim)).flatten()
    if part == "out_proj":
        return with_columns(stored, values)
    if part in ("A_log", "dt_bias", "in_proj_b", "in_proj_a"):
        return with_rows(stored, heads)
    if part == "in_proj_z":
        return with_rows(stored, values)
    if part in ("in_proj_qkv", "conv1d"):
        before = torch.arange(shape.channels - shape.inner)
        return with_rows(stored, torch.cat([before, len(before) + values]))
    return stored


def _rates(name: str, shape: DeltaShape) -> Tensor | None:
    """The rows of `ssm_ba` that are β or the steps, which each key head has beside each other; None of other names."""
    part = {"in_proj_b": 0, "in_proj_a": 1}.get(name.split(".")[-2])
    if part is None:
        return None
    return torch.arange(2 * shape.value_heads).view(shape.key_heads, 2, -1)[:, part].flatten()


def expansion(tensors: Tensors, index: int, shape: LatentShape, config: ModelShape) -> Tensor:
    """DeepSeek's `kv_b_proj` from its two parts: keys [heads, rank, plain], values [heads, value, rank]."""
    parts = {
        "k": (config.num_heads, shape.rank, shape.plain_dim),
        "v": (config.num_heads, shape.value_dim, shape.rank),
    }
    read: dict[str, Tensor] = {}
    for part, size in parts.items():
        name = f"blk.{index}.attn_{part}_b.weight"
        read[part] = tensors.tensor(name)
        if tuple(read[part].shape) != size:
            raise UnsupportedModel(
                f"tensor {name} is {list(read[part].shape)}; the configuration requires {list(size)}"
            )
    return torch.cat([read["k"].transpose(1, 2), read["v"]], dim=1).flatten(0, 1)


FIELDS: Mapping[str, Callable[[HybridFile], dict[str, Any]]] = {
    "granitehybrid": granite_hybrid,
    "falcon-h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "nemotron_h_moe": nemotron_h,
    "qwen3next": qwen3_next,
    "qwen35": qwen3_next,
    "qwen35moe": qwen3_next,
    "deepseek2": deepseek2,
}
"""config.json's fields that only these architectures have."""
