"""Adapters of PEFT: a folder with adapter_config.json and adapter_model.safetensors, or adapter_model.bin.

Files have a pair of matrices for each module of the model that they change, A [rank, in] and B [out, rank]. Modules are
those of the base model's own files, so a pair of a fused module is that of several parts here, and one of a part is
put beside the others. A pair that belongs nowhere is refused: the adapter is that of another model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from runtimes.llm.model.family import Family
from runtimes.llm.model.lora import LayerAdditions, LowRank, LowRankAdapter, MatrixName
from runtimes.llm.model.model_config import ModelShape, UnsupportedModel
from runtimes.llm.model.tensor_names import TensorPart, neighbours_apart, numbered, stored_as
from runtimes.llm.weights.adapter_config import CONFIG, AdapterConfig
from runtimes.llm.weights.tensor_files import TensorFiles

FILES = ("adapter_model.safetensors", "adapter_model.bin")
_TENSOR = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")


@dataclass(frozen=True, slots=True)
class AdapterBase:
    """The part of a model that decides which adapters fit it."""

    config: ModelShape
    family: Family


class _Pair(NamedTuple):
    """The names of both tensors, and their numbers in float32; the factor is in `up`."""

    names: tuple[str, str]
    down: Tensor
    up: Tensor


class _Part(NamedTuple):
    """A part of one of our matrices: its name in layers.py, and its first row and their number."""

    name: str
    first: int
    rows: int


def read_adapter(folder: Path, base: AdapterBase) -> LowRankAdapter:
    """The adapter in `folder`, in float32.

    Raises UnsupportedModel or InvalidCheckpoint, which name the file and the tensor, or OSError.
    """
    if base.config.latent is not None:
        raise UnsupportedModel(f"{folder.name}: adapters of models with latent attention are not supported")
    if base.config.key_layers:
        raise UnsupportedModel(f"{folder.name}: adapters of models whose layers share keys are not supported")
    if any(kind.heads is not None for kind in base.config.kinds):
        raise UnsupportedModel(f"{folder.name}: adapters of models with heads of different sizes are not supported")
    if any(kind.values_are_keys for kind in base.config.kinds):
        raise UnsupportedModel(f"{folder.name}: adapters of models whose values are keys are not supported")
    if base.config.attention_gate:
        raise UnsupportedModel(f"{folder.name}: adapters of models with gated attention are not supported")
    config = AdapterConfig.read(folder)
    file = next((folder / name for name in FILES if (folder / name).exists()), None)
    if file is None:
        raise UnsupportedModel(f"{folder.name} has neither {' nor '.join(FILES)}")
    try:
        pairs = _pairs(TensorFiles(folder, [file]), config)
        layers = _Fitter(base, pairs).layers()
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{file.name}: {error}") from None
    return LowRankAdapter(layers, _digest(pairs))


def _digest(pairs: dict[str, _Pair]) -> bytes:
    digest = blake2b(digest_size=32)
    for module, pair in sorted(pairs.items()):
        digest.update(f"{module} {list(pair.down.shape)} {list(pair.up.shape)}\n".encode())
        for tensor in (pair.down, pair.up):
            digest.update(tensor.contiguous().view(torch.uint8).numpy())
    return digest.digest()


def _pairs(files: TensorFiles, config: AdapterConfig) -> dict[str, _Pair]:
    """By module. Raises UnsupportedModel for a tensor that is no half of a pair of the right rank."""
    names: dict[str, dict[str, str]] = {}
    for name in files:
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise UnsupportedModel(f"tensor {name} is of a kind that is not supported")
        names.setdefault(match["module"], {})[match["side"]] = name
    pairs = {}
    for module, sides in names.items():
        if len(sides) < 2:
            missing = "B" if "A" in sides else "A"
            raise UnsupportedModel(f"tensor {next(iter(sides.values()))} has no lora_{missing} beside it")
        if not config.has(module):
            raise UnsupportedModel(f"tensor {sides['A']} is of a module that target_modules of {CONFIG} does not name")
        down, up = _matrix(files, sides["A"]), _matrix(files, sides["B"])
        rank = config.rank_of(module)
        if down.shape[0] != rank or up.shape[1] != rank:
            wrong = sides["A"] if down.shape[0] != rank else sides["B"]
            raise UnsupportedModel(f"tensor {wrong} is {list(files.shape(wrong))}; {CONFIG} gives it rank {rank}")
        up = up * config.scale_of(module)
        _check_finite(sides["B"], up)
        pairs[module] = _Pair((sides["A"], sides["B"]), down, up)
    if not pairs:
        raise UnsupportedModel("there is no tensor")
    return pairs


def _matrix(files: TensorFiles, name: str) -> Tensor:
    if len(shape := files.shape(name)) != 2:
        raise UnsupportedModel(f"tensor {name} is {list(shape)}, which is no matrix")
    tensor = files.tensor(name)
    if not tensor.dtype.is_floating_point:
        raise UnsupportedModel(f"tensor {name} is of {tensor.dtype}, which is not a type of weights")
    numbers = tensor.float()
    _check_finite(name, numbers)
    return numbers


def _check_finite(name: str, numbers: Tensor) -> None:
    if not bool(numbers.sum().isfinite()):
        raise UnsupportedModel(f"tensor {name} has numbers that are not finite: the file is damaged")


class _Fitter:
    """Puts the pairs of an adapter where the model has its matrices."""

    def __init__(self, base: AdapterBase, pairs: dict[str, _Pair]) -> None:
        self._config, self._family = base.config, base.family
        self._pairs = pairs
        self._used: set[str] = set()

    def layers(self) -> list[LayerAdditions]:
        """Raises UnsupportedModel for a pair that fits nowhere."""
        layers = [self._layer(index) for index in range(self._config.num_layers)]
        for module, pair in self._pairs.items():
            if module not in self._used:
                raise UnsupportedModel(f"tensor {pair.names[0]} {self._misfit(module)}")
        return layers

    def _layer(self, index: int) -> LayerAdditions:
        config = self._config
        hidden, size = config.hidden_size, config.mlp_size(index)
        heads, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        mlp = "mlp" if config.experts_of(index) is None else "mlp.shared_expert"
        qkv = [
            _Part("self_attn.q_proj", 0, heads),
            _Part("self_attn.k_proj", heads, key),
            _Part("self_attn.v_proj", heads + key, key),
        ]
        gate = [_Part(f"{mlp}.gate_proj", 0, size)] if config.gated else []
        matrices: dict[MatrixName, tuple[list[_Part], int]] = {}
        if config.attends(index):
            matrices["qkv"] = (qkv, hidden)
            matrices["attention_out"] = ([_Part("self_attn.o_proj", 0, hidden)], heads)
        if size:
            up = _Part(f"{mlp}.up_proj", size if config.gated else 0, size)
            matrices["gate_up"] = ([*gate, up], hidden)
            matrices["down"] = ([_Part(f"{mlp}.down_proj", 0, hidden)], size)
        fitted = {name: self._matrix(index, parts, columns) for name, (parts, columns) in matrices.items()}
        return {name: additions for name, additions in fitted.items() if additions}

    def _matrix(self, index: int, parts: Sequence[_Part], columns: int) -> list[LowRank]:
        """Neighbouring parts of one stored module are one addition."""
        there = [entry for part in parts if (entry := self._part(index, part, columns)) is not None]
        merged = []
        for _, group in groupby(there, key=lambda item: item[0]):
            lows = [low for _, low in group]
            merged.append(replace(lows[0], up=torch.cat([low.up for low in lows])))
        return merged

    def _part(self, index: int, part: _Part, columns: int) -> tuple[str, LowRank] | None:
        place = self._place(f"model.layers.{index}.{part.name}.weight")
        module = place.name.removesuffix(".weight")
        if module not in self._pairs or place.stacked:
            return None
        pair = self._pairs[module]
        self._used.add(module)
        # PEFT's factors are [out, rank] for matrices that are stored as [in, out] too.
        up = replace(place, transposed=False).of(pair.up, self._config)
        assert isinstance(up, Tensor)
        if len(up) != part.rows or pair.down.shape[1] != columns:
            wrong, shape, size = pair.names[0], pair.down.shape, f"{columns} columns"
            if len(up) != part.rows:
                wrong, shape, size = pair.names[1], pair.up.shape, f"{part.rows} rows"
            model = f"this model's {part.name} requires {size}: the adapter is of another model"
            raise UnsupportedModel(f"tensor {wrong} is {list(shape)}; {model}")
        return module, LowRank(part.first, pair.down, self._ordered(index, part.name, up))

    def _ordered(self, index: int, name: str, up: Tensor) -> Tensor:
        """Rows in the order of this engine."""
        heads = {"q_proj": self._config.num_heads, "k_proj": self._config.num_kv_heads}.get(name.split(".")[-1])
        if heads is None or not self._family.neighbours:
            return up
        kind = self._config.kinds[self._config.layer_kinds[index]]
        ordered = neighbours_apart(up, heads, kind, self._config.head_dim)
        assert isinstance(ordered, Tensor)
        return ordered

    def _place(self, name: str) -> TensorPart:
        name = numbered(name, self._config.stored_layers)
        return stored_as(self._family.names, name, lambda stored: stored.removesuffix(".weight") in self._pairs)

    def _misfit(self, module: str) -> str:
        if ".experts" in module or "block_sparse_moe" in module or module.endswith((".gate", ".router")):
            return "is of experts or their router, for which adapters are not supported"
        if module.endswith(("lm_head", "embed_tokens", "wte")):
            return "is of the embedding or the head, for which adapters are not supported"
        return "is of a module that this model does not have: the adapter is of another model"
