"""Small random models, the same ones in float32 for torch and in bfloat16 for the native step."""

import hashlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.layers import WHOLE
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.matrix import GroupQuantized, Weight
from runtimes.llm.model.model_config import LayerKind, ModelShape, Rope
from runtimes.llm.native.executor import NativeExecutor
from runtimes.llm.sampling_params import SamplingParams
from runtimes.llm.sequence import Chunk

CONTEXT = 512
BLOCK = 16
PAGES = 96
VOCABULARY = 131  # no multiple of anything
CORES = os.sched_getaffinity(0) if sys.platform == "linux" else set()


def rope(dims: int, theta: float = 10000.0) -> Rope:
    return Rope(tuple(theta ** (-2 * i / dims) for i in range(dims // 2)))


def shape(**changes: Any) -> ModelShape:
    """Two layers, six heads on two key heads."""
    layers = changes.get("num_layers", 2)
    described: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_layers": layers,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 32,
        "context_length": CONTEXT,
        "rms_norm_eps": 1e-5,
        "kinds": (LayerKind(rope(32)),),
        "layer_kinds": (0,) * layers,
        "attention_scale": 32**-0.5,
        "tie_word_embeddings": True,
        "eos_token_ids": frozenset({130}),
    }
    return ModelShape(**(described | changes))


def random_model(config: ModelShape, dtype: torch.dtype, quantized: tuple[int, int, bool] | None = None) -> Llama:
    """The same weights for the same shape, all of them numbers of bfloat16, or in groups: (bits, group, offsets)."""

    def tensor(name: str, size: tuple[int, ...]) -> Weight:
        random = torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
        if len(size) == 1:
            return 1 + 0.3 * torch.randn(size, generator=random)
        if quantized is not None and not name.startswith("model.embed") and not name.endswith(WHOLE):
            return _groups(size, *quantized, random, dtype)
        numbers = (torch.randn(size, generator=random) * (3 / size[1]) ** 0.5).bfloat16()
        return numbers.float() if name.endswith(WHOLE) else numbers.to(dtype)

    return Llama(config, tensor)


def _groups(
    size: tuple[int, ...], bits: Any, group: int, offsets: bool, random: torch.Generator, dtype: torch.dtype
) -> GroupQuantized:
    most = 2 ** (bits - 1)
    parts = (size[0], size[1] // group)
    return GroupQuantized(
        torch.randint(-most, most, size, dtype=torch.int8, generator=random),
        (torch.rand(parts, generator=random) * 3 / most / size[1] ** 0.5).half(),
        (torch.randn(parts, generator=random) / size[1] ** 0.5).half() if offsets else None,
        bits,
        group,
        dtype,
    )


def chunk(identity: int, tokens: Sequence[int], pages: Sequence[int], start: int = 0) -> Chunk:
    return Chunk(identity, start, tuple(tokens), tuple(pages), True, SamplingParams(max_tokens=1), 0)


def reference(config: ModelShape, quantized: tuple[int, int, bool] | None = None) -> TorchExecutor:
    return TorchExecutor(random_model(config, torch.float32, quantized), PAGES, BLOCK, context_length=CONTEXT)


def native(
    config: ModelShape,
    target: str,
    quantized: tuple[int, int, bool] | None = None,
    *,
    threads: int = 2,
    kv_dtype: torch.dtype = torch.bfloat16,
    adapts: bool = True,
) -> NativeExecutor:
    model = random_model(config, torch.bfloat16, quantized)
    return NativeExecutor(
        model, PAGES, BLOCK, context_length=CONTEXT, threads=threads, kv_dtype=kv_dtype, target=target, adapts=adapts
    )


def tokens(count: int, seed: int = 0) -> list[int]:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (count,), generator=random).tolist()  # type: ignore[no-any-return]


def pages(count: int, seed: int = 0) -> list[int]:
    """The numbers of `count` pages, in random order."""
    shuffled = torch.randperm(PAGES, generator=torch.Generator().manual_seed(seed)).tolist()
    return shuffled[: -(-count // BLOCK)]  # type: ignore[no-any-return]
