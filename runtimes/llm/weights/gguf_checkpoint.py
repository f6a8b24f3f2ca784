"""A model as llama.cpp publishes it: one GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

Values that a file omits are the defaults of llama.cpp's own code for the architecture
(https://github.com/ggml-org/llama.cpp/tree/master/src/models).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from runtimes.llm.model.matrix import GroupQuantized, Weight
from runtimes.llm.model.model_config import MAX_LAYERS, LayerKind, ModelShape, Rope, UnsupportedModel, checked_count
from runtimes.llm.model.rope import divided, rope_of
from runtimes.llm.model.tensor_names import Names, TensorPart, neighbours_apart, stored_as
from runtimes.llm.weights.gguf_blocks import from_blocks, is_blocks
from runtimes.llm.weights.gguf_metadata import InvalidGguf, TensorPlace, read_directory

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

    def weight(self, name: str, expert: int | None = None) -> Weight:
        """The tensor as stored: blocks as codes, their scales in float32; else as a tensor. Of a tensor of all experts
        [experts, …], one expert's."""
        place = self._place(name)
        kind = _kind(name, place)
        data = self._data[place.start :][: _length(name, place)]
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


ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")
# Whose files have neighbours that turn together: (2i, 2i + 1).
_NEIGHBOURS = frozenset({"llama"})
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
            raise UnsupportedModel(f"{self.architecture}.{key} differs between layers, which is not supported")
        return value


def gguf_config(model: GgufModel) -> ModelShape:
    """Raises UnsupportedModel, which names the missing or unsupported part."""
    architecture, tensors = model.architecture, model.tensors
    for option in ("split.count", f"{architecture}.expert_count"):
        if model.field(option, 0) > (option == "split.count"):
            raise UnsupportedModel(f"{option} = {model.field(option)} is not supported")
    checked_count("block_count", model.own("block_count"), MAX_LAYERS)
    heads, hidden = model.own("attention.head_count"), model.own("embedding_length")
    head_dim = model.own("attention.key_length", hidden // heads)
    if model.own("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel("values of another size than keys are not supported")
    gemma = architecture.startswith("gemma")
    odd_scale = (architecture, model.own("block_count")) in _ODD_SCALE
    kinds = _layer_kinds(model, head_dim)
    distinct = tuple(dict.fromkeys(kinds))
    ends = [model.field(f"tokenizer.ggml.{end}_token_id", None) for end in ("eos", "eot", "eom")]
    return ModelShape(
        vocab_size=tensors.shape("token_embd.weight")[0],
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
        eos_token_ids=frozenset(end for end in ends if end is not None),
        activation="gelu_tanh" if gemma else "silu",
        attention_soft_cap=model.own("attn_logit_softcapping", 50.0) if architecture == "gemma2" else None,
        logits_soft_cap=model.own("final_logit_softcapping", 30.0 if architecture == "gemma2" else None),
        embedding_multiplier=hidden**0.5 if gemma else 1.0,
        qkv_bias="blk.0.attn_q.bias" in tensors,
        attention_out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_down.bias" in tensors,
        qk_norm="head" if "blk.0.attn_q_norm.weight" in tensors else None,
        post_norms=gemma,
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
    "mlp.router": "ffn_gate_inp",
    "mlp.router.selection_bias": "exp_probs_b.bias",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    **{
        f"mlp.experts.{{expert}}.{part}_proj": TensorPart(f"ffn_{part}_exps", stacked=True)
        for part in ("gate", "up", "down")
    },
}
_FUSED: Names = {
    "self_attn.q_proj": TensorPart("attn_qkv", "query"),
    "self_attn.k_proj": TensorPart("attn_qkv", "key"),
    "self_attn.v_proj": TensorPart("attn_qkv", "value"),
}
_FUSED_MLP: Names = {"mlp.gate_proj": TensorPart("ffn_up", "first"), "mlp.up_proj": TensorPart("ffn_up", "second")}


class GgufCheckpoint:
    """A GGUF file of one of `gguf_config.ARCHITECTURES`. Norm weights are whole in it, for every family."""

    def __init__(self, path: Path) -> None:
        self._tensors = GgufTensors(path)
        self._fields = self._tensors.metadata
        model = GgufModel(self._field, self._tensors)
        self._architecture = model.architecture
        self.config = gguf_config(model)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._tensors.shapes

    def stored_name(self, name: str) -> str:
        """The name in the file of the tensor `name`, which may be a part of it."""
        return self._stored(name).name

    def tensor(self, name: str) -> Tensor:
        weight = self.weight(name)
        return weight.dequantized() if isinstance(weight, GroupQuantized) else weight

    def weight(self, name: str) -> Weight:
        stored = self._stored(name)
        weight = stored.of(self._tensors.weight(stored.name, stored.expert if stored.stacked else None), self.config)
        if name.endswith("shared_expert_gate.weight"):
            return weight.dequantized().view(1, -1) if isinstance(weight, GroupQuantized) else weight.view(1, -1)
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}.get(name.split(".")[-2])
        if heads is None or self._architecture not in _NEIGHBOURS:
            return weight
        kind = self.config.kinds[self.config.layer_kinds[int(name.split(".")[2])]]
        return neighbours_apart(weight, heads, kind, self.config.head_dim)

    def _stored(self, name: str) -> TensorPart:
        names = _NAMES
        if "blk.0.attn_qkv.weight" in self._tensors:
            names = {**names, **_FUSED}
        if self.config.gated and "blk.0.ffn_gate.weight" not in self._tensors:
            names = {**names, **_FUSED_MLP}
        return stored_as(names, name, self._tensors.__contains__, layers="blk")

    def _field(self, key: str, *default: Any) -> Any:
        if key in self._fields:
            return self._fields[key]
        if not default:
            raise UnsupportedModel(f"the GGUF file lacks {key}")
        return default[0]
