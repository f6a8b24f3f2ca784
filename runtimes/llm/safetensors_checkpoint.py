"""A model as Hugging Face publishes it: a folder with config.json and safetensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtimes.llm.file_kind import what_it_is
from runtimes.llm.model_config import ModelConfig, UnsupportedModel
from runtimes.llm.rope import rope_factors


class InvalidCheckpoint(ValueError):
    """A file of the folder is damaged, cut short or not what its name says."""


class SafetensorsCheckpoint:
    """A Hugging Face folder: config.json and one model.safetensors, or shards listed in an index."""

    def __init__(self, folder: Path) -> None:
        self.config = _hugging_face_config(_json(folder / "config.json"), _eos_of_generation(folder))
        self._files = self._tensor_files(folder)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(file.get_slice(name).get_shape()) for name, file in self._files.items()]

    def tensor(self, name: str) -> Tensor:
        if name not in self._files:
            raise UnsupportedModel(f"tensor {name} is not in the safetensors files")
        try:
            return self._files[name].get_tensor(name)
        except SafetensorError as error:
            raise InvalidCheckpoint(f"tensor {name} cannot be read: {error}") from None

    def weight(self, name: str) -> Tensor:
        return self.tensor(name)

    @staticmethod
    def _tensor_files(folder: Path) -> dict[str, Any]:
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        shards = {single}
        if index.exists():
            # Only the names' last part: an index must not lead out of its folder.
            shards = {folder / Path(str(name)).name for name in _json(index)["weight_map"].values()}
        if missing := sorted(shard.name for shard in shards if not shard.exists()):
            raise UnsupportedModel(f"{folder.name} lacks {', '.join(missing)}")
        files = [_opened(shard) for shard in sorted(shards)]
        return {name: file for file in files for name in file.keys()}  # noqa: SIM118 - no mapping


def _opened(shard: Path) -> Any:
    try:
        return safe_open(shard, framework="pt", device="cpu")
    except SafetensorError as error:
        raise InvalidCheckpoint(
            f"{shard.name} is damaged, cut short or no safetensors file: it {what_it_is(shard)} ({error})"
        ) from None


class _Json(dict[str, Any]):
    """An object of a file, which is named where one asks for what is not in it."""

    file = ""

    def __missing__(self, key: str) -> Any:
        raise InvalidCheckpoint(f"{self.file} lacks {key}")


def _json(path: Path) -> _Json:
    if not path.exists():
        raise UnsupportedModel(f"{path.parent.name} has no {path.name}")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidCheckpoint(f"{path.name} is not JSON: it {what_it_is(path)}") from None
    if not isinstance(value, dict):
        raise InvalidCheckpoint(f"{path.name} is not a JSON object")
    found = _Json(value)
    found.file = path.name
    return found


def _eos_of_generation(folder: Path) -> frozenset[int]:
    path = folder / "generation_config.json"
    return _token_ids(_json(path).get("eos_token_id")) if path.exists() else frozenset()


def _token_ids(value: int | list[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)


def _hugging_face_config(raw: Mapping[str, Any], eos_token_ids: frozenset[int]) -> ModelConfig:
    if raw.get("model_type") != "llama":
        raise UnsupportedModel(f"architecture {raw.get('model_type')!r} is not supported; llama is")
    for option in ("attention_bias", "mlp_bias", "quantization_config"):
        if raw.get(option):
            raise UnsupportedModel(f"{option} is not supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"hidden_act {raw['hidden_act']!r} is not supported; silu is")
    head_dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    rope = {"rope_theta": raw.get("rope_theta", 10000.0)}
    # Written as rope_parameters since transformers 5, as rope_scaling before.
    rope |= raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    return ModelConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
        head_dim=head_dim,
        context_length=raw["max_position_embeddings"],
        rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
        rope_theta=float(rope["rope_theta"]),
        rope_factors=rope_factors(rope, head_dim),
        tie_word_embeddings=raw.get("tie_word_embeddings", False),
        eos_token_ids=eos_token_ids | _token_ids(raw.get("eos_token_id")),
    )
