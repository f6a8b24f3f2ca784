"""The executor that computes a step in C++: the model's weights and its KV cache are in its memory.

The threads of a step meet at some three hundred barriers. When another program has the core of one of them, the others
wait, and a thread more makes the step longer. Linux counts how long a thread waits for a core: cores that are lost to
other programs show there, and the short turns of the server and its clients do not.
"""

import ctypes
import logging
from array import array
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_void_p

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.activations import XIELU_BETA
from runtimes.llm.model.layers import Experts, Layer
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.lora import LowRankAdapter
from runtimes.llm.model.matrix import GroupQuantized, Weight, embedding
from runtimes.llm.model.model_config import ModelShape
from runtimes.llm.native.adapter import ADAPTER_PARAMETERS, NativeAdapter, adapters_of, call
from runtimes.llm.native.build import EMULATED, CompilerFailed, NativeUnavailable, library, targets
from runtimes.llm.picture_rows import placed_rows, put_rows
from runtimes.llm.sequence import Chunk, StepAdapter

CROWDED = 0.35
"""Cores that the threads of a team wait for, on average, from which fewer threads are faster."""
CALM = 0.1
"""Cores up to which another thread is tried."""

_WINDOW, _TRIAL = 0.2, 0.05
_SHORTEST, _LONGEST = 0.4, 12.0


class TeamSize:
    """Counts in seconds of steps, without a clock. A trial that fails doubles the time to the next, and one that
    succeeds halves it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.size = threads
        self._waited = self._elapsed = 0.0
        self._hold = _SHORTEST
        self._rested = 0.0
        self._trying = False

    def after(self, waited: float, elapsed: float) -> int:
        """The threads of the next step. The last one lasted `elapsed` seconds, and its threads waited `waited`
        seconds for a core, all together."""
        self._waited += waited
        self._elapsed += elapsed
        if self._elapsed >= (_TRIAL if self._trying else _WINDOW):
            self._decide(self._waited / self._elapsed)
            self._waited = self._elapsed = 0.0
        return self.size

    def _decide(self, lost: float) -> None:
        tried, self._trying = self._trying, False
        if self.size > 1 and lost > CROWDED:
            self.size = max(1, self.size - max(1, round(lost)))
            self._hold = min(_LONGEST, 2 * self._hold) if tried else _SHORTEST
            self._rested = 0.0
            return
        if tried:
            self._hold = max(_SHORTEST, self._hold / 2)
        self._rested = self._rested + self._elapsed if lost <= CALM * self.size else 0.0
        if self.size < self.threads and self._rested >= self._hold:
            self.size += 1
            self._rested, self._trying = 0.0, True


STRIP = 16
"""Positions that attention reads at a time: pages hold a multiple of them."""
TILE = 32
"""Outputs that a product computes at a time: a tile has those of one expert."""
MOST_HEAD_DIM = 512
PARTS = ("products", "places", "attention", "norms", "head")
_ACTIVATIONS = {"silu": 0, "gelu_tanh": 1, "gelu": 2, "relu2": 3, "xielu": 4, "clamped_swiglu": 5}
_QUERY_NORMS = {None: 0, "head": 1, "head_after_rope": 2, "whole": 3}
_SCORINGS = {"softmax": 0, "sigmoid": 1, "softmax_of_chosen": 2, "sparsemixer": 3}
_MATRICES = ("qkv", "attention_out", "gate_up", "down")
_VECTORS = (
    "attention_norm", "attention_norm_bias", "mlp_norm", "mlp_norm_bias", "attention_post_norm", "mlp_post_norm",
    "query_norm", "key_norm", "sinks", "qkv_bias", "attention_out_bias", "gate_up_bias", "down_bias",
)  # fmt: skip


log = logging.getLogger(__name__)


class _Shape(ctypes.Structure):
    """`Shape` of model.h."""

    _fields_ = (
        *((name, c_int) for name in (
            "hidden", "inner", "layers", "heads", "kv_heads", "head_dim", "vocab", "activation",
            "layer_norm", "no_pre_norms", "parallel", "query_norm", "not_gated",
            "experts", "chosen", "expert_inner", "shared_inner", "scoring", "normalized", "groups", "chosen_groups",
        )),
        *((name, c_float) for name in (
            "eps", "attention_scale", "attention_cap", "logit_cap", "residual_factor", "logit_factor",
            "swiglu_factor", "swiglu_limit", "expert_scale", "jitter",
        )),
    )  # fmt: skip


_PARAMETERS = {
    "create": (POINTER(_Shape), c_int, c_int, c_int, c_int, POINTER(c_void_p)),
    "vector": (c_void_p, c_int, c_char_p, c_void_p, c_int),
    "matrix": (c_void_p, c_int, c_char_p, c_int, c_int, c_int, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int),
    "rope": (c_void_p, c_void_p, c_int, c_int),
    "query_growth": (c_void_p, c_void_p, c_int),
    "layer": (c_void_p, c_int, c_int, c_int, c_int),
    "loaded": (c_void_p,),
    "step": (
        c_void_p,
        c_void_p,
        c_int,
        c_void_p,
        c_int,
        c_void_p,
        c_int,
        c_void_p,
        c_int,
        c_void_p,
        c_void_p,
        c_void_p,
    ),
    **ADAPTER_PARAMETERS,
}


class NativeExecutor:
    """Removes the layers from `model`, so that its weights exist once. `model` is bfloat16, on a CPU.

    Results do not depend on the other sequences of a step, nor on the chunks of a prompt: they are equal bit for bit.
    The logits that it gives are overwritten by the next step.
    """

    def __init__(
        self,
        model: Llama,
        num_blocks: int,
        block_size: int,
        *,
        context_length: int,
        threads: int,
        kv_dtype: torch.dtype = torch.bfloat16,
        target: str | None = None,
        adapts: bool = True,
    ) -> None:
        """`adapts`: steps use fewer than `threads` while other programs use the cores.

        Raises NativeUnavailable, or MemoryError.
        """
        if reason := unsupported(model, block_size, kv_dtype):
            raise NativeUnavailable(reason)
        self.config = model.config
        self._library = library(target) if target else _fastest()
        self._model = c_void_p()
        for name, parameters in _PARAMETERS.items():
            function = getattr(self._library, f"headrace_{name}")
            function.argtypes, function.restype = parameters, c_char_p
        self._library.headrace_destroy.argtypes = (c_void_p,)
        self._library.headrace_adapter_destroy.argtypes = (c_void_p,)
        self._library.headrace_use_threads.argtypes = (c_void_p, c_int)
        self._library.headrace_waits.argtypes = (c_void_p, POINTER(c_double), POINTER(c_double))
        self._threads = threads
        self._team = TeamSize(threads) if adapts and threads > 1 else None
        self._call(
            "create",
            byref(_shape(self.config)),
            threads,
            num_blocks,
            block_size,
            kv_dtype == torch.int8,
            byref(self._model),
        )
        self._embedding: Weight = model.embedding
        self._multiplier = float(model.embedding_multiplier)
        self._places = model.places
        self._logits = torch.empty(0)
        self._take(model, context_length)

    def close(self) -> None:
        """Free the weights and the cache. Idempotent."""
        model, self._model = self._model, c_void_p()
        if model:
            self._library.headrace_destroy(model)

    def __del__(self) -> None:
        if hasattr(self, "_model"):
            self.close()

    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        size = len(rows) * self.config.vocab_size
        if size > len(self._logits):
            self._logits = torch.empty(size)
        self._step(chunks, array("i", rows), self._logits, None)
        return self._logits[:size].view(len(rows), self.config.vocab_size)

    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        hidden = torch.empty(sum([len(chunk.token_ids) for chunk in chunks]), self.config.hidden_size)
        self._step(chunks, array("i"), None, hidden)
        return hidden

    def prepared(self, adapter: LowRankAdapter) -> StepAdapter:
        return NativeAdapter(self._library, self._model, adapter)

    def seconds(self) -> dict[str, float]:
        """The seconds of all steps so far for each of PARTS."""
        spent = (c_double * len(PARTS))()
        self._library.headrace_seconds(self._model, spent)
        return dict(zip(PARTS, spent, strict=True))

    @property
    def active_threads(self) -> int:
        """Threads that the next step uses."""
        return self._threads if self._team is None else self._team.size

    def _step(self, chunks: Sequence[Chunk], rows: "array[int]", logits: Tensor | None, hidden: Tensor | None) -> None:
        token_ids, places, tables = array("q"), array("i"), array("i")
        for chunk in chunks:
            places.extend((len(token_ids), len(chunk.token_ids), chunk.start, len(tables)))
            token_ids.extend(chunk.token_ids)
            tables.extend(chunk.block_table)
        embedded = embedding(torch.frombuffer(token_ids, dtype=torch.int64), self._embedding).float()
        if self._multiplier != 1:
            embedded *= self._multiplier
        if self._places is not None:
            positions = [torch.arange(chunk.start, chunk.end) for chunk in chunks]
            embedded += self._places[torch.cat(positions)]
        put_rows(embedded, placed_rows(chunks))
        self._call(
            "step", self._model, embedded.data_ptr(), len(token_ids), _address(places), len(chunks), _address(tables),
            len(tables), _address(rows), len(rows), _data(logits), _data(hidden), adapters_of(chunks),
        )  # fmt: skip
        if self._team is not None:
            self._adapt(self._team)

    def _adapt(self, team: TeamSize) -> None:
        waited, elapsed, before = c_double(), c_double(), team.size
        self._library.headrace_waits(self._model, byref(waited), byref(elapsed))
        if (size := team.after(waited.value, elapsed.value)) != before:
            log.debug("steps use %d of %d threads", size, team.threads)
            self._library.headrace_use_threads(self._model, size)

    def _call(self, name: str, *arguments: object) -> None:
        call(self._library, name, *arguments)

    # ── weights ───────────────────────────────────────────────────────────────────────────────────────

    def _take(self, model: Llama, context_length: int) -> None:
        tables: list[int] = []  # by kind of layer: its table, -1 if nothing is turned
        for turn in model.rotary(context_length):
            tables.append(-1 if turn is None else max(tables, default=-1) + 1)
            if turn is not None:
                angles = torch.stack(turn, dim=1).contiguous()
                self._call("rope", self._model, angles.data_ptr(), angles.shape[0], angles.shape[2])
        if (growth := model.query_growth(torch.arange(context_length))) is not None:
            self._call("query_growth", self._model, growth.data_ptr(), len(growth))
        for name in ("norm", "norm_bias", "head_bias"):
            if (vector := getattr(model, name)) is not None:
                self._vector(-1, name, vector)
        self._matrix(-1, "head", model.head)
        for index in range(self.config.num_layers):
            self._layer(index, model.layers.pop(0), tables)
        self._call("loaded", self._model)

    def _layer(self, index: int, layer: Layer, tables: Sequence[int]) -> None:
        window, sparse = self.config.kinds[layer.kind].window or 0, layer.experts is not None
        self._call("layer", self._model, index, window, tables[layer.kind], sparse)
        for name in _VECTORS:
            if (vector := getattr(layer, name)) is not None:
                self._vector(index, name, vector)
        if layer.activation is not None:
            positive, negative = functional.softplus(layer.activation)
            self._vector(index, "activation", torch.stack([positive, negative + XIELU_BETA]))
        for name in _MATRICES:
            if (weight := getattr(layer, name)) is not None:
                self._matrix(index, name, weight)
        if layer.experts is not None:
            self._experts(index, layer.experts)

    def _experts(self, index: int, experts: Experts) -> None:
        for name in ("router_bias", "selection_bias", "shared_gate"):
            if (vector := getattr(experts, name)) is not None:
                self._vector(index, name, vector.flatten())
        self._matrix(index, "router", experts.router.bfloat16())
        for name in ("gate_up", "down"):
            self._matrix(index, f"expert_{name}", getattr(experts, name), len(experts.router))
            if (bias := getattr(experts, f"{name}_bias")) is not None:
                self._vector(index, f"expert_{name}_bias", bias)

    def _vector(self, layer: int, name: str, vector: Tensor) -> None:
        numbers = vector.float().contiguous()
        self._call("vector", self._model, layer, name.encode(), numbers.data_ptr(), len(numbers))

    def _matrix(self, layer: int, name: str, weight: Weight, parts: int = 1) -> None:
        gated = name.endswith("gate_up") and self.config.gated
        out, into = weight.shape
        if isinstance(weight, GroupQuantized):
            codes, scales = weight.codes.contiguous(), weight.scales.contiguous()
            offsets = None if weight.offsets is None else weight.offsets.contiguous()
            self._call(
                "matrix", self._model, layer, name.encode(), 2 if weight.bits == 4 else 1, out, into,
                codes.data_ptr(), scales.data_ptr(), _data(offsets), weight.group, gated, parts,
            )  # fmt: skip
        else:
            rows = weight.contiguous()
            self._call(
                "matrix", self._model, layer, name.encode(), 0, out, into, rows.data_ptr(), None, None, 0, gated, parts
            )


def unsupported(model: Llama, block_size: int, kv_dtype: torch.dtype = torch.bfloat16) -> str | None:
    """The reason for which the native step cannot run `model`; None if it can."""
    config = model.config
    if model.device.type != "cpu" or model.dtype != torch.bfloat16:
        return f"it computes with bfloat16 on a CPU, not with {model.dtype} on {model.device.type}"
    if (part := config.for_torch_alone) is not None:
        return f"it has no {part}"
    if kv_dtype not in (torch.bfloat16, torch.int8):
        return f"its KV cache holds bfloat16 or int8, not {kv_dtype}"
    if block_size % STRIP:
        return f"its pages hold a multiple of {STRIP} tokens, not {block_size}"
    sizes = [config.hidden_size, config.intermediate_size, config.head_dim]
    if (experts := config.experts) is not None:
        sizes += [experts.intermediate_size, experts.shared_size]
    if odd := [n for n in sizes if n % STRIP]:
        return f"its vectors hold multiples of {STRIP} numbers, not {odd[0]}"
    if experts is not None and config.hidden_size % TILE:
        return f"a model with experts has a multiple of {TILE} hidden numbers, not {config.hidden_size}"
    if config.head_dim > MOST_HEAD_DIM:
        return f"its heads have up to {MOST_HEAD_DIM} dimensions, not {config.head_dim}"
    weights = [model.head, *(weight for layer in model.layers for weight in _matrices(layer))]
    if any(isinstance(weight, GroupQuantized) and weight.group % STRIP for weight in weights):
        return f"its groups of weights are multiples of {STRIP}"
    return None


def _matrices(layer: Layer) -> list[Weight | None]:
    of_experts = [] if layer.experts is None else [layer.experts.gate_up, layer.experts.down]
    return [*(getattr(layer, name) for name in _MATRICES), *of_experts]


def _fastest() -> ctypes.CDLL:
    """The step for the fastest target that the compiler can compile. Raises NativeUnavailable."""
    usable = [name for name in targets() if name not in EMULATED]
    if not usable:
        raise NativeUnavailable("it is made for processors with AVX2, AVX-512 or NEON, and this is none")
    for name in usable[:-1]:
        try:
            return library(name)
        except CompilerFailed as error:
            log.warning("the native step for %s is not available, trying the next target: %s", name, error)
    return library(usable[-1])


def _shape(config: ModelShape) -> _Shape:
    experts, (factor, limit) = config.experts, config.swiglu
    mixture: tuple[float, ...] = (0,) * 8
    if experts is not None:
        mixture = (
            experts.count, experts.chosen, experts.intermediate_size, experts.shared_size, _SCORINGS[experts.scoring],
            experts.normalized, experts.groups, experts.chosen_groups,
        )  # fmt: skip
    return _Shape(
        config.hidden_size, config.intermediate_size, config.num_layers, config.num_heads, config.num_kv_heads,
        config.head_dim, config.vocab_size, _ACTIVATIONS[config.activation],
        config.norm != "rms", not config.pre_norms, config.parallel, _QUERY_NORMS[config.qk_norm], not config.gated,
        *mixture,
        config.rms_norm_eps, config.attention_scale, config.attention_soft_cap or 0.0, config.logits_soft_cap or 0.0,
        config.residual_multiplier, config.logits_multiplier, factor, limit,
        1.0 if experts is None else experts.scale, 0.0 if experts is None else experts.jitter,
    )  # fmt: skip


def _address(numbers: "array[int]") -> int:
    return numbers.buffer_info()[0]


def _data(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
