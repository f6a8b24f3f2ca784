"""What is special in Gemma 3n and 4: fields of `ModelShape`, computed from config.json."""

from typing import Any

from runtimes.llm.model.family_features import Raw, experts, gemma
from runtimes.llm.model.shapes.checks import UnsupportedModel
from runtimes.llm.model.shapes.gemma import PerLayerShape, StreamShape

_SPARSE_LAYERS, _SPARSITY = 10, 0.95  # where config.json has no pattern


def of_each_layer(raw: Raw) -> Raw:
    """Sizes of MLPs may be a list, and the greatest is the model's."""
    sizes, layers = raw["intermediate_size"], raw["num_hidden_layers"]
    if not isinstance(sizes, list):
        return raw
    if len(sizes) != layers or not all(isinstance(size, int) for size in sizes):
        raise UnsupportedModel(f"intermediate_size has not one size for each of {layers} layers")
    return {**raw, "intermediate_size": max(sizes), "mlp_sizes": sizes}


def gemma3n(raw: Raw) -> dict[str, Any]:
    return gemma(raw) | {
        "attention_scale": 1.0,
        "logits_soft_cap": raw.get("final_logit_softcapping"),
        "post_norms": True,
        "qk_norm": "head",
        "value_norm": True,
        "key_layers": key_layers(raw),
        "mlp_sizes": tuple(raw.get("mlp_sizes") or ()),
        "sparsity": _sparsity(raw),
        "per_layer": PerLayerShape(raw["vocab_size_per_layer_input"], raw["hidden_size_per_layer_input"]),
        "streams": StreamShape(
            raw["altup_num_inputs"], raw["altup_active_idx"], raw["laurel_rank"], bool(raw["altup_correct_scale"])
        ),
    }


def gemma4_layers(raw: Raw) -> Raw:
    """config.json with the types of layers, the last of which always attends to all. Texts attend causally, whatever
    pictures do."""
    types = list(raw["layer_types"])
    types[-1:] = ["full_attention"]
    bidirectional = raw.get("use_bidirectional_attention")
    rope = raw.get("rope_parameters") or {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    }
    given = {"layer_types": types, "rope_parameters": rope}
    return {**raw, **given, "use_bidirectional_attention": None if bidirectional == "vision" else bidirectional}


def gemma4_heads(raw: Raw, layer: int) -> tuple[int, int] | None:
    """Layers that attend to all tokens have other heads: as fields of their own, or in newer files as a table."""
    kind, models = raw["layer_types"][layer], (raw["num_key_value_heads"], raw["head_dim"])
    own: Raw = {}
    if (table := raw.get("per_layer_config")) is not None:
        own = table.get(str(layer)) or table.get(kind) or {}
        if unknown := sorted(set(own) - {"head_dim", "num_key_value_heads"}):
            raise UnsupportedModel(f"{unknown[0]} of per_layer_config is not supported for {raw['model_type']}")
    elif kind == "full_attention":
        keys = raw.get("num_global_key_value_heads") if raw["attention_k_eq_v"] else None
        own = {"head_dim": raw["global_head_dim"]} | ({} if keys is None else {"num_key_value_heads": keys})
    heads: tuple[int, int] = own.get("num_key_value_heads", models[0]), own.get("head_dim", models[1])
    return None if heads == models else heads


def gemma4(raw: Raw) -> dict[str, Any]:
    size, keys, rows = raw["intermediate_size"], key_layers(raw), raw["hidden_size_per_layer_input"]
    given = gemma(raw) | {
        "attention_scale": 1.0,
        "logits_soft_cap": raw.get("final_logit_softcapping"),
        "post_norms": True,
        "qk_norm": "head",
        "value_norm": True,
        "key_layers": keys,
        "layer_factors": True,
        "per_layer": PerLayerShape(raw["vocab_size_per_layer_input"], rows) if rows else None,
    }
    wide = bool(raw.get("use_double_wide_mlp")) and keys != ()
    if raw.get("enable_moe_block"):
        if wide:
            raise UnsupportedModel("use_double_wide_mlp beside experts is not supported for gemma4")
        return given | {"experts": experts(raw, normalized=True, shared_size=size, apart=True)}
    if not wide:
        return given
    sizes = tuple([size * (1 if own == layer else 2) for layer, own in enumerate(keys)])
    return given | {"intermediate_size": max(sizes), "mlp_sizes": sizes}


def key_layers(raw: Raw) -> tuple[int, ...]:
    """Each layer's layer of keys and values: the last layers read those of the last layer of their type before them."""
    layers, shared = raw["num_hidden_layers"], raw.get("num_kv_shared_layers") or 0
    types = raw["layer_types"]
    if not isinstance(shared, int) or not 0 <= shared < layers:
        raise UnsupportedModel(f"num_kv_shared_layers is {shared!r}, of {layers} layers")
    if not shared:
        return ()
    own = {kind: layer for layer, kind in enumerate(types[: layers - shared])}
    if missing := sorted(set(types) - set(own)):
        raise UnsupportedModel(f"the last {shared} layers share keys of {missing[0]}, which no layer before them has")
    return tuple(layer if layer < layers - shared else own[types[layer]] for layer in range(layers))


def _sparsity(raw: Raw) -> tuple[float, ...]:
    layers, given = raw["num_hidden_layers"], raw.get("activation_sparsity_pattern")
    if given is None:
        sparse = _SPARSE_LAYERS if layers > _SPARSE_LAYERS else 0
        return tuple([_SPARSITY if layer < sparse else 0.0 for layer in range(layers)])
    if not isinstance(given, list) or len(given) != layers or not all(0 <= share < 1 for share in given):
        raise UnsupportedModel(f"activation_sparsity_pattern has not one share below 1 for each of {layers} layers")
    return tuple([float(share) for share in given])
