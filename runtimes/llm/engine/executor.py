"""The interface of executors: tokens and their positions in, logits or hidden states out.

An executor owns the model's weights and its KV cache and nothing else: a `Chunk` names the tokens to compute, and the
pages of the cache for them and those before them. All executors of a model accept the same chunks and return the same
numbers, within the precision of their number format.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from runtimes.llm.memory import KVCacheName, input_bytes_per_token, kv_bytes_per_token, kv_dtype
from runtimes.llm.model.attention import KVCache, Layout
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.lora import LowRankAdapter, adapted_rows
from runtimes.llm.model.recurrent.states import Recurrence, StateCache
from runtimes.llm.model.short_conv import Recent
from runtimes.llm.native.build import NativeUnavailable
from runtimes.llm.native.executor import NativeExecutor
from runtimes.llm.picture_rows import placed_rows
from runtimes.llm.sequence import Chunk, StepAdapter

if TYPE_CHECKING:
    from runtimes.llm.cuda.executor import CudaExecutor

ExecutorName = Literal["auto", "native", "torch"]
log = logging.getLogger(__name__)


class Executor(Protocol):
    """T is the number of tokens in a step: those of the first chunk, of the second, and so on."""

    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        """Compute the chunks, [len(rows), vocab] of the successors of the tokens `rows` of the T, float32."""

    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        """Compute the chunks, the hidden states of their tokens after the last norm: [T, hidden], float32."""

    def prepared(self, adapter: LowRankAdapter) -> StepAdapter:
        """The adapter as chunks of this executor have it. Any thread may call it. Its memory is free as soon as no
        chunk refers to it."""


class TorchExecutor:
    """The model as torch computes it, on any device: the reference for all others. No position is `context_length`
    or above, which is the model's if not given. The cache holds `kv_dtype`, which is the model's too; int8 is codes.
    Of a recurrent model it also has `num_states` slots."""

    def __init__(
        self,
        model: Llama,
        num_blocks: int,
        block_size: int,
        *,
        context_length: int | None = None,
        kv_dtype: torch.dtype | None = None,
        num_states: int = 1,
    ) -> None:
        self.model = model
        self.rotary = model.rotary(context_length or model.config.context_length)
        self.cache = KVCache(
            num_layers=model.config.attention_layers,
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=model.config.num_kv_heads,
            head_dim=model.config.head_dim,
            dtype=kv_dtype or model.dtype,
            device=model.device,
            tensors=model.config.cached_tensors,
            inputs=self._inputs(num_blocks, block_size),
            heads=model.config.cached_heads,
            states=None
            if model.config.recurrent is None
            else StateCache(model.config, num_states, model.dtype, model.device),
        )

    def _inputs(self, num_blocks: int, block_size: int) -> Tensor | None:
        model = self.model
        layers, size = model.config.inputs_of_position
        if not layers:
            return None
        return torch.empty(layers, num_blocks, block_size, size, dtype=model.dtype, device=model.device)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        hidden, places = self._forward(chunks)
        return self.model.logits(hidden[[places[row] for row in rows]]).float()

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        hidden, places = self._forward(chunks)
        return hidden[places].float()

    def prepared(self, adapter: LowRankAdapter) -> StepAdapter:
        return adapter.to(self.model.dtype, self.model.device)

    def _forward(self, chunks: Sequence[Chunk]) -> tuple[Tensor, list[int]]:
        """Hidden states in the layout's order, and where in it each token of the step is."""
        ordered = sorted(chunks, key=lambda chunk: len(chunk.token_ids) > 1)
        device = self.model.device
        token_ids = torch.tensor([token for chunk in ordered for token in chunk.token_ids], device=device)
        positions = torch.tensor([p for chunk in ordered for p in range(chunk.start, chunk.end)], device=device)
        layout = Layout.of(ordered, self.cache.block_size, device, self.model.config.windows)
        self.cache.clear(layout.begun)
        adapted = adapted_rows(ordered, device)
        length = self.model.config.conv_length if self.model.config.conv_layers else 0
        recent = Recent.of(ordered, self.cache.block_size, length, device) if length else None
        recurrence = None if self.cache.states is None else Recurrence.of(ordered, device)
        pictures = placed_rows(ordered)
        hidden = self.model.forward(
            token_ids, positions, self.rotary, self.cache, layout, adapted, recent, recurrence, pictures
        )
        return hidden, _places(chunks, ordered)


def _places(chunks: Sequence[Chunk], ordered: Sequence[Chunk]) -> list[int]:
    firsts, first = {}, 0
    for chunk in ordered:
        firsts[chunk.sequence_id] = first
        first += len(chunk.token_ids)
    return [firsts[chunk.sequence_id] + i for chunk in chunks for i in range(len(chunk.token_ids))]


def make_executor(
    name: ExecutorName,
    model: Llama,
    num_blocks: int,
    block_size: int,
    *,
    context_length: int,
    kv_dtype: torch.dtype,
    max_num_seqs: int = 0,
    num_states: int = 1,
) -> Executor:
    """Create an executor. `auto` is the native step if it compiles and supports the model, whose layers it then owns;
    on a GPU it is Triton and CUDA graphs, for steps of up to `max_num_seqs` sequences.

    Raises ValueError if `native` is required and not available.
    """
    if name == "auto" and (cuda := _cuda(model)) is not None:
        return cuda(
            model, num_blocks, block_size, context_length=context_length, kv_dtype=kv_dtype, max_num_seqs=max_num_seqs
        )
    if name != "torch":
        try:
            return NativeExecutor(
                model,
                num_blocks,
                block_size,
                context_length=context_length,
                threads=torch.get_num_threads(),
                kv_dtype=kv_dtype,
            )
        except NativeUnavailable as error:
            if name == "native":
                raise ValueError(f"the native step is not available: {error}") from None
            log.info("torch replaces the native step: %s", error)
    return TorchExecutor(
        model, num_blocks, block_size, context_length=context_length, kv_dtype=kv_dtype, num_states=num_states
    )


def page_bytes(model: Llama, kv_cache_dtype: KVCacheName, block_size: int) -> int:
    """Memory of one page of the model's cache."""
    of_token = kv_bytes_per_token(model.config, kv_dtype(kv_cache_dtype, model.dtype))
    return (of_token + input_bytes_per_token(model.config, model.dtype)) * block_size


def memory_of_steps(name: ExecutorName, model: Llama, max_tokens: int, max_num_seqs: int, block_size: int) -> int:
    """Bytes of memory for the computation on a GPU, beside weights and cache; 0 on a CPU."""
    if name != "auto" or _cuda(model) is None:
        return 0
    from runtimes.llm.cuda.executor import memory_of_steps

    return memory_of_steps(model, max_tokens, max_num_seqs, block_size)


def _cuda(model: Llama) -> "type[CudaExecutor] | None":
    """For a model on a GPU, if Triton is installed, which is part of PyTorch for GPUs."""
    if model.device.type != "cuda" or model.config.for_torch_alone is not None:
        return None
    try:
        from runtimes.llm.cuda.executor import CudaExecutor
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        log.warning("triton is not installed: plain torch computes, which is several times slower")
        return None
    return CudaExecutor
