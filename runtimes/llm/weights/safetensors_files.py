"""The safetensors and JSON files of a folder, with errors that name the file at fault."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_metadata import description
from runtimes.llm.weights.hugging_face_config import hugging_face_config, norms_are_offsets, token_ids


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
