"""The tensors and JSON files of a folder, with errors that name the file at fault.

Tensors are in safetensors, or in PyTorch's pickles. A pickle is a program: torch reads it without any function but
those that build tensors (`weights_only`), and refuses all others.
"""

import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_metadata import description

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_SHARD = re.compile(r"(?P<stem>(pytorch_)?model)-(?P<number>\d+)-of-(?P<count>\d+)\.(safetensors|bin)")
_MOST_SHARDS = 10_000
# The names of TensorFlow's layer norms, which the first files of BERT have.
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class InvalidCheckpoint(ValueError):
    """A file of the folder is damaged, truncated, or not of the kind that its name indicates."""


class TensorFiles:
    """One model.safetensors or pytorch_model.bin, or their shards, with an index or by their numbers. Tensors are read
    on demand: the pages of a file that are read already need no memory of the process. `files` replaces the search for
    them."""

    def __init__(self, folder: Path, files: Sequence[Path] | None = None) -> None:
        self._shards = [_opened(shard) for shard in files or _shard_files(folder)]
        self._places = {_new_name(name): (shard, name) for shard in self._shards for name in shard}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        shard, stored = self._place(name)
        return shard.shape(stored)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of all tensors."""
        return [self.shape(name) for name in self]

    def tensor(self, name: str) -> Tensor:
        """The tensor on the CPU, as stored. Raises UnsupportedModel for a missing tensor."""
        shard, stored = self._place(name)
        return shard.tensor(stored)

    def part(self, name: str, index: int) -> Tensor:
        """One part along the first dimension of a tensor, alone."""
        shard, stored = self._place(name)
        if not 0 <= index < (count := shard.shape(stored)[0]):
            raise UnsupportedModel(f"tensor {name} of {shard.path.name} has {count} parts; there is no number {index}")
        return shard.tensor(stored, index)

    def _place(self, name: str) -> tuple["_Shard", str]:
        if name not in self._places:
            raise UnsupportedModel(f"tensor {name} is not in the {self._shards[0].kind} files")
        return self._places[name]


class _Shard:
    """An open file of tensors."""

    kind = "safetensors"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: Any = safe_open(path, framework="pt", device="cpu")
        except SafetensorError as error:
            raise InvalidCheckpoint(
                f"{path.name} is damaged, cut short or no safetensors file: it {description(path)} ({error})"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())

    def tensor(self, name: str, part: int | None = None) -> Tensor:
        try:
            tensor: Tensor = self._file.get_tensor(name) if part is None else self._file.get_slice(name)[part]
        except SafetensorError as error:
            raise InvalidCheckpoint(f"tensor {name} of {self.path.name} cannot be read: {error}") from None
        return tensor


class _PickledShard(_Shard):
    """A file that `torch.save` wrote."""

    kind = "pickled"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tensors = _unpickled(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def tensor(self, name: str, part: int | None = None) -> Tensor:
        return self._tensors[name] if part is None else self._tensors[name][part]


_UNREADABLE = (
    pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError,
)  # fmt: skip


def _opened(shard: Path) -> _Shard:
    return _PickledShard(shard) if shard.suffix == ".bin" else _Shard(shard)


def _unpickled(path: Path) -> dict[str, Tensor]:
    try:
        # Files from before PyTorch 1.6 are no archives, and cannot be mapped into memory.
        content = torch.load(path, map_location="cpu", mmap=zipfile.is_zipfile(path), weights_only=True)
    except _UNREADABLE as error:
        if (code := re.search(r"(?:GLOBAL|function|type)\s+([\w.]+)", str(error))) is not None:
            raise InvalidCheckpoint(
                f"{path.name} holds more than tensors ({code[1]}), and is not run: take the model's safetensors"
            ) from None
        reason = (str(error).strip() or repr(error)).splitlines()[0][:200]
        raise InvalidCheckpoint(f"{path.name} is damaged or cut short: it {description(path)} ({reason})") from None
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not content:
        raise InvalidCheckpoint(f"{path.name} holds no tensors by name")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise InvalidCheckpoint(f"{path.name} holds {str(name)[:100]!r}, which is no tensor")
    return content


# ── the files of a folder ─────────────────────────────────────────────────────────────────────────────


def _shard_files(folder: Path) -> list[Path]:
    """The files that hold the tensors: safetensors if there are any. Raises UnsupportedModel if one is missing."""
    for single in _SINGLE:
        index = folder / f"{single}.index.json"
        if index.exists():
            names = json_object(index)["weight_map"]
            if not isinstance(names, dict) or not names:
                raise InvalidCheckpoint(f"{index.name} has no weight_map of names")
            # Only the names' last part: an index must not lead out of its folder.
            return _present(folder, {Path(str(name)).name for name in names.values()})
        if (folder / single).exists():
            return [folder / single]
        if numbered := _numbered(folder, Path(single).suffix):
            return numbered
    raise UnsupportedModel(f"{folder.name} lacks model.safetensors, its shards, or pytorch_model.bin")


def _numbered(folder: Path, suffix: str) -> list[Path]:
    """The shards that an index is missing for, by the numbers in their names."""
    for path in sorted(folder.iterdir()):
        match = _SHARD.fullmatch(path.name)
        if match is not None and path.suffix == suffix and int(match["count"]) <= _MOST_SHARDS:
            width, count = len(match["number"]), match["count"]
            names = (f"{match['stem']}-{number:0{width}}-of-{count}{suffix}" for number in range(1, int(count) + 1))
            return _present(folder, set(names))
    return []


def _present(folder: Path, names: set[str]) -> list[Path]:
    if missing := sorted(name for name in names if not (folder / name).exists()):
        raise UnsupportedModel(f"{folder.name} lacks {', '.join(missing[:10])}")
    return [folder / name for name in sorted(names)]


def _new_name(name: str) -> str:
    for old, new in _OLD_NAMES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


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
