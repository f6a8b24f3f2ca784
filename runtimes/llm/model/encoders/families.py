"""The families of encoders, one row for each: what config.json and the files call things, and what is special.

All else is BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtimes.llm.model.encoders import features
from runtimes.llm.model.encoders.features import Raw
from runtimes.llm.model.tensor_names import TensorPart


def _no_features(raw: Raw) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFamily:
    """`keys` are the family's own spellings of BERT's fields, `names` of BERT's tensors; those of a layer begin with
    `layers`. `features` are fields of `EncoderConfig`, `defaults` fields of config.json that may be absent."""

    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Raw = field(default_factory=dict)
    names: Mapping[str, str | TensorPart] = field(default_factory=dict)
    layers: str = "encoder.layer"
    otherwise: Mapping[str, str] = field(default_factory=dict)
    """Other names of tensors, for files that lack the first."""
    features: Callable[[Raw], dict[str, Any]] = _no_features


def _fused(name: str) -> dict[str, TensorPart]:
    return {
        "attention.self.query": TensorPart(name, "query"),
        "attention.self.key": TensorPart(name, "key"),
        "attention.self.value": TensorPart(name, "value"),
    }


JINA = "jina-v3"
"""Its model_type is that of XLM-RoBERTa, xlm-roberta."""
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
    features=features.gte,
)
_JINA_NAMES: dict[str, str | TensorPart] = {
    "embeddings.LayerNorm": "emb_ln",
    **_fused("mixer.Wqkv"),
    "attention.output.dense": "mixer.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "norm2",
}
ENCODERS: Mapping[str, EncoderFamily] = {
    "bert": EncoderFamily(),
    "roberta": EncoderFamily(features=features.after_padding),
    "xlm-roberta": EncoderFamily(features=features.after_padding),
    "camembert": EncoderFamily(features=features.after_padding),
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
        features=features.modern,
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
        features=features.nomic,
    ),
    "new": _GTE,
    "gte": _GTE,
    JINA: EncoderFamily(names=_JINA_NAMES, layers="encoder.layers", features=features.jina),
    "jina_embeddings_v3": EncoderFamily(
        names=_JINA_NAMES, layers="encoder.layers", features=features.jina_of_transformers
    ),
    "deberta-v2": EncoderFamily(
        defaults={"type_vocab_size": 0, "layer_norm_eps": 1e-7},
        names={
            "attention.self.query": "attention.self.query_proj",
            "attention.self.key": "attention.self.key_proj",
            "attention.self.value": "attention.self.value_proj",
            "attention.self.distance_key": "attention.self.pos_key_proj",
            "attention.self.distance_query": "attention.self.pos_query_proj",
            "encoder.relative_embeddings": "encoder.rel_embeddings",
            "encoder.relative_norm": "encoder.LayerNorm",
        },
        features=features.deberta,
    ),
    "electra": EncoderFamily(names={"embeddings.project": "embeddings_project"}, features=features.electra),
    "albert": EncoderFamily(
        defaults={"hidden_act": "gelu_new"},
        names={
            "embeddings.project": "encoder.embedding_hidden_mapping_in",
            **{f"attention.self.{part}": f"albert_layers.0.attention.{part}" for part in ("query", "key", "value")},
            "attention.output.dense": "albert_layers.0.attention.dense",
            "attention.output.LayerNorm": "albert_layers.0.attention.LayerNorm",
            "intermediate.dense": "albert_layers.0.ffn",
            "output.dense": "albert_layers.0.ffn_output",
            "output.LayerNorm": "albert_layers.0.full_layer_layer_norm",
        },
        layers="encoder.albert_layer_groups",
        features=features.albert,
    ),
    "t5": EncoderFamily(
        keys={
            "hidden_size": "d_model",
            "intermediate_size": "d_ff",
            "num_hidden_layers": "num_layers",
            "num_attention_heads": "num_heads",
            "max_position_embeddings": "n_positions",
            "layer_norm_eps": "layer_norm_epsilon",
        },
        defaults={"max_position_embeddings": 512, "layer_norm_eps": 1e-6},
        names={
            "embeddings.word_embeddings": "shared",
            "encoder.relative_attention_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            "attention.self.query": "layer.0.SelfAttention.q",
            "attention.self.key": "layer.0.SelfAttention.k",
            "attention.self.value": "layer.0.SelfAttention.v",
            "attention.output.dense": "layer.0.SelfAttention.o",
            "attention.output.LayerNorm": "layer.0.layer_norm",
            "intermediate.dense": "layer.1.DenseReluDense.wi",
            "output.dense": "layer.1.DenseReluDense.wo",
            "output.LayerNorm": "layer.1.layer_norm",
            "final_norm": "encoder.final_layer_norm",
        },
        otherwise={
            "embeddings.word_embeddings": "encoder.embed_tokens",
            "intermediate.gate": "layer.1.DenseReluDense.wi_0",
            "intermediate.dense": "layer.1.DenseReluDense.wi_1",
        },
        layers="encoder.block",
        features=features.t5,
    ),
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
        features=features.gemma,
    ),
}


def family_of(raw: Raw) -> str:
    """The row of `ENCODERS` for a config.json; a name that is no row for a model that is no encoder."""
    kind = str(raw.get("model_type"))
    if kind == "gemma3_text" and raw.get("use_bidirectional_attention"):
        return GEMMA
    if kind in ("xlm-roberta", "xlm-roberta-flash") and (
        raw.get("lora_adaptations") or raw.get("position_embedding_type") == "rotary"
    ):
        return JINA
    return kind


def stored_in(family: EncoderFamily, name: str) -> list[TensorPart]:
    """Where the files of a family may have BERT's tensor `name`, the likeliest place first."""
    module, _, end = name.rpartition(".")
    prefix = ""
    if module.startswith("encoder.layer."):
        _, _, index, module = module.split(".", 3)
        prefix = f"{family.layers}.{index}."
    listed = [family.names.get(module, module)]
    if module in family.otherwise:
        listed.append(family.otherwise[module])
    parts = [one if isinstance(one, TensorPart) else TensorPart(one) for one in listed]
    return [replace(part, name=f"{prefix}{part.name}.{end}") for part in parts]
