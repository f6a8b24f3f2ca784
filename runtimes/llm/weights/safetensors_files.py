"""The safetensors and JSON files of a folder, with errors that name the file at fault; and
the shape of its model, from config.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtimes.llm.model.model_config import (
    MAX_LAYERS,
    Activation,
    LayerKind,
    ModelShape,
    UnsupportedModel,
    checked_count,
)
from runtimes.llm.model.rope import rope_of, scaling_type
from runtimes.llm.weights.generation_config import token_ids
from runtimes.llm.weights.gguf_metadata import description

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
    "llama": {},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128},
    "gemma2": _GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": _GEMMA | {"vocab_size": 262_208, "max_position_embeddings": 131_072, "rope_theta": 1e6},
    "phi3": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
}
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
    shared = {name: raw[name] for name in ("eos_token_id", "quantization_config") if name in raw}
    return {**shared, **raw["text_config"], "model_type": "gemma3_text"}


def norms_are_offsets(raw: Mapping[str, Any]) -> bool:
    """Whether norm weights are stored as their difference from 1."""
    return str(raw.get("model_type")).startswith("gemma")


def _config(family: str, raw: Mapping[str, Any], eos_token_ids: frozenset[int]) -> ModelShape:
    _refuse_options(family, raw)
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
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method", "unknown")
        raise UnsupportedModel(
            f"quantization_config of method {method!r} is not supported; safetensors in bfloat16, float16 or float32"
            " and GGUF files are"
        )
    refused = ["use_bidirectional_attention"]
    if family == "gemma3_text":  # which its code has no place for
        refused.append("attn_logit_softcapping")
    for option in refused:
        if raw.get(option):
            raise UnsupportedModel(f"{option} is not supported for {family}")


def _activation(raw: Mapping[str, Any]) -> Activation:
    name = raw.get("hidden_activation") or raw.get("hidden_act") or "silu"
    if name not in _ACTIVATIONS:
        raise UnsupportedModel(f"hidden_act {name!r} is not supported; these are: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


# ── attention: windows and positions ──────────────────────────────────────────────────────────────────


def _layer_kinds(family: str, raw: Mapping[str, Any], head_dim: int) -> list[LayerKind]:
    types = raw.get("layer_types") or _layer_types(family, raw)
    if unknown := sorted(set(types) - {_SLIDING, _FULL}):
        raise UnsupportedModel(f"layer_types {unknown[0]!r} is not supported; these are: {_FULL}, {_SLIDING}")
    if len(types) != raw["num_hidden_layers"]:
        raise UnsupportedModel(
            f"layer_types names {len(types)} layers; num_hidden_layers is {raw['num_hidden_layers']}"
        )
    window = raw.get("sliding_window")
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
        if family in ("qwen2", "qwen3"):
            return bool(raw.get("use_sliding_window")) and layer >= raw["max_window_layers"]
        if family == "gemma2":
            return layer % 2 == 0
        if family == "gemma3_text":
            return bool((layer + 1) % raw.get("sliding_window_pattern", 6))
        return raw.get("sliding_window") is not None

    return [_SLIDING if sliding(layer) else _FULL for layer in range(raw["num_hidden_layers"])]


def _rope_parameters(family: str, raw: Mapping[str, Any], layer_type: str) -> dict[str, Any]:
    """The parameters in the form of transformers 5; before, the scaling was rope_scaling and all else at the top."""
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
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


class InvalidCheckpoint(ValueError):
    """A file of the folder is damaged, truncated, or not of the kind that its name indicates."""


class SafetensorsFiles:
    """One model.safetensors, or shards listed in an index. Tensors are read on demand."""

    def __init__(self, folder: Path) -> None:
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        shards = {single}
        if index.exists():
            # Only the names' last part: an index must not lead out of its folder.
            shards = {folder / Path(str(name)).name for name in json_object(index)["weight_map"].values()}
        if missing := sorted(shard.name for shard in shards if not shard.exists()):
            raise UnsupportedModel(f"{folder.name} lacks {', '.join(missing)}")
        files = [_opened(shard) for shard in sorted(shards)]
        self._files = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - no mapping

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of all tensors."""
        return [tuple(file.get_slice(name).get_shape()) for name, file in self._files.items()]

    def tensor(self, name: str) -> Tensor:
        """The tensor on the CPU, as stored. Raises UnsupportedModel for a missing tensor."""
        if name not in self._files:
            raise UnsupportedModel(f"tensor {name} is not in the safetensors files")
        try:
            tensor: Tensor = self._files[name].get_tensor(name)
        except SafetensorError as error:
            raise InvalidCheckpoint(f"tensor {name} cannot be read: {error}") from None
        return tensor


def _opened(shard: Path) -> Any:
    try:
        return safe_open(shard, framework="pt", device="cpu")
    except SafetensorError as error:
        raise InvalidCheckpoint(
            f"{shard.name} is damaged, cut short or no safetensors file: it {description(shard)} ({error})"
        ) from None


class _Json(dict[str, Any]):
    """A JSON object whose error for a missing key names its file."""

    file = ""

    def __missing__(self, key: str) -> Any:
        raise InvalidCheckpoint(f"{self.file} lacks {key}")


def json_object(path: Path) -> dict[str, Any]:
    """Read the object of a required file, whose error for a missing key names the file."""
    if not path.exists():
        raise UnsupportedModel(f"{path.parent.name} has no {path.name}")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidCheckpoint(f"{path.name} is not JSON: it {description(path)}") from None
    if not isinstance(value, dict):
        raise InvalidCheckpoint(f"{path.name} is not a JSON object")
    content = _Json(value)
    content.file = path.name
    return content


class SafetensorsCheckpoint:
    """A Hugging Face folder: config.json and one model.safetensors, or shards listed in an index."""

    def __init__(self, folder: Path) -> None:
        raw = json_object(folder / "config.json")
        self.config = hugging_face_config(raw, _eos_of_generation(folder))
        self._norms_are_offsets = norms_are_offsets(raw)
        self._files = SafetensorsFiles(folder)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._files.shapes

    def tensor(self, name: str) -> Tensor:
        tensor = self._files.tensor(self._stored_name(name))
        return tensor.float() + 1 if self._norms_are_offsets and name.endswith("norm.weight") else tensor

    def weight(self, name: str) -> Tensor:
        return self.tensor(name)

    def _stored_name(self, name: str) -> str:
        """The name in the file. Tensors of the language part have a longer name if the model has other parts too."""
        longer = (f"language_model.{name}", name.replace("model.", "model.language_model.", 1))
        return next((stored for stored in (name, *longer) if stored in self._files), name)


def _eos_of_generation(folder: Path) -> frozenset[int]:
    path = folder / "generation_config.json"
    return token_ids(json_object(path).get("eos_token_id")) if path.exists() else frozenset()
