"""What is special in families with recurrent layers, as in `family_features`."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from runtimes.llm.model.family_features import Raw, deepseek_moe, granite, granite_moe, qwen_moe
from runtimes.llm.model.model_config import MAX_LAYERS, DeltaShape, MambaShape, UnsupportedModel, checked_count

_RECURRENT, _ATTENDING = "linear_attention", "full_attention"
_OLD_NAMES = {"mamba": _RECURRENT, "attention": _ATTENDING}


def layer_types(raw: Raw, *more: str) -> list[str]:
    """What each layer is, by transformers' present names: recurrent, attending, or one of `more`."""
    given = raw.get("layer_types") or raw.get("layers_block_type")
    layers = raw["num_hidden_layers"]
    listed = [_RECURRENT] * layers if given is None else [_OLD_NAMES.get(str(one), str(one)) for one in given]
    if len(listed) != layers or not set(listed) <= {_RECURRENT, _ATTENDING, *more}:
        raise UnsupportedModel(
            f"layer_types is {given!r}, which is not {layers} times {', '.join((_RECURRENT, _ATTENDING, *more))}"
        )
    return listed


def _are(types: list[str], kind: str) -> frozenset[int]:
    return frozenset(index for index, one in enumerate(types) if one == kind)


def mamba(raw: Raw, inner: int, **more: Any) -> MambaShape:
    """Mamba-2 by the names of Bamba's configuration; `inner` is the size of all heads."""
    heads = checked_count("mamba_n_heads", raw["mamba_n_heads"])
    head_dim = raw.get("mamba_d_head", "auto")
    if head_dim == "auto":
        head_dim = inner // heads
    if head_dim * heads != inner:
        raise UnsupportedModel(f"mamba_d_head is {head_dim}: {heads} heads of it are not {inner} numbers")
    return MambaShape(
        heads=heads,
        head_dim=head_dim,
        state=raw["mamba_d_state"],
        groups=raw["mamba_n_groups"],
        conv_length=raw["mamba_d_conv"],
        conv_bias=bool(raw["mamba_conv_bias"]),
        step_limits=step_limits(raw),
        **more,
    )


def step_limits(raw: Mapping[str, Any]) -> tuple[float, float]:
    limits = raw.get("time_step_limit") or (0.0, inf)
    try:
        # JSON has no infinity: transformers writes {"__float__": "Infinity"}, other tools its name.
        low, high = [float(one["__float__"] if isinstance(one, dict) else one) for one in limits]
    except (TypeError, ValueError, KeyError):
        raise UnsupportedModel(f"time_step_limit is {limits!r}, which is not two numbers") from None
    return low, high


def granite_hybrid(raw: Raw) -> dict[str, Any]:
    types, bias = layer_types(raw), bool(raw.get("mamba_proj_bias"))
    shared = granite_moe(raw) if raw["num_local_experts"] else granite(raw)
    recurrent = _are(types, _RECURRENT)
    shape = mamba(raw, raw["mamba_expand"] * raw["hidden_size"], bias=bias, out_bias=bias) if recurrent else None
    size = {} if raw["num_local_experts"] else {"intermediate_size": raw["shared_intermediate_size"]}
    return shared | size | {"recurrent": shape, "recurrent_layers": recurrent, "unattended": recurrent}


def falcon_h1(raw: Raw) -> dict[str, Any]:
    """Every layer has both, side by side, and multipliers of everything. Those of attention's input and of keys change
    its scores, where they are one factor."""
    layers, inner = frozenset(range(raw["num_hidden_layers"])), raw["mamba_d_ssm"]
    into, out, ssm_in = (raw.get(f"{name}_multiplier", 1.0) for name in ("attention_in", "attention_out", "ssm_in"))
    ssm, (gate, down) = raw.get("ssm_multipliers") or [1.0] * 5, raw.get("mlp_multipliers") or (1.0, 1.0)
    if len(ssm) != 5:
        raise UnsupportedModel(f"ssm_multipliers is {ssm!r}, which is not five numbers")
    head_dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    return {
        "recurrent": mamba(
            raw,
            raw["mamba_expand"] * raw["hidden_size"] if inner is None else inner,
            out_bias=bool(raw.get("projectors_bias")),
            normed=bool(raw.get("mamba_rms_norm")),
            gated_last=bool(raw["mamba_norm_before_gate"]),
            multipliers=tuple(ssm_in * one for one in ssm),
            out_multiplier=raw.get("ssm_out_multiplier", 1.0),
        ),
        "recurrent_layers": layers,
        "attention_scale": head_dim**-0.5 * raw.get("key_multiplier", 1.0) * into**2,
        "attention_multiplier": into * out,
        "embedding_multiplier": raw.get("embedding_multiplier", 1.0),
        "logits_multiplier": raw.get("lm_head_multiplier", 1.0),
        "gate_multiplier": gate,
        "mlp_multiplier": down,
    }


_PATTERN = {"M": _RECURRENT, "*": _ATTENDING, "-": "mlp", "E": "moe"}


def nemotron_layers(raw: Raw) -> Raw:
    """What the layers are is a pattern of letters or a list, and their number is that of either."""
    pattern, types = raw.get("hybrid_override_pattern"), raw.get("layers_block_type") or raw.get("layer_types")
    if types is None:
        if not isinstance(pattern, str) or not set(pattern) <= _PATTERN.keys():
            raise UnsupportedModel(
                f"hybrid_override_pattern is {pattern!r}, which is not letters of {''.join(_PATTERN)}"
            )
        types = [_PATTERN[letter] for letter in pattern]
    return {**raw, "layer_types": types, "num_hidden_layers": len(types)}


def nemotron_h(raw: Raw) -> dict[str, Any]:
    """A layer is one thing: a state, attention, an MLP or experts."""
    types, bias = layer_types(raw, "mlp", "moe"), bool(raw.get("use_bias"))
    recurrent, attending, dense = (_are(types, kind) for kind in (_RECURRENT, _ATTENDING, "mlp"))
    shape = MambaShape(
        heads=raw["mamba_num_heads"],
        head_dim=raw["mamba_head_dim"],
        state=raw["ssm_state_size"],
        groups=raw["n_groups"],
        conv_length=raw["conv_kernel"],
        conv_bias=bool(raw["use_conv_bias"]),
        bias=bias,
        out_bias=bias,
        step_limits=step_limits(raw),
    )
    mixture = deepseek_moe(raw)["experts"] if "moe" in types else None
    if mixture is not None:
        mixture = replace(
            mixture, shared_size=raw["moe_shared_expert_intermediate_size"], read=raw.get("moe_latent_size") or 0
        )
    return {
        "gated": False,
        "recurrent": shape if recurrent else None,
        "recurrent_layers": recurrent,
        "unattended": frozenset(range(len(types))) - attending,
        "without_mlp": recurrent | attending,
        "dense_layers": dense,
        "experts": mixture,
    }


def qwen_layers(raw: Raw) -> Raw:
    """Without a list, every fourth layer attends."""
    if raw.get("layer_types") is not None:
        return raw
    every = checked_count("full_attention_interval", raw.get("full_attention_interval", 4))
    layers = range(checked_count("num_hidden_layers", raw["num_hidden_layers"], MAX_LAYERS))
    return {**raw, "layer_types": [_RECURRENT if (layer + 1) % every else _ATTENDING for layer in layers]}


def qwen3_5(raw: Raw) -> dict[str, Any]:
    """Its matrices are in our own order."""
    recurrent = _are(layer_types(raw), _RECURRENT)
    shape = DeltaShape(
        key_heads=raw["linear_num_key_heads"],
        value_heads=raw["linear_num_value_heads"],
        key_dim=raw["linear_key_head_dim"],
        value_dim=raw["linear_value_head_dim"],
        conv_length=raw["linear_conv_kernel_dim"],
        by_key_head=False,
    )
    return {
        "qk_norm": "head",
        "attention_gate": True,
        "recurrent": shape if recurrent else None,
        "recurrent_layers": recurrent,
        "unattended": recurrent,
    }


def qwen3_5_moe(raw: Raw) -> dict[str, Any]:
    return qwen3_5(raw) | qwen_moe(raw)


def qwen3_next(raw: Raw) -> dict[str, Any]:
    described = qwen3_5_moe(raw)
    if (shape := described["recurrent"]) is not None:
        described["recurrent"] = replace(shape, by_key_head=True)
    return described
