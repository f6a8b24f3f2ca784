"""A model as Hugging Face publishes it: a folder with config.json and safetensors."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtimes.llm.file_kind import what_it_is
from runtimes.llm.hugging_face_config import hugging_face_config, norms_are_offsets, token_ids
from runtimes.llm.model_config import UnsupportedModel


class InvalidCheckpoint(ValueError):
    """A file of the folder is damaged, cut short or not what its name says."""


class SafetensorsCheckpoint:
    """A Hugging Face folder: config.json and one model.safetensors, or shards listed in an index."""

    def __init__(self, folder: Path) -> None:
        raw = _json(folder / "config.json")
        self.config = hugging_face_config(raw, _eos_of_generation(folder))
        self._norms_are_offsets = norms_are_offsets(raw)
        self._files = self._tensor_files(folder)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(file.get_slice(name).get_shape()) for name, file in self._files.items()]

    def tensor(self, name: str) -> Tensor:
        if name not in self._files:
            raise UnsupportedModel(f"tensor {name} is not in the safetensors files")
        try:
            tensor: Tensor = self._files[name].get_tensor(name)
        except SafetensorError as error:
            raise InvalidCheckpoint(f"tensor {name} cannot be read: {error}") from None
        return tensor.float() + 1 if self._norms_are_offsets and name.endswith("norm.weight") else tensor

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
    return token_ids(_json(path).get("eos_token_id")) if path.exists() else frozenset()
