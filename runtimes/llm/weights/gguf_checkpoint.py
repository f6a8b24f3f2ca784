"""A model as llama.cpp publishes it: a GGUF file, or several
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from runtimes.llm.model.embedding_config import PoolingName
from runtimes.llm.model.families import FAMILIES
from runtimes.llm.model.matrix import GroupQuantized, Weight, unquantized
from runtimes.llm.model.model_config import DeltaShape, UnsupportedModel
from runtimes.llm.model.tensor_names import Names, TensorPart, neighbours_apart, stored_as
from runtimes.llm.weights.adapter_files import AdapterBase
from runtimes.llm.weights.gguf_blocks import from_blocks, is_blocks
from runtimes.llm.weights.gguf_config import GgufModel, gguf_config
from runtimes.llm.weights.gguf_hybrid import HYBRID_NAMES, IN_TURNS, RESTORED, as_in_folders, delta_weight, expansion
from runtimes.llm.weights.gguf_metadata import (
    GgufDirectory,
    InvalidGguf,
    TensorPlace,
    parts_of,
    read_directory,
    read_metadata,
)

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class GgufTensors:
    """An open file, or all files of a split model. All offsets have been checked against the sizes of the files; bytes
    are read on demand.

    Raises InvalidGguf, OSError, or UnsupportedModel for a tensor that is missing or of an unknown type.
    """

    def __init__(self, path: Path) -> None:
        directory = read_directory(path)
        self.metadata = directory.metadata
        self._places: dict[str, tuple[TensorPlace, NDArray[np.uint8]]] = {}
        self._add(path, directory)
        if (count := self.metadata.get("split.count", 1)) > 1:
            self._add_parts(path, count)

    def _add(self, path: Path, directory: GgufDirectory) -> None:
        data: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        for name, place in directory.tensors.items():
            if place.start + _length(name, place) > len(data):
                raise InvalidGguf(f"{path.name} is cut short: tensor {name} lies beyond its end")
            if name in self._places:
                raise InvalidGguf(f"{path.name} has tensor {name}, which another part of the model has too")
            self._places[name] = (place, data)

    def _add_parts(self, path: Path, count: int) -> None:
        """The rest of the `count` files of a split model, of which `path` must be the first."""
        names = parts_of(path.name)
        if self.metadata.get("split.no", 0) != 0 or path.name != names[0]:
            raise UnsupportedModel(f"{path.name} is one part of {count}: name the first, {names[0]}")
        if len(names) != count:
            raise UnsupportedModel(
                f"{path.name} is the first of {count} parts: name it ….gguf as the others, …-00001-of-{count:05}.gguf"
            )
        for number, name in enumerate(names[1:], 1):
            part = path.with_name(name)
            if not part.exists():
                raise UnsupportedModel(f"{name} is not beside {path.name}: the model is split into {count} files")
            directory = read_directory(part)
            place = directory.metadata.get("split.no"), directory.metadata.get("split.count")
            if place != (number, count):
                raise InvalidGguf(f"{name} is not part {number + 1} of {count} of this model")
            self._add(part, directory)
        expected = self.metadata.get("split.tensors.count", len(self._places))
        if len(self._places) != expected:
            raise InvalidGguf(f"the parts of {path.name} have {len(self._places)} tensors, not {expected}")

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def names(self) -> Iterable[str]:
        return self._places.keys()

    @property
    def stored_shapes(self) -> list[tuple[tuple[int, ...], bool]]:
        return [(place.shape, is_blocks(_kind(name, place).name)) for name, (place, _) in self._places.items()]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._place(name)[0].shape

    def weight(self, name: str, expert: int | None = None) -> Weight:
        """The tensor as stored: blocks as codes, their scales in float32; else as a tensor. Of a tensor of all experts
        [experts, …], one expert's."""
        place, whole = self._place(name)
        kind = _kind(name, place)
        data = whole[place.start :][: _length(name, place)]
        if expert is not None:
            count = place.shape[0]
            if not 0 <= expert < count:
                raise UnsupportedModel(f"tensor {name} is of {count} experts; there is no number {expert}")
            data = data[len(data) // count * expert :][: len(data) // count]
            place = replace(place, shape=place.shape[1:])
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

    def _place(self, name: str) -> tuple[TensorPlace, NDArray[np.uint8]]:
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


_POOLINGS: dict[int, PoolingName] = {0: "auto", 1: "mean", 2: "cls", 3: "last"}


def gguf_pooling(path: Path) -> PoolingName:
    """How the file's vectors are made, `auto` if it does not declare it. Raises UnsupportedModel for a reranker."""
    metadata = read_metadata(path)
    declared = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    if declared not in _POOLINGS:
        kind = "rank, of a reranker," if declared == 4 else str(declared)
        raise UnsupportedModel(f"pooling_type {kind} is not supported; mean, cls and last are")
    return _POOLINGS[declared]


_NAMES: Names = {
    "model.embed_tokens": "token_embd",
    "model.embed_positions": "position_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    **{f"conv.{part}": f"shortconv.{part}" for part in ("in_proj", "conv", "out_proj")},
    "mlp.router": "ffn_gate_inp",
    "mlp.router.selection_bias": "exp_probs_b.bias",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    **{
        f"mlp.experts.{{expert}}.{part}_proj": TensorPart(f"ffn_{part}_exps", stacked=True)
        for part in ("gate", "up", "down")
    },
    **HYBRID_NAMES,
}
_FUSED: Names = {
    "self_attn.q_proj": TensorPart("attn_qkv", "query"),
    "self_attn.k_proj": TensorPart("attn_qkv", "key"),
    "self_attn.v_proj": TensorPart("attn_qkv", "value"),
}
_FUSED_MLP: Names = {"mlp.gate_proj": TensorPart("ffn_up", "first"), "mlp.up_proj": TensorPart("ffn_up", "second")}


class GgufCheckpoint:
    """A GGUF file, or the first of several, of one of gguf_config.ARCHITECTURES. Norm weights are whole in it."""

    def __init__(self, path: Path) -> None:
        self._tensors = GgufTensors(path)
        self._fields = self._tensors.metadata
        model = GgufModel(self._field, self._tensors)
        self._neighbours = model.row.neighbours
        self._in_turns = model.architecture.startswith("qwen35")
        self._family = FAMILIES[model.row.family]
        self.config = gguf_config(model)

    @property
    def adapter_base(self) -> AdapterBase:
        """Adapters have the names of config.json's family."""
        return AdapterBase(self.config, self._family)

    @property
    def stored_shapes(self) -> list[tuple[tuple[int, ...], bool]]:
        return self._tensors.stored_shapes

    def stored_name(self, name: str) -> str:
        """The name in the file of the tensor `name`, which may be a part of it."""
        return self._stored(name).name

    def tensor(self, name: str) -> Tensor:
        weight = self.weight(name)
        return weight.dequantized() if isinstance(weight, GroupQuantized) else weight

    def weight(self, name: str) -> Weight:
        if ".act_fn." in name:
            return self._activation(name)
        if name.endswith("kv_b_proj.weight") and self._stored(name).name not in self._tensors:
            return self._expansion(name)
        stored = self._stored(name)
        weight = stored.of(self._tensors.weight(stored.name, stored.expert if stored.stacked else None), self.config)
        if name.endswith("conv.conv.weight") and isinstance(weight, Tensor):
            return weight.unflatten(0, (-1, 1))
        if name.endswith(RESTORED):
            weight = as_in_folders(name, unquantized(weight))
        if ".linear_attn." in name and isinstance(self.config.recurrent, DeltaShape):
            return delta_weight(name, weight, self.config.recurrent, in_turns=self._in_turns)
        if name.endswith("shared_expert_gate.weight"):
            return weight.dequantized().view(1, -1) if isinstance(weight, GroupQuantized) else weight.view(1, -1)
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}.get(name.split(".")[-2])
        if heads is None or not self._neighbours:
            return weight
        kind = self.config.kinds[self.config.layer_kinds[int(name.split(".")[2])]]
        return neighbours_apart(weight, heads, kind, self.config.head_dim)

    def _expansion(self, name: str) -> Tensor:
        assert self.config.latent is not None
        return expansion(self._tensors, int(name.split(".")[2]), self.config.latent, self.config)

    def _activation(self, name: str) -> Tensor:
        """A number of xIELU, which is a field with one for each layer."""
        key, layer = f"xielu.{name.rpartition('.')[2]}", int(name.split(".")[2])
        values = self._field(key)
        if not isinstance(values, list) or len(values) <= layer:
            raise UnsupportedModel(f"the GGUF file's {key} has no number for layer {layer}")
        return torch.tensor([values[layer]], dtype=torch.float32)

    def _stored(self, name: str) -> TensorPart:
        names = _NAMES
        if "blk.0.ffn_norm.weight" not in self._tensors and not self.config.post_norms:
            names = {**names, "pre_feedforward_layernorm": "post_attention_norm"}
        if "output_norm.weight" not in self._tensors:
            names = {**names, "model.norm": "token_embd_norm"}
        if "blk.0.attn_qkv.weight" in self._tensors and self.config.recurrent is None:
            names = {**names, **_FUSED}
        if self._in_turns:
            names = {**names, **IN_TURNS}
        if "blk.0.ffn_norm" in self._tensors:  # as Falcon-H1's converter spells it
            names = {**names, "pre_feedforward_layernorm.weight": "ffn_norm"}
        if self.config.without_mlp:  # a layer is one thing, and has one norm
            names = {**names, "pre_feedforward_layernorm": "attn_norm"}
        if self.config.gated and self.config.experts is None and "blk.0.ffn_gate.weight" not in self._tensors:
            names = {**names, **_FUSED_MLP}
        return stored_as(names, name, self._tensors.__contains__, layers="blk")

    def _field(self, key: str, *default: Any) -> Any:
        if key in self._fields:
            return self._fields[key]
        if not default:
            raise UnsupportedModel(f"the GGUF file lacks {key}")
        return default[0]
