"""A layer's weights, and how they are read.

Names are those of Hugging Face's Llama, and of its Gemma for the four norms; weights/tensor_names.py has the names of
the files. Matrices are [out, in]; queries, keys and values are one matrix, gate and up another: fewer and larger
products.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtimes.llm.model.gemma.mixture import Apart, read_apart, read_router
from runtimes.llm.model.gemma.per_layer import PerLayer, read_per_layer
from runtimes.llm.model.gemma.streams import COEFFICIENTS, Streams, read_streams
from runtimes.llm.model.latents.latent import Latent, read_latent
from runtimes.llm.model.matrix import Weight, concatenated, with_rows
from runtimes.llm.model.model_config import DeltaShape, ExpertShape, MambaShape, ModelShape
from runtimes.llm.model.recurrent.delta import DeltaLayer, read_delta
from runtimes.llm.model.recurrent.mamba import Mamba, read_mamba
from runtimes.llm.model.short_conv import ShortConv

TensorSource = Callable[[str, tuple[int, ...]], Any]
"""The weight of that name, which must have that shape, on the device to compute with: a matrix in the dtype to compute
with, a vector in float32."""

WHOLE = (".mlp.router.weight", ".mlp.shared_expert_gate.weight", "model.embed_positions.weight", *COEFFICIENTS)
"""Ends of the names of small matrices that decide much: they are float32, and never quantized."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The matrices of all experts, one above the other: `gate_up` [count × 2 × size, hidden], or up alone, `down`
    [count × hidden, size]. `router` is [count, hidden], `shared_gate` [1, hidden]; both and all biases are float32."""

    router: Tensor
    router_bias: Tensor | None
    selection_bias: Tensor | None
    shared_gate: Tensor | None
    gate_up: Weight
    gate_up_bias: Tensor | None
    down: Weight
    down_bias: Tensor | None
    factors: Tensor | None = None
    """Of each expert's weight, [count], float32."""
    into: Weight | None = None
    """[read, hidden], for experts that do not read the hidden state itself; `out` [hidden, read] turns back."""
    out: Weight | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights; None for weights that the model does not have. Norms are float32.

    `gate_up` is up alone where the MLP is not gated. Beside `experts`, the MLP is that of all tokens.
    """

    kind: int
    attention_norm: Tensor | None
    attention_norm_bias: Tensor | None
    qkv: Weight | None
    """None of latent attention, and of a layer without attention. Without values where those are the
    keys, and of queries alone where another layer has both."""
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    sinks: Tensor | None
    attention_out: Weight | None
    attention_out_bias: Tensor | None
    attention_post_norm: Tensor | None
    mlp_norm: Tensor | None
    mlp_norm_bias: Tensor | None
    gate_up: Weight | None
    gate_up_bias: Tensor | None
    down: Weight | None
    down_bias: Tensor | None
    activation: Tensor | None
    """Of xIELU: two numbers that softplus makes positive."""
    mlp_post_norm: Tensor | None
    experts: Experts | None
    latent: Latent | None = None
    conv: ShortConv | None = None
    """In place of attention."""
    mamba: Mamba | None = None
    """In place of attention, or beside it."""
    delta: DeltaLayer | None = None
    """In place of attention."""
    attention_gate: Weight | None = None
    straight_attention: Weight | None = None
    """[hidden, hidden], in place of attention; `straight_mlp` of the MLP."""
    straight_mlp: Weight | None = None
    apart: Apart | None = None
    """Norms of an MLP and of experts that do not read the same."""
    factor: Tensor | None = None
    """Of all that the layer gives, [1]."""
    per_layer: PerLayer | None = None
    streams: Streams | None = None

    @property
    def mixes(self) -> bool:
        """Whether there is attention, or something in its place."""
        mixers = (self.attention_out, self.conv, self.mamba, self.delta, self.straight_attention)
        return any(mixer is not None for mixer in mixers)

    @property
    def has_mlp(self) -> bool:
        return self.gate_up is not None or self.experts is not None or self.straight_mlp is not None


def read_layer(config: ModelShape, tensor: TensorSource, index: int, dtype: torch.dtype) -> Layer:
    """Raises UnsupportedModel, from `tensor`, for one that is missing or has another shape."""
    return _LayerReader(config, tensor, index, dtype).layer()


class _LayerReader:
    def __init__(self, config: ModelShape, tensor: TensorSource, index: int, dtype: torch.dtype) -> None:
        self._config = config
        self._tensor = tensor
        self._index = index
        self._dtype = dtype

    def layer(self) -> Layer:
        config, hidden = self._config, self._config.hidden_size
        conv, attends = self._index in config.conv_layers, config.attends(self._index)
        key_heads, head_dim = config.heads_of(self._index)
        heads, key = config.num_heads * head_dim, key_heads * head_dim
        qkv = [("self_attn.q_proj", heads), ("self_attn.k_proj", key), ("self_attn.v_proj", key)]
        whole, normed = config.qk_norm == "whole", config.qk_norm not in (None, "turned_alone") and attends
        own_keys = config.key_layer(self._index) == self._index
        qkv = qkv[: 1 if not own_keys else 2 if config.kinds[config.layer_kinds[self._index]].values_are_keys else 3]
        experts, size = config.experts_of(self._index), config.mlp_size(self._index)
        # A model's biases are not those of the MLP beside its experts.
        biased = config.mlp_bias and experts is None
        mlp = "mlp" if experts is None else "mlp.shared_expert"
        gate_up = [(f"{mlp}.gate_proj", size)] * config.gated + [(f"{mlp}.up_proj", size)]
        out, down = [("self_attn.o_proj", hidden)], [(f"{mlp}.down_proj", hidden)]
        state = config.recurrent if self._index in config.recurrent_layers else None
        gated = config.attention_gate and attends
        straight = self._index in config.straight_attention, self._index in config.straight_mlp
        mixes = attends or conv or self._index in config.recurrent_layers or straight[0]
        first = config.pre_norms and mixes
        computes = self._index not in config.without_mlp or straight[1]
        second = config.pre_norms and not config.parallel and computes
        return Layer(
            kind=config.layer_kinds[self._index],
            attention_norm=self._norm("input_layernorm", hidden, first),
            attention_norm_bias=self._norm_bias("input_layernorm", first),
            qkv=self._qkv(qkv) if attends and config.latent is None else None,
            qkv_bias=self._bias(qkv, config.qkv_bias and attends),
            query_norm=self._norm("self_attn.q_norm", heads if whole else head_dim, normed),
            key_norm=self._norm("self_attn.k_norm", key if whole else head_dim, normed and own_keys),
            sinks=self._read("self_attn.sinks", config.num_heads) if config.sinks and attends else None,
            attention_out=self._matrix(out, config.attended_size(self._index)) if attends else None,
            attention_out_bias=self._bias(out, config.attention_out_bias and attends),
            attention_post_norm=self._norm("post_attention_layernorm", hidden, config.post_norms),
            mlp_norm=self._norm("pre_feedforward_layernorm", hidden, second),
            mlp_norm_bias=self._norm_bias("pre_feedforward_layernorm", second),
            gate_up=self._matrix(gate_up, hidden) if size else None,
            gate_up_bias=self._bias(gate_up, biased),
            down=self._matrix(down, size) if size else None,
            down_bias=self._bias(down, biased),
            activation=self._xielu() if config.activation == "xielu" else None,
            mlp_post_norm=self._norm("post_feedforward_layernorm", hidden, config.post_norms),
            experts=None if experts is None else self._experts(experts),
            latent=None if config.latent is None else read_latent(config, config.latent, self._read, self._index),
            conv=self._conv() if conv else None,
            mamba=read_mamba(config, state, self._read, self._dtype) if isinstance(state, MambaShape) else None,
            delta=read_delta(config, state, self._read) if isinstance(state, DeltaShape) else None,
            attention_gate=self._query_and_gate()[1] if gated else None,
            straight_attention=self._read("self_attn.linear_attn.weight", hidden, hidden) if straight[0] else None,
            straight_mlp=self._read("mlp.linear_mlp.weight", hidden, hidden) if straight[1] else None,
            apart=read_apart(config, self._read) if experts is not None and experts.apart else None,
            factor=self._read("layer_scalar", 1) if config.layer_factors else None,
            per_layer=None if config.per_layer is None else read_per_layer(config, config.per_layer, self._read),
            streams=None if config.streams is None else read_streams(config, config.streams, self._read),
        )

    def _qkv(self, parts: Sequence[tuple[str, int]]) -> Weight:
        if not self._config.attention_gate:
            return self._matrix(parts, self._config.hidden_size)
        others = [self._read(f"{name}.weight", rows, self._config.hidden_size) for name, rows in parts[1:]]
        return concatenated([self._query_and_gate()[0], *others])

    def _query_and_gate(self) -> tuple[Weight, Weight]:
        """Of each head, the file has its query's rows and then its gate's."""
        heads, size = self._config.num_heads, self._config.head_dim
        both = self._read("self_attn.q_proj.weight", 2 * heads * size, self._config.hidden_size)
        query, gate = torch.arange(2 * heads * size).view(heads, 2, size).unbind(dim=1)
        return with_rows(both, query.flatten()), with_rows(both, gate.flatten())

    def _conv(self) -> ShortConv:
        hidden, biased = self._config.hidden_size, self._config.conv_bias
        into, out = [("conv.in_proj", 3 * hidden)], [("conv.out_proj", hidden)]
        return ShortConv(
            into=self._matrix(into, hidden),
            into_bias=self._bias(into, biased),
            kernel=self._read("conv.conv.weight", hidden, 1, self._config.conv_length)[:, 0],
            kernel_bias=self._bias([("conv.conv", hidden)], biased),
            out=self._matrix(out, hidden),
            out_bias=self._bias(out, biased),
        )

    def _experts(self, shape: ExpertShape) -> Experts:
        hidden, size, each = self._config.hidden_size, shape.intermediate_size, range(shape.count)
        read = shape.read or hidden
        parts = ("gate", "up") if self._config.gated else ("up",)
        gate_up = [(f"mlp.experts.{one}.{part}_proj", size) for one in each for part in parts]
        down = [(f"mlp.experts.{one}.down_proj", read) for one in each]
        selection = "mlp.router.selection_bias"
        if shape.apart:
            router, factors = read_router(self._config, shape.count, self._read)
        else:
            router, factors = self._read("mlp.router.weight", shape.count, hidden), None
        return Experts(
            router=router,
            router_bias=self._read("mlp.router.bias", shape.count) if shape.biases else None,
            selection_bias=self._read(selection, shape.count) if shape.selection_bias else None,
            shared_gate=self._read("mlp.shared_expert_gate.weight", 1, hidden) if shape.shared_gate else None,
            gate_up=self._matrix(gate_up, read),
            gate_up_bias=self._bias(gate_up, shape.biases, torch.float32),
            down=self._matrix(down, size),
            down_bias=self._bias(down, shape.biases, torch.float32),
            factors=factors,
            into=self._read("mlp.experts_into.weight", read, hidden) if shape.read else None,
            out=self._read("mlp.experts_out.weight", hidden, read) if shape.read else None,
        )

    def _xielu(self) -> Tensor:
        return torch.cat([self._read(f"mlp.act_fn.alpha_{sign}", 1) for sign in ("p", "n")])

    def _read(self, name: str, *shape: int) -> Any:
        return self._tensor(f"model.layers.{self._index}.{name}", shape)

    def _matrix(self, parts: Sequence[tuple[str, int]], columns: int) -> Weight:
        read = [self._read(f"{name}.weight", rows, columns) for name, rows in parts]
        return concatenated(read) if len(read) > 1 else read[0]

    def _bias(self, parts: Sequence[tuple[str, int]], there: bool, dtype: torch.dtype | None = None) -> Tensor | None:
        if not there:
            return None
        return torch.cat([self._read(f"{name}.bias", rows) for name, rows in parts]).to(dtype or self._dtype)

    def _norm(self, name: str, size: int, there: bool) -> Tensor | None:
        return self._read(f"{name}.weight", size) if there else None

    def _norm_bias(self, name: str, there: bool) -> Tensor | None:
        biased = there and self._config.norm == "layer_biased"
        return self._read(f"{name}.bias", self._config.hidden_size) if biased else None
