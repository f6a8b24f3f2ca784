"""A Hugging Face folder as a model: its shape, from config.json, and its tensors by name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from runtimes.llm.model.matrix import Weight, unquantized
from runtimes.llm.model.model_config import (
    MAX_LAYERS,
    Activation,
    LayerKind,
    ModelShape,
    UnsupportedModel,
    checked_count,
)
from runtimes.llm.model.rope import rope_of, scaling_type
from runtimes.llm.weights.quantized_files import QuantizedFiles, quantization_settings
from runtimes.llm.weights.tensor_files import TensorFiles, json_object

_SLIDING, _FULL = "sliding_attention", "full_attention"
_GEMMA = {
    "vocab_size": 256_000,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
# The families, and transformers' defaults for absent fields.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131_072},
    "qwen2": {
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "max_position_embeddings": 32_768,
    },
    "qwen3": {
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "max_position_embeddings": 32_768,
        "head_dim": 128,
    },
    "gemma2": _GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": _GEMMA | {"vocab_size": 262_208, "max_position_embeddings": 131_072, "rope_theta": 1e6},
    "phi3": {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
}
# Whose code in transformers has the same attention in all layers, whatever layer_types names.
_ALIKE = frozenset({"llama", "mistral"})
# Whose window is off unless use_sliding_window is set.
_SWITCHED = frozenset({"qwen2", "qwen3"})
_ACTIVATIONS: Mapping[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def hugging_face_config(raw: Mapping[str, Any], eos_token_ids: frozenset[int] = frozenset()) -> ModelShape:
    """The shape that `raw`, a config.json, describes. Raises UnsupportedModel, which names the unsupported part."""
    raw = text_part(raw)
    family = str(raw.get("model_type"))
    if family not in _DEFAULTS:
        raise UnsupportedModel(f"architecture {family!r} is not supported; these are: {', '.join(_DEFAULTS)}")
    try:
        return _config(family, {**_DEFAULTS[family], **raw}, eos_token_ids)
    except KeyError as error:
        raise UnsupportedModel(f"config.json lacks {error.args[0]}") from None


def text_part(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section of the language model for a Gemma 3 that also accepts pictures; else all of `raw`."""
    if raw.get("model_type") != "gemma3":
        return raw
    if not isinstance(raw.get("text_config"), dict):
        raise UnsupportedModel("config.json lacks text_config")
    shared = {name: raw[name] for name in ("eos_token_id", "quantization_config", "quantization") if name in raw}
    return {**shared, **raw["text_config"], "model_type": "gemma3_text"}


def norms_are_offsets(raw: Mapping[str, Any]) -> bool:
    """Whether norm weights are stored as their difference from 1."""
    return str(raw.get("model_type")).startswith("gemma")


def token_ids(value: int | list[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)


def _config(family: str, raw: Mapping[str, Any], eos_token_ids: frozenset[int]) -> ModelShape:
    _refuse_options(family, raw)
    _refuse_lost_theta(raw)
    gemma = norms_are_offsets(raw)
    checked_count("num_hidden_layers", raw["num_hidden_layers"], MAX_LAYERS)
    heads, bias = raw["num_attention_heads"], bool(raw.get("attention_bias"))
    head_dim = raw.get("head_dim") or raw["hidden_size"] // heads
    kinds = _layer_kinds(family, raw, head_dim)
    distinct = tuple(dict.fromkeys(kinds))
    return ModelShape(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        context_length=_context_length(family, raw),
        rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
        kinds=distinct,
        layer_kinds=tuple(distinct.index(kind) for kind in kinds),
        attention_scale=(raw["query_pre_attn_scalar"] if gemma else head_dim) ** -0.5,
        tie_word_embeddings=raw.get("tie_word_embeddings", False),
        eos_token_ids=eos_token_ids | token_ids(raw.get("eos_token_id")),
        activation=_activation(raw),
        attention_soft_cap=raw.get("attn_logit_softcapping"),
        logits_soft_cap=raw.get("final_logit_softcapping"),
        embedding_multiplier=raw["hidden_size"] ** 0.5 if gemma else 1.0,
        qkv_bias=bias or family == "qwen2",
        attention_out_bias=bias and family != "qwen2",
        mlp_bias=bool(raw.get("mlp_bias")),
        qk_norm=family in ("qwen3", "gemma3_text"),
        post_norms=gemma,
        fused_projections=family == "phi3",
    )


def _refuse_options(family: str, raw: Mapping[str, Any]) -> None:
    refused = ["use_bidirectional_attention"]
    if family == "gemma3_text":  # which its code has no place for
        refused.append("attn_logit_softcapping")
    for option in refused:
        if raw.get(option):
            raise UnsupportedModel(f"{option} is not supported for {family}")


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


def _activation(raw: Mapping[str, Any]) -> Activation:
    name = raw.get("hidden_activation") or raw.get("hidden_act") or "silu"
    if name not in _ACTIVATIONS:
        raise UnsupportedModel(f"hidden_act {name!r} is not supported; these are: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


# ── attention: windows and positions ──────────────────────────────────────────────────────────────────


def _layer_kinds(family: str, raw: Mapping[str, Any], head_dim: int) -> list[LayerKind]:
    types = (family not in _ALIKE and raw.get("layer_types")) or _layer_types(family, raw)
    if unknown := sorted(set(types) - {_SLIDING, _FULL}):
        raise UnsupportedModel(f"layer_types {unknown[0]!r} is not supported; these are: {_FULL}, {_SLIDING}")
    if len(types) != raw["num_hidden_layers"]:
        raise UnsupportedModel(
            f"layer_types names {len(types)} layers; num_hidden_layers is {raw['num_hidden_layers']}"
        )
    window = raw.get("sliding_window")
    if family in _SWITCHED and not raw.get("use_sliding_window"):
        window = None
    if window is not None and window >= _context_length(family, raw):
        window = None
    length = raw["max_position_embeddings"]
    of_type = {
        type: LayerKind(
            rope=rope_of(_rope_parameters(family, raw, type), head_dim, length),
            window=window if type == _SLIDING else None,
        )
        for type in set(types)
    }
    return [of_type[type] for type in types]


def _layer_types(family: str, raw: Mapping[str, Any]) -> list[str]:
    """The layers with a window, if the configuration does not list them."""

    def sliding(layer: int) -> bool:
        if family in _SWITCHED:
            return bool(raw.get("use_sliding_window")) and layer >= raw["max_window_layers"]
        if family == "gemma2":
            return layer % 2 == 0
        if family == "gemma3_text":
            return bool((layer + 1) % raw.get("sliding_window_pattern", 6))
        return family != "llama" and raw.get("sliding_window") is not None

    return [_SLIDING if sliding(layer) else _FULL for layer in range(raw["num_hidden_layers"])]


def _rope_parameters(family: str, raw: Mapping[str, Any], layer_type: str) -> dict[str, Any]:
    """The parameters in the form of transformers 5; before, the scaling was rope_scaling and all else at the top."""
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    local = family == "gemma3_text" and layer_type == _SLIDING
    if layer_type in given:
        given = given[layer_type] or {}
    elif local:  # only the global layers are scaled
        given = {}
    parameters = {
        "rope_theta": raw.get("rope_local_base_freq", 10_000.0) if local else raw.get("rope_theta", 10_000.0),
        "partial_rotary_factor": raw.get("partial_rotary_factor", 1.0),
        "original_max_position_embeddings": raw["max_position_embeddings"],
        **{name: value for name, value in given.items() if value is not None},
    }
    if (original := raw.get("original_max_position_embeddings")) is not None:
        parameters["original_max_position_embeddings"] = original
    if family == "phi3" and parameters.get("rope_type", parameters.get("type")) == "yarn":
        parameters["rope_type"] = "longrope"  # which the first Phi-3 called so
    return parameters


def _context_length(family: str, raw: Mapping[str, Any]) -> int:
    """The positions that the model supports. YaRN's number in the file is before the scaling."""
    length: int = raw["max_position_embeddings"]
    parameters = _rope_parameters(family, raw, _FULL)
    if scaling_type(parameters) != "yarn" or not parameters.get("factor"):
        return length
    return max(length, int(parameters["original_max_position_embeddings"] * parameters["factor"]))


class SafetensorsCheckpoint:
    """A Hugging Face folder: config.json, and the tensors in its files."""

    def __init__(self, folder: Path) -> None:
        raw = json_object(folder / "config.json")
        _refuse_classifier(folder, raw)
        config = hugging_face_config(raw, _eos_of_generation(folder))
        self._norms_are_offsets = norms_are_offsets(raw)
        self._files = QuantizedFiles(TensorFiles(folder), quantization_settings(raw))
        self.embeds_only = not config.tie_word_embeddings and self._lacks_head(raw)
        """Whether the model was saved without the matrix that gives logits; it cannot answer."""
        self.config = replace(config, tie_word_embeddings=True) if self.embeds_only else config

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._files.shapes

    @property
    def holds_codes(self) -> bool:
        return self._files.holds_codes

    def tensor(self, name: str) -> Tensor:
        return unquantized(self.weight(name))

    def weight(self, name: str) -> Weight:
        weight = self._files.weight(self._stored_name(name))
        if self._norms_are_offsets and name.endswith("norm.weight"):
            return unquantized(weight).float() + 1
        return weight

    def _stored_name(self, name: str) -> str:
        """The name in the file. Tensors of the language part have a longer name if the model has other parts too, and
        a shorter one if the model was saved without a head."""
        bare = name.removeprefix("model.")
        others = (f"language_model.{name}", f"model.language_model.{bare}", bare, f"language_model.{bare}")
        return next((stored for stored in (name, *others) if stored in self._files), name)

    def _lacks_head(self, raw: Mapping[str, Any]) -> bool:
        """Of a model that was saved as transformers' base class, such as Qwen3Model."""
        classes = raw.get("architectures") or []
        bare = all(str(name).endswith("Model") for name in classes) if classes else "embed_tokens.weight" in self._files
        return bare and self._stored_name("lm_head.weight") not in self._files


def _refuse_classifier(folder: Path, raw: Mapping[str, Any]) -> None:
    for name in raw.get("architectures") or []:
        if str(name).endswith(("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")):
            raise UnsupportedModel(
                f"{folder.name} is a classifier ({name}), which has no head for text: serve it with `kind: vllm`"
            )


def _eos_of_generation(folder: Path) -> frozenset[int]:
    path = folder / "generation_config.json"
    return token_ids(json_object(path).get("eos_token_id")) if path.exists() else frozenset()
