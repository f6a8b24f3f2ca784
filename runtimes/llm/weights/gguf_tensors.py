"""The tensors of a GGUF file, by llama.cpp's names."""

from pathlib import Path

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_blocks import from_blocks, is_blocks
from runtimes.llm.weights.gguf_metadata import InvalidGguf, TensorPlace, read_directory
from runtimes.llm.weights.matrix import GroupQuantized, Weight

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class GgufTensors:
    """An open file. All offsets have been checked against its size; bytes are read on demand.

    Raises InvalidGguf, OSError, or UnsupportedModel for a tensor that is missing or of an unknown type.
    """

    def __init__(self, path: Path) -> None:
        directory = read_directory(path)
        self.metadata = directory.metadata
        self._places = directory.tensors
        self._data: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        for name, place in self._places.items():
            if place.start + _length(name, place) > len(self._data):
                raise InvalidGguf(f"{path.name} is cut short: tensor {name} lies beyond its end")

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [place.shape for place in self._places.values()]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._place(name).shape

    def weight(self, name: str) -> Weight:
        """The tensor as stored: blocks as codes, their scales in float32; else as a tensor."""
        place = self._place(name)
        kind = _kind(name, place)
        data = self._data[place.start :][: _length(name, place)]
        if kind.name in _PLAIN:
            return torch.frombuffer(bytearray(data), dtype=_PLAIN[kind.name]).view(place.shape)
        rows = data.reshape(int(np.prod(place.shape[:-1])), -1)
        with np.errstate(all="ignore"):  # damaged scales may be infinite or none, and `check_weight` refuses them
            if is_blocks(kind.name) and len(place.shape) == 2:
                return from_blocks(rows, kind.name)
            try:
                return torch.tensor(dequantize(rows, kind)).view(place.shape)
            except NotImplementedError:
                raise _unknown(name, kind.name) from None

    def tensor(self, name: str) -> Tensor:
        """The tensor, dequantized to float32 if necessary."""
        weight = self.weight(name)
        return weight.dequantized() if isinstance(weight, GroupQuantized) else weight

    def _place(self, name: str) -> TensorPlace:
        if name not in self._places:
            raise UnsupportedModel(f"the GGUF file lacks tensor {name}")
        return self._places[name]


def _kind(name: str, place: TensorPlace) -> GGMLQuantizationType:
    try:
        return GGMLQuantizationType(place.kind)
    except ValueError:
        raise _unknown(name, str(place.kind)) from None


def _unknown(name: str, kind: str) -> UnsupportedModel:
    return UnsupportedModel(f"tensor {name} has quantisation type {kind}, which is not supported")


def _length(name: str, place: TensorPlace) -> int:
    """The number of a tensor's bytes in the file."""
    kind = _kind(name, place)
    block, size = GGML_QUANT_SIZES[kind]
    count: int = 1
    for length in place.shape:
        count *= length
    if not count or place.shape[-1] % block:
        raise InvalidGguf(f"tensor {name} of type {kind.name} cannot have the shape {list(place.shape)}")
    return count // int(block) * int(size)
