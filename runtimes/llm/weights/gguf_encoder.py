"""Encoders in GGUF files: what llama.cpp calls their fields and tensors.

Fields become those of config.json, so that a row here leads to a row of model/encoders/families.py. Values that a file
omits are the defaults of llama.cpp's own code (https://github.com/ggml-org/llama.cpp/tree/master/src/models).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from runtimes.llm.model.encoders.families import GEMMA, EncoderFamily
from runtimes.llm.model.model_config import MAX_LAYERS, UnsupportedModel, checked_count
from runtimes.llm.model.tensor_names import TensorPart

_MISSING: Any = object()


class TensorShapes(Protocol):
    """The tensors of a file by name."""

    def __contains__(self, name: str) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class GgufFields:
    """The fields of a file without the name of its architecture, and its tensors."""

    metadata: Mapping[str, Any]
    tensors: TensorShapes

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture"))

    def __call__(self, key: str, default: Any = _MISSING) -> Any:
        """Raises UnsupportedModel for a field that is missing and has no default."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if value is _MISSING:
            raise UnsupportedModel(f"the GGUF file lacks {self.architecture}.{key}")
        return value


@dataclass(frozen=True, slots=True)
class GgufEncoder:
    """`family` is a row of model/encoders/families.py; `files` are the names of its tensors here. `raw` makes the
    fields of config.json, beside those of all encoders."""

    family: str
    files: EncoderFamily
    raw: Callable[[GgufFields], dict[str, Any]]
    dense: bool = False
    """Whether the model is incomplete without dense layers."""
    undeclared: bool = False
    """Whether files may lack dense layers that their models have."""


def _fused(name: str) -> dict[str, TensorPart]:
    return {
        "attention.self.query": TensorPart(name, "query"),
        "attention.self.key": TensorPart(name, "key"),
        "attention.self.value": TensorPart(name, "value"),
    }


_NAMES: dict[str, str | TensorPart] = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "intermediate.gate": "ffn_gate",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_GEMMA_NAMES: dict[str, str | TensorPart] = {
    **_NAMES,
    "attention.self.query_norm": "attn_q_norm",
    "attention.self.key_norm": "attn_k_norm",
    "attention.output.LayerNorm": "attn_norm",
    "attention.output.post_norm": "post_attention_norm",
    "output.LayerNorm": "ffn_norm",
    "output.post_norm": "post_ffw_norm",
    "final_norm": "output_norm",
}


_T5_NAMES: dict[str, str | TensorPart] = {
    **_NAMES,
    "encoder.relative_attention_bias": "enc.blk.0.attn_rel_b",
    "attention.output.dense": "attn_o",
    "attention.output.LayerNorm": "attn_norm",
    "output.LayerNorm": "ffn_norm",
    "final_norm": "enc.output_norm",
}


_MODERN_NAMES: dict[str, str | TensorPart] = {
    **_NAMES,
    "attention.output.LayerNorm": "attn_norm",
    "intermediate.gate": TensorPart("ffn_up", "first"),
    "intermediate.dense": TensorPart("ffn_up", "second"),
    "output.LayerNorm": "ffn_norm",
    "final_norm": "output_norm",
}


def _bert(field: GgufFields) -> dict[str, Any]:
    """Positions of RoBERTa are stored from the first that a text has."""
    return {"max_position_embeddings": field.tensors.shape("position_embd.weight")[0]}


def _nomic(field: GgufFields) -> dict[str, Any]:
    _refuse_scaling(field)
    return {"rotary_emb_base": field("rope.freq_base")}


def _modern(field: GgufFields) -> dict[str, Any]:
    """The first layer attends to everything, as does each that begins a pattern."""
    _refuse_scaling(field)
    every = field("attention.sliding_window_pattern", 3)
    if isinstance(every, list):
        slides = [bool(sliding) for sliding in every]
    else:
        slides = [bool(layer % every) for layer in range(field("block_count"))]
    return {
        "layer_types": ["sliding_attention" if sliding else "full_attention" for sliding in slides],
        "local_attention": field("attention.sliding_window"),
        "global_rope_theta": field("rope.freq_base"),
        "local_rope_theta": field("rope.freq_base_swa"),
        "norm_eps": field("attention.layer_norm_epsilon"),
        "hidden_act": field("hidden_activation", field("hidden_act", "gelu")),
        "norm_bias": "output_norm.bias" in field.tensors,
        "attention_bias": "blk.0.attn_output.bias" in field.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in field.tensors,
    }


def _gemma(field: GgufFields) -> dict[str, Any]:
    _refuse_scaling(field)
    heads, layers = field("attention.head_count"), field("block_count")
    size = field("attention.key_length", field("embedding_length") // heads)
    every = field("attention.sliding_window_pattern", 6)
    if isinstance(every, list):
        types = ["sliding_attention" if sliding else "full_attention" for sliding in every]
    else:
        types = ["sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)]
    return {
        "num_key_value_heads": field("attention.head_count_kv", heads),
        "head_dim": size,
        "query_pre_attn_scalar": size,
        "sliding_window": field("attention.sliding_window"),
        "layer_types": types,
        "rope_theta": field("rope.freq_base", 10_000.0),
        "rope_local_base_freq": field("rope.freq_base_swa", 10_000.0),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
        "hidden_act": "gelu_pytorch_tanh",
    }


def _t5(field: GgufFields) -> dict[str, Any]:
    gated = "enc.blk.0.ffn_gate.weight" in field.tensors
    return {
        "d_kv": field("attention.key_length"),
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "relative_attention_num_buckets": field("attention.relative_buckets_count"),
        "layer_norm_eps": field("attention.layer_norm_rms_epsilon", 1e-6),
    }


def _refuse_scaling(field: GgufFields) -> None:
    if (kind := field("rope.scaling.type", "none")) != "none" and field("rope.scaling.factor", 1.0) != 1.0:
        raise UnsupportedModel(f"rope scaling {kind!r} is not supported for {field.architecture}")


ENCODER_ARCHITECTURES: Mapping[str, GgufEncoder] = {
    "bert": GgufEncoder("bert", EncoderFamily(names=_NAMES, layers="blk"), _bert),
    "nomic-bert": GgufEncoder("nomic_bert", EncoderFamily(names=_NAMES, layers="blk"), _nomic),
    "modern-bert": GgufEncoder("modernbert", EncoderFamily(names=_MODERN_NAMES, layers="blk"), _modern),
    "t5encoder": GgufEncoder("t5", EncoderFamily(names=_T5_NAMES, layers="enc.blk"), _t5, undeclared=True),
    "gemma-embedding": GgufEncoder(GEMMA, EncoderFamily(names=_GEMMA_NAMES, layers="blk"), _gemma, dense=True),
}


def raw_config(field: GgufFields) -> dict[str, Any]:
    """What config.json would have. Raises UnsupportedModel for a missing or unsupported field."""
    row, tensors = ENCODER_ARCHITECTURES[field.architecture], field.tensors
    if field("attention.causal", False):
        raise UnsupportedModel(f"{field.architecture} with causal attention is not supported")
    types = tensors.shape("token_types.weight")[0] if "token_types.weight" in tensors else 0
    return {
        "vocab_size": tensors.shape("token_embd.weight")[0],
        "hidden_size": field("embedding_length"),
        "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": checked_count("block_count", field("block_count"), MAX_LAYERS),
        "num_attention_heads": field("attention.head_count"),
        "max_position_embeddings": field("context_length"),
        "type_vocab_size": types,
        "layer_norm_eps": field("attention.layer_norm_epsilon", 1e-12),
        **row.raw(field),
    }


def stored_family(field: GgufFields) -> EncoderFamily:
    """The names of the file's tensors, which may have queries, keys and values in one."""
    files = ENCODER_ARCHITECTURES[field.architecture].files
    if f"{files.layers}.0.attn_qkv.weight" not in field.tensors:
        return files
    return EncoderFamily(names={**files.names, **_fused("attn_qkv")}, layers=files.layers)
