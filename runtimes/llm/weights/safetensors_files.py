"""The safetensors and JSON files of a folder, with errors that name the file at fault; and a model in them."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtimes.llm.model.hugging_face import family_of, hugging_face_config, text_part, token_ids
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.model.tensor_names import TensorPart, neighbours_apart, stored_as
from runtimes.llm.weights.gguf_metadata import description


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

    def part(self, name: str, index: int) -> Tensor:
        """One part along the first dimension of a tensor, alone."""
        if name not in self._files:
            raise UnsupportedModel(f"tensor {name} is not in the safetensors files")
        whole = self._files[name].get_slice(name)
        if not 0 <= index < whole.get_shape()[0]:
            raise UnsupportedModel(f"tensor {name} is of {whole.get_shape()[0]} experts; there is no number {index}")
        tensor: Tensor = whole[index]
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
        self._family = family_of(text_part(raw))
        self._files = SafetensorsFiles(folder)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._files.shapes

    def stored_name(self, name: str) -> str:
        """The name in the files of the tensor `name`, which may be a part of it."""
        return self._stored(name).name

    def tensor(self, name: str) -> Tensor:
        stored = self._stored(name)
        whole = self._files.part(stored.name, stored.expert) if stored.stacked else self._files.tensor(stored.name)
        tensor = stored.of(whole, self.config)
        assert isinstance(tensor, Tensor)
        if name.endswith("selection_bias"):
            return tensor.flatten()
        if self._family.norms_are_offsets and name.endswith("norm.weight"):
            return tensor.float() + 1
        return self._turned(name, tensor) if self._family.neighbours else tensor

    def weight(self, name: str) -> Tensor:
        return self.tensor(name)

    def _stored(self, name: str) -> TensorPart:
        return stored_as(self._family.names, name, self._files.__contains__)

    def _turned(self, name: str, tensor: Tensor) -> Tensor:
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}.get(name.split(".")[-2])
        if heads is None:
            return tensor
        kind = self.config.kinds[self.config.layer_kinds[int(name.split(".")[2])]]
        turned = neighbours_apart(tensor, heads, kind, self.config.head_dim)
        assert isinstance(turned, Tensor)
        return turned


def _eos_of_generation(folder: Path) -> frozenset[int]:
    path = folder / "generation_config.json"
    return token_ids(json_object(path).get("eos_token_id")) if path.exists() else frozenset()
