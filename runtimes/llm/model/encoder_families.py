"""The families of encoders, one row for each: what config.json and the files call things, and what is special.

All else is BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtimes.llm.model.model_config import Rope, UnsupportedModel
from runtimes.llm.model.tensor_names import TensorPart

Raw = Mapping[str, Any]


def _no_features(raw: Raw) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFamily:
    """`keys` are the family's own spellings of BERT's fields, `names` of BERT's tensors; those of a layer begin with
    `layers`. `features` are fields of `EncoderConfig`."""

    keys: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str | TensorPart] = field(default_factory=dict)
    layers: str = "encoder.layer"
    features: Callable[[Raw], dict[str, Any]] = _no_features


def _after_padding(raw: Raw) -> dict[str, Any]:
    """Positions begin after the padding token's."""
    return {"first_position": raw.get("pad_token_id", 1) + 1}


def _rope(raw: Raw, layer_type: str | None = None, theta: float = 10_000.0) -> Rope:
    from runtimes.llm.model.rope import rope_of  # needs torch, and the table does not

    head_dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    given = raw.get("rope_parameters") or {}
    given = (given.get(layer_type) or {}) if layer_type in given else given
    parameters = {"rope_theta": theta, **{name: value for name, value in given.items() if value is not None}}
    return rope_of(parameters, head_dim, raw["max_position_embeddings"])


def _nomic(raw: Raw) -> dict[str, Any]:
    """RoPE and a gate, without biases, as the authors' own code and transformers call it."""
    if raw.get("prenorm") or raw.get("use_rms_norm") or raw.get("rotary_emb_interleaved"):
        raise UnsupportedModel("a Nomic model with other norms or another order of rotations is not supported")
    if raw.get("rotary_emb_scale_base") or raw.get("rotary_emb_fraction", 1.0) != 1.0:
        raise UnsupportedModel("a Nomic model whose rotation is scaled or partial is not supported")
    return {
        "ropes": (_rope(raw, theta=raw.get("rotary_emb_base", 1000.0)),),
        "gated": True,
        "attention_bias": False,
        "up_bias": False,
        "down_bias": False,
        "activation": "silu",
    }


def _gte(raw: Raw) -> dict[str, Any]:
    """Alibaba's "new" architecture."""
    import torch

    from runtimes.llm.model.rope import divided

    theta, scaling = raw.get("rope_theta", 160_000.0), raw.get("rope_scaling") or {}
    if raw.get("position_embedding_type", "rope") != "rope" or raw.get("layer_norm_type", "layer_norm") != "layer_norm":
        raise UnsupportedModel("a model of type `new` with other positions or norms than its first is not supported")
    divisor = 1.0
    if scaling:
        if scaling.get("type", scaling.get("rope_type")) != "ntk" or scaling.get("mixed_b") is not None:
            raise UnsupportedModel(f"rope scaling {scaling} is not supported for a model of type `new`")
        theta *= scaling["factor"]
        divisor = scaling["factor"] ** (2 * raw["num_attention_heads"] / raw["hidden_size"])
    rope = _rope(raw, theta=theta)
    slower = divided(rope, torch.full((len(rope.frequencies),), divisor))
    return {"ropes": (slower,), "gated": True, "up_bias": False}


def _modern(raw: Raw) -> dict[str, Any]:
    """ModernBERT (Warner et al. 2024, https://arxiv.org/abs/2412.13663)."""
    layers, every = raw["num_hidden_layers"], raw.get("global_attn_every_n_layers") or 3
    full, sliding = "full_attention", "sliding_attention"
    types = raw.get("layer_types") or [sliding if layer % every else full for layer in range(layers)]
    if len(types) != layers or set(types) - {full, sliding}:
        raise UnsupportedModel(f"layer_types must name {layers} layers as {full} or {sliding}")
    if raw.get("rope_scaling"):
        raise UnsupportedModel("rope_scaling is not supported for modernbert")
    bias = bool(raw.get("attention_bias")), bool(raw.get("mlp_bias"))
    return {
        "ropes": (
            _rope(raw, full, raw.get("global_rope_theta", 160_000.0)),
            _rope(raw, sliding, raw.get("local_rope_theta") or 10_000.0),
        ),
        "windows": (None, raw.get("local_attention", 128) // 2),
        "layer_kinds": tuple(int(kind == sliding) for kind in types),
        "num_types": 0,
        "gated": True,
        "pre_norms": True,
        "first_norm": False,
        "attention_bias": bias[0],
        "up_bias": bias[1],
        "down_bias": bias[1],
        "norm_bias": bool(raw.get("norm_bias")),
        "layer_norm_eps": raw.get("norm_eps", 1e-5),
    }


def _gemma(raw: Raw) -> dict[str, Any]:
    """EmbeddingGemma (Schechter Vera et al. 2025, https://arxiv.org/abs/2509.20354): Gemma 3 without its mask."""
    full, sliding = "full_attention", "sliding_attention"
    every = raw.get("_sliding_window_pattern") or raw.get("sliding_window_pattern") or 6
    layers = raw["num_hidden_layers"]
    types = raw.get("layer_types") or [sliding if (layer + 1) % every else full for layer in range(layers)]
    if len(types) != layers or set(types) - {full, sliding}:
        raise UnsupportedModel(f"layer_types must name {layers} layers as {full} or {sliding}")
    for option in ("rope_scaling", "attention_bias", "attn_logit_softcapping"):
        if raw.get(option):
            raise UnsupportedModel(f"{option} is not supported for a Gemma that embeds")
    return {
        "ropes": (
            _rope(raw, full, raw.get("rope_theta", 1_000_000.0)),
            _rope(raw, sliding, raw.get("rope_local_base_freq", 10_000.0)),
        ),
        "windows": (None, raw["sliding_window"] // 2),
        "layer_kinds": tuple(int(kind == sliding) for kind in types),
        "num_types": 0,
        "gated": True,
        "pre_norms": True,
        "post_norms": True,
        "embedding_norm": False,
        "square_norms": True,
        "norm_offset": 1.0,
        "head_norms": True,
        "attention_bias": False,
        "up_bias": False,
        "down_bias": False,
        "head_size": raw["head_dim"],
        "key_heads": raw["num_key_value_heads"],
        "attention_scale": raw["query_pre_attn_scalar"] ** -0.5,
        "embedding_scale": raw["hidden_size"] ** 0.5,
        "layer_norm_eps": raw.get("rms_norm_eps", 1e-6),
    }


def _fused(name: str) -> dict[str, TensorPart]:
    return {
        "attention.self.query": TensorPart(name, "query"),
        "attention.self.key": TensorPart(name, "key"),
        "attention.self.value": TensorPart(name, "value"),
    }


GEMMA = "embeddinggemma"
"""Its model_type is that of a decoder, gemma3_text."""
_NOMIC_KEYS = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
}  # fmt: skip
_GTE = EncoderFamily(
    names={
        **_fused("attention.qkv_proj"),
        "attention.output.dense": "attention.o_proj",
        "attention.output.LayerNorm": "attn_ln",
        "intermediate.dense": TensorPart("mlp.up_gate_proj", "first"),
        "intermediate.gate": TensorPart("mlp.up_gate_proj", "second"),
        "output.dense": "mlp.down_proj",
        "output.LayerNorm": "mlp_ln",
    },
    features=_gte,
)
ENCODERS: Mapping[str, EncoderFamily] = {
    "bert": EncoderFamily(),
    "roberta": EncoderFamily(features=_after_padding),
    "xlm-roberta": EncoderFamily(features=_after_padding),
    "camembert": EncoderFamily(features=_after_padding),
    "distilbert": EncoderFamily(
        keys={
            "hidden_size": "dim",
            "intermediate_size": "hidden_dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "hidden_act": "activation",
        },
        names={
            "attention.self.query": "attention.q_lin",
            "attention.self.key": "attention.k_lin",
            "attention.self.value": "attention.v_lin",
            "attention.output.dense": "attention.out_lin",
            "attention.output.LayerNorm": "sa_layer_norm",
            "intermediate.dense": "ffn.lin1",
            "output.dense": "ffn.lin2",
            "output.LayerNorm": "output_layer_norm",
        },
        layers="transformer.layer",
        features=lambda raw: {"num_types": 0},
    ),
    "mpnet": EncoderFamily(
        names={
            "attention.self.query": "attention.attn.q",
            "attention.self.key": "attention.attn.k",
            "attention.self.value": "attention.attn.v",
            "attention.output.dense": "attention.attn.o",
            "attention.output.LayerNorm": "attention.LayerNorm",
        },
        features=lambda raw: {
            "first_position": 2,
            "num_types": 0,
            "buckets": raw.get("relative_attention_num_buckets", 32),
        },
    ),
    "modernbert": EncoderFamily(
        names={
            "embeddings.word_embeddings": "embeddings.tok_embeddings",
            "embeddings.LayerNorm": "embeddings.norm",
            **_fused("attn.Wqkv"),
            "attention.output.dense": "attn.Wo",
            "attention.output.LayerNorm": "attn_norm",
            "intermediate.gate": TensorPart("mlp.Wi", "first"),
            "intermediate.dense": TensorPart("mlp.Wi", "second"),
            "output.dense": "mlp.Wo",
            "output.LayerNorm": "mlp_norm",
        },
        keys={"hidden_act": "hidden_activation"},
        layers="layers",
        features=_modern,
    ),
    "nomic_bert": EncoderFamily(
        keys=_NOMIC_KEYS,
        names={
            "embeddings.LayerNorm": "emb_ln",
            **_fused("attn.Wqkv"),
            "attention.output.dense": "attn.out_proj",
            "attention.output.LayerNorm": "norm1",
            "intermediate.dense": "mlp.fc11",
            "intermediate.gate": "mlp.fc12",
            "output.dense": "mlp.fc2",
            "output.LayerNorm": "norm2",
        },
        layers="encoder.layers",
        features=_nomic,
    ),
    "new": _GTE,
    "gte": _GTE,
    GEMMA: EncoderFamily(
        keys={"hidden_act": "hidden_activation"},
        names={
            "embeddings.word_embeddings": "embed_tokens",
            "attention.self.query": "self_attn.q_proj",
            "attention.self.key": "self_attn.k_proj",
            "attention.self.value": "self_attn.v_proj",
            "attention.self.query_norm": "self_attn.q_norm",
            "attention.self.key_norm": "self_attn.k_norm",
            "attention.output.dense": "self_attn.o_proj",
            "attention.output.LayerNorm": "input_layernorm",
            "attention.output.post_norm": "post_attention_layernorm",
            "intermediate.gate": "mlp.gate_proj",
            "intermediate.dense": "mlp.up_proj",
            "output.dense": "mlp.down_proj",
            "output.LayerNorm": "pre_feedforward_layernorm",
            "output.post_norm": "post_feedforward_layernorm",
            "final_norm": "norm",
        },
        layers="layers",
        features=_gemma,
    ),
}


def family_of(raw: Raw) -> str:
    """The row of `ENCODERS` for a config.json; a name that is no row for a model that is no encoder."""
    kind = str(raw.get("model_type"))
    if kind == "gemma3_text" and raw.get("use_bidirectional_attention"):
        return GEMMA
    return kind


def stored_in(family: EncoderFamily, name: str) -> TensorPart:
    """Where the files of a family have BERT's tensor `name`."""
    module, _, end = name.rpartition(".")
    prefix = ""
    if module.startswith("encoder.layer."):
        _, _, index, module = module.split(".", 3)
        prefix = f"{family.layers}.{index}."
    listed = family.names.get(module, module)
    part = listed if isinstance(listed, TensorPart) else TensorPart(listed)
    return replace(part, name=f"{prefix}{part.name}.{end}")
