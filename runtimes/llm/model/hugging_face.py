"""The shape of a model from its config.json."""

from collections.abc import Mapping
from typing import Any

from runtimes.llm.model.families import FAMILIES
from runtimes.llm.model.family import Family
from runtimes.llm.model.model_config import (
    MAX_LAYERS,
    Activation,
    LayerKind,
    ModelShape,
    Reach,
    Rope,
    TextPiece,
    UnsupportedModel,
    checked_count,
)

_SLIDING, _FULL, _PIECES = "sliding_attention", "full_attention", "chunked_attention"
_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu": "gelu", "relu2": "relu2", "xielu": "xielu",
}  # fmt: skip
# Models that also see or hear, by their own type, and the family of the part that writes.
OTHER_PARTS: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "idefics3": "llama",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "smolvlm": "llama",
}
_OUTER = ("eos_token_id", "quantization_config", "quantization")


def family_of(raw: Mapping[str, Any]) -> Family:
    """Raises UnsupportedModel for one that is not in the table."""
    name = str(raw.get("model_type"))
    if name not in FAMILIES:
        raise UnsupportedModel(
            f"architecture {name!r} is not supported; these are: {', '.join(sorted(FAMILIES))}. A server that supports"
            " it can be started with `kind: vllm`"
        )
    return FAMILIES[name]


def hugging_face_config(raw: Mapping[str, Any], eos_token_ids: frozenset[int] = frozenset()) -> ModelShape:
    """The shape that `raw`, a config.json, describes. Raises UnsupportedModel, which names the unsupported part."""
    raw = text_part(raw)
    family = family_of(raw)
    renamed = {own: raw[stored] for own, stored in family.keys.items() if stored in raw}
    try:
        return _config(family, family.completed({**family.defaults, **raw, **renamed}), eos_token_ids)
    except KeyError as error:
        raise UnsupportedModel(f"config.json lacks {error.args[0]}") from None


def text_part(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section of the language model for a model that also accepts pictures; else all of `raw`."""
    family = OTHER_PARTS.get(str(raw.get("model_type")))
    if family is None:
        return raw
    text = raw.get("text_config")
    if not isinstance(text, dict):
        if "hidden_size" in raw:  # as the first files of Qwen's have it
            ropes = {name: _of_text(raw[name]) for name in ("rope_parameters", "rope_scaling") if name in raw}
            return {**raw, **ropes, "model_type": family}
        raise UnsupportedModel("config.json lacks text_config")
    shared = {name: raw[name] for name in _OUTER if name in raw}
    own = str(text.get("model_type"))
    ropes = {name: _of_text(text[name]) for name in ("rope_parameters", "rope_scaling") if name in text}
    tied = {name: raw[name] for name in ("tie_word_embeddings",) if name in raw}
    return {**shared, **text, **ropes, **tied, "model_type": own if own in FAMILIES else family}


def _of_text(rope: Any) -> Any:
    """A text's positions are equal in all dimensions of a picture, so `mrope` is plain."""
    if not isinstance(rope, dict):
        return rope
    return {name: "default" if value == "mrope" else value for name, value in rope.items()}


def token_ids(value: Any) -> frozenset[int]:
    """The ids of a field that is an id, a list of them or nothing. Some tools write an id as text."""
    given = value if isinstance(value, list) else [value]
    texts = [str(one) for one in given if isinstance(one, int | str) and not isinstance(one, bool)]
    return frozenset(int(text) for text in texts if text.isdecimal())


def _config(family: Family, raw: Mapping[str, Any], eos_token_ids: frozenset[int]) -> ModelShape:
    _refuse_options(family, raw)
    _refuse_lost_theta(raw)
    checked_count("num_hidden_layers", raw["num_hidden_layers"], MAX_LAYERS)
    heads, bias = raw["num_attention_heads"], bool(raw.get("attention_bias"))
    head_dim = raw.get("head_dim") or raw["hidden_size"] // heads
    kinds = _layer_kinds(family, raw, raw.get("qk_rope_head_dim") or head_dim)
    distinct = tuple(dict.fromkeys(kinds))
    described: dict[str, Any] = {
        "vocab_size": raw["vocab_size"],
        "hidden_size": raw["hidden_size"],
        "intermediate_size": raw.get("intermediate_size") or 4 * raw["hidden_size"],
        "num_layers": raw["num_hidden_layers"],
        "num_heads": heads,
        "num_kv_heads": raw.get("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "context_length": _context_length(family, raw),
        "rms_norm_eps": raw.get("rms_norm_eps", 1e-6),
        "kinds": distinct,
        "layer_kinds": tuple(distinct.index(kind) for kind in kinds),
        "attention_scale": head_dim**-0.5,
        "tie_word_embeddings": raw.get("tie_word_embeddings", False),
        "eos_token_ids": eos_token_ids | token_ids(raw.get("eos_token_id")),
        "activation": activation_of(raw),
        "qkv_bias": bias,
        "attention_out_bias": bias,
        "mlp_bias": bool(raw.get("mlp_bias")),
    }
    return ModelShape(**described | family.features(raw))


def _refuse_options(family: Family, raw: Mapping[str, Any]) -> None:
    for option in ("use_bidirectional_attention", *family.refused):
        if raw.get(option):
            raise UnsupportedModel(f"{option} is not supported for {raw['model_type']}")


def _refuse_lost_theta(raw: Mapping[str, Any]) -> None:
    """transformers takes rope_scaling in place of rope_parameters, and then its default for a base that only these
    have: such a model talks nonsense."""
    scaling, parameters = raw.get("rope_scaling"), raw.get("rope_parameters")
    if not scaling or not parameters or "rope_theta" in scaling or "rope_theta" in raw:
        return
    if (theta := parameters.get("rope_theta", 10_000.0)) != 10_000.0:
        raise UnsupportedModel(
            f"rope_scaling replaces rope_parameters with its rope_theta of {theta}: add rope_theta to rope_scaling"
        )


def activation_of(raw: Mapping[str, Any]) -> Activation:
    """Raises UnsupportedModel for one that is not in the table."""
    name = raw.get("hidden_activation") or raw.get("hidden_act") or "silu"
    if name not in _ACTIVATIONS:
        raise UnsupportedModel(f"hidden_act {name!r} is not supported; these are: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


# ── attention: windows and positions ──────────────────────────────────────────────────────────────────


def _layer_kinds(family: Family, raw: Mapping[str, Any], head_dim: int) -> list[LayerKind]:
    from runtimes.llm.model.rope import rope_of  # needs torch, and the names and ids of a model do not

    layers = range(raw["num_hidden_layers"])
    types = (not family.alike and raw.get("layer_types")) or [
        _SLIDING if family.slides(raw, layer) else _FULL for layer in layers
    ]
    pieces = raw.get("attention_chunk_size")
    if unknown := sorted(set(types) - {_SLIDING, _FULL, *([_PIECES] if pieces else [])}):
        raise UnsupportedModel(f"layer_types {unknown[0]!r} is not supported; these are: {_FULL}, {_SLIDING}")
    if len(types) != len(layers):
        raise UnsupportedModel(f"layer_types names {len(types)} layers; num_hidden_layers is {len(layers)}")
    window = raw.get("sliding_window") if raw.get("use_sliding_window", True) else None
    length = raw["max_position_embeddings"]
    reaches: dict[str, Reach] = {_SLIDING: window, _PIECES: None if pieces is None else TextPiece(pieces)}
    for type, tokens in ((_SLIDING, window), (_PIECES, pieces)):
        if tokens is not None and tokens >= _context_length(family, raw):
            reaches[type] = None
    ropes: dict[tuple[str, int], Rope] = {}
    kinds = []
    for layer, type in enumerate(types):
        heads = family.heads(raw, layer)
        turned = type, head_dim if heads is None else heads[1]
        turns = family.turns(raw, layer, type == _SLIDING)
        if turns and turned not in ropes:
            ropes[turned] = rope_of(_rope_parameters(family, raw, type), turned[1], length)
        same = family.values_are_keys(raw, layer)
        kinds.append(LayerKind(ropes[turned] if turns else None, reaches.get(type), heads, same))
    return kinds


def _rope_parameters(family: Family, raw: Mapping[str, Any], layer_type: str) -> dict[str, Any]:
    """The parameters in the form of transformers 5; before, the scaling was rope_scaling and all else at the top."""
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    local = family.local_rope and layer_type == _SLIDING
    theta = raw.get("rope_theta", 10_000.0)
    if layer_type in given:
        given = given[layer_type] or {}
    elif local:  # only the global layers are scaled
        given = {}
        theta = raw.get("rope_local_base_freq", theta if raw["model_type"] == "olmo3" else 10_000.0)
    parameters = {
        "rope_theta": theta,
        "partial_rotary_factor": _turned_part(raw),
        "original_max_position_embeddings": raw["max_position_embeddings"],
        **{name: value for name, value in given.items() if value is not None},
    }
    if (original := raw.get("original_max_position_embeddings")) is not None:
        parameters["original_max_position_embeddings"] = original
    if raw["model_type"].startswith("phi") and parameters.get("rope_type", parameters.get("type")) == "yarn":
        parameters["rope_type"] = "longrope"  # which the first Phi-3 called so
    return parameters


def _turned_part(raw: Mapping[str, Any]) -> float:
    if "rotary_dim" in raw and raw.get("head_dim"):
        return float(raw["rotary_dim"] / raw["head_dim"])
    return float(raw.get("partial_rotary_factor", 1.0))


def _context_length(family: Family, raw: Mapping[str, Any]) -> int:
    """The positions that the model supports. YaRN's number in the file is before the scaling."""
    from runtimes.llm.model.rope import scaling_type

    length: int = raw["max_position_embeddings"]
    parameters = _rope_parameters(family, raw, _FULL)
    if scaling_type(parameters) != "yarn" or not parameters.get("factor"):
        return length
    return max(length, int(parameters["original_max_position_embeddings"] * parameters["factor"]))
