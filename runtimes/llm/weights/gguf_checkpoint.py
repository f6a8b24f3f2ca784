"""A model as llama.cpp publishes it: a GGUF file, or several (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

Values that a file omits are the defaults of llama.cpp's own code for the architecture
(https://github.com/ggml-org/llama.cpp/tree/master/src/models).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from runtimes.llm.model.embedding_config import PoolingName
from runtimes.llm.model.matrix import GroupQuantized, Weight, with_rows
from runtimes.llm.model.model_config import MAX_LAYERS, LayerKind, ModelShape, Rope, UnsupportedModel, checked_count
from runtimes.llm.model.rope import divided, rope_of
from runtimes.llm.weights.gguf_blocks import from_blocks, is_blocks
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
    def shapes(self) -> list[tuple[int, ...]]:
        return [place.shape for place, _ in self._places.values()]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._place(name)[0].shape

    def weight(self, name: str) -> Weight:
        """The tensor as stored: blocks as codes, their scales in float32; else as a tensor."""
        place, whole = self._place(name)
        kind = _kind(name, place)
        data = whole[place.start :][: _length(name, place)]
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


ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")
# Gemma's largest models scale their scores by the width of a head that they do not have; by number of layers.
_ODD_SCALE = {("gemma2", 46), ("gemma3", 62)}


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A GGUF file's description of its model: `field(key, default)` and tensors."""

    field: Callable[..., Any]
    tensors: GgufTensors

    @property
    def architecture(self) -> str:
        name: str = self.field("general.architecture", "none")
        if name not in ARCHITECTURES:
            raise UnsupportedModel(f"architecture {name!r} is not supported; these are: {', '.join(ARCHITECTURES)}")
        return name

    def own(self, key: str, *default: Any) -> Any:
        """The architecture's `key`, which must be there if there is no default."""
        value = self.field(f"{self.architecture}.{key}", *default)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise UnsupportedModel(f"{self.architecture}.{key} differs between layers, which is not supported")
            return value[0]
        return value


def gguf_config(model: GgufModel) -> ModelShape:
    """Raises UnsupportedModel, which names the missing or unsupported part."""
    architecture, tensors = model.architecture, model.tensors
    if (experts := model.own("expert_count", 0)) > 0:
        raise UnsupportedModel(f"{architecture}.expert_count = {experts} is not supported")
    checked_count("block_count", model.own("block_count"), MAX_LAYERS)
    heads, hidden = model.own("attention.head_count"), model.own("embedding_length")
    head_dim = model.own("attention.key_length", hidden // heads)
    if model.own("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel("values of another size than keys are not supported")
    gemma = architecture.startswith("gemma")
    odd_scale = (architecture, model.own("block_count")) in _ODD_SCALE
    kinds = _layer_kinds(model, head_dim)
    distinct = tuple(dict.fromkeys(kinds))
    vocabulary = tensors.shape("token_embd.weight")[0]
    ends = [model.field(f"tokenizer.ggml.{end}_token_id", None) for end in ("eos", "eot", "eom")]
    return ModelShape(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=model.own("feed_forward_length"),
        num_layers=model.own("block_count"),
        num_heads=heads,
        num_kv_heads=model.own("attention.head_count_kv", heads),
        head_dim=head_dim,
        context_length=_context_length(model),
        rms_norm_eps=model.own("attention.layer_norm_rms_epsilon"),
        kinds=distinct,
        layer_kinds=tuple(distinct.index(kind) for kind in kinds),
        attention_scale=(hidden // heads if odd_scale else head_dim) ** -0.5,
        tie_word_embeddings="output.weight" not in tensors,
        eos_token_ids=frozenset(end for end in ends if end is not None and 0 <= end < vocabulary),
        activation="gelu_tanh" if gemma else "silu",
        attention_soft_cap=model.own("attn_logit_softcapping", 50.0) if architecture == "gemma2" else None,
        logits_soft_cap=model.own("final_logit_softcapping", 30.0 if architecture == "gemma2" else None),
        embedding_multiplier=hidden**0.5 if gemma else 1.0,
        qkv_bias="blk.0.attn_q.bias" in tensors,
        attention_out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_down.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        post_norms=gemma,
        fused_projections="blk.0.attn_qkv.weight" in tensors,
    )


# ── attention: windows and positions ──────────────────────────────────────────────────────────────────


def _layer_kinds(model: GgufModel, head_dim: int) -> list[LayerKind]:
    layers, rope = range(model.own("block_count")), _rope(model, head_dim)
    window = _window(model)
    period = {"gemma2": 2, "gemma3": 6}.get(model.architecture, 0)
    sliding = _sliding_layers(model, period)
    local = rope
    if model.architecture == "gemma3":
        theta = model.own("rope.freq_base_swa", 10_000.0)
        local = rope_of({"rope_theta": theta}, head_dim, _context_length(model))
    return [LayerKind(local, window) if sliding[layer] else LayerKind(rope) for layer in layers]


def _sliding_layers(model: GgufModel, period: int) -> list[bool]:
    """Whether each layer uses the window: all but the last one of each period, all without a period."""
    layers = range(model.own("block_count"))
    pattern = model.field(f"{model.architecture}.attention.sliding_window_pattern", period)
    if isinstance(pattern, list):
        if len(pattern) != len(layers):
            raise UnsupportedModel(f"sliding_window_pattern is of {len(pattern)} layers; block_count is {len(layers)}")
        return [bool(sliding) for sliding in pattern]
    return [not pattern or bool((layer + 1) % pattern) for layer in layers]


def _window(model: GgufModel) -> int | None:
    """The window. llama.cpp has none for the Qwens, even if their files have one."""
    if model.architecture in ("qwen2", "qwen3"):
        return None
    window: int = model.own("attention.sliding_window", 4096 if model.architecture == "gemma2" else 0)
    return window if 0 < window < _context_length(model) else None


def _context_length(model: GgufModel) -> int:
    length: int = model.own("context_length")
    if model.own("rope.scaling.type", "none") != "yarn":
        return length
    original = model.own("rope.scaling.original_context_length", length)
    return max(length, int(original * model.own("rope.scaling.factor", 1.0)))


def _rope(model: GgufModel, head_dim: int) -> Rope:
    length, dims = model.own("context_length"), model.own("rope.dimension_count", head_dim)
    original = model.own("rope.scaling.original_context_length", length)
    factor = model.own("rope.scaling.factor", model.own("rope.scale_linear", 0.0))
    kind = model.own("rope.scaling.type", "linear" if factor else "none")
    if "rope_factors_long.weight" in model.tensors:
        kind = "longrope"
    parameters = {
        "rope_type": "default" if kind == "none" else kind,
        "rope_theta": model.own("rope.freq_base", 10_000.0),
        "factor": factor or 1.0,
        "original_max_position_embeddings": original,
    }
    if kind == "yarn":
        parameters |= _yarn(model, factor)
    if kind == "longrope":
        parameters |= {
            f"{name}_factor": model.tensors.tensor(f"rope_factors_{name}.weight").tolist() for name in ("long", "short")
        }
        parameters["attention_factor"] = model.own("rope.scaling.attn_factor", 1.0)
    rope = rope_of(parameters, dims, length)
    if "rope_freqs.weight" in model.tensors:  # llama3 scaling is stored as its outcome
        rope = divided(rope, model.tensors.tensor("rope_freqs.weight"))
    return rope


def _yarn(model: GgufModel, factor: float) -> dict[str, Any]:
    magnitude = model.own("rope.scaling.attn_factor", 1.0) * model.own("rope.scaling.yarn_attn_factor", 1.0)
    if model.own("rope.scaling.yarn_log_multiplier", 0.0):
        raise UnsupportedModel("rope.scaling.yarn_log_multiplier is not supported")
    return {
        "attention_factor": magnitude * (1 + 0.1 * math.log(factor) if factor > 1 else 1.0),
        "beta_fast": model.own("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": model.own("rope.scaling.yarn_beta_slow", 1.0),
    }


_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_POST_NORM_NAMES = _NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class GgufCheckpoint:
    """A GGUF file, or the first of several, of one of ARCHITECTURES. Norm weights are whole in it, for every family."""

    holds_codes = True

    def __init__(self, path: Path) -> None:
        self._tensors = GgufTensors(path)
        self._fields = self._tensors.metadata
        model = GgufModel(self._field, self._tensors)
        self._architecture = model.architecture
        self.config = gguf_config(model)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._tensors.shapes

    def tensor(self, name: str) -> Tensor:
        weight = self.weight(name)
        return weight.dequantized() if isinstance(weight, GroupQuantized) else weight

    def weight(self, name: str) -> Weight:
        module, _, kind = name.rpartition(".")
        prefix = ""
        if module.startswith("model.layers."):
            _, _, index, module = module.split(".", 3)
            prefix = f"blk.{index}."
        names = _POST_NORM_NAMES if self.config.post_norms else _NAMES
        weight = self._tensors.weight(f"{prefix}{names[module]}.{kind}")
        if self._architecture != "llama":
            return weight
        if module == "self_attn.q_proj":
            return _unpermuted(weight, self.config.num_heads)
        if module == "self_attn.k_proj":
            return _unpermuted(weight, self.config.num_kv_heads)
        return weight

    def _field(self, key: str, *default: Any) -> Any:
        if key in self._fields:
            return self._fields[key]
        if not default:
            raise UnsupportedModel(f"the GGUF file lacks {key}")
        return default[0]


def _unpermuted(weight: Weight, heads: int) -> Weight:
    """Undo llama.cpp's order of a Llama's query and key rows: it turns pairs (2i, 2i + 1), this model (i, i + half)."""
    if weight.shape[0] % (2 * heads):
        raise UnsupportedModel(f"a matrix of {weight.shape[0]} rows cannot be that of {heads} heads")
    order = torch.arange(weight.shape[0]).view(heads, -1, 2).transpose(1, 2).flatten()
    return with_rows(weight, order)
