"""The native library refuses sizes and places outside of its memory, even if Python does not."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from runtimes.llm.model.model_config import LayerKind, ModelShape
from runtimes.llm.native.build import NativeUnavailable, targets
from runtimes.llm.native.executor import NativeExecutor
from tests.runtimes.llm.native.models import BLOCK, CONTEXT, PAGES, chunk, native, random_model, rope, shape


def lying(**changes: Any) -> ModelShape:
    """A configuration that Python would refuse."""
    config = replace(shape())
    for name, value in changes.items():
        object.__setattr__(config, name, value)
    return config


@pytest.mark.parametrize(
    "changes",
    [
        {"kinds": (LayerKind(rope(34)),)},
        {"kinds": (LayerKind(rope(64)),)},
        {"kinds": (LayerKind(rope(5000)),)},
        {"kinds": (LayerKind(rope(32), window=-5),)},
        {"num_heads": 7},
        {"num_heads": 12},
        {"num_kv_heads": 0},
        {"num_kv_heads": 3},
        {"head_dim": 1 << 20},
        {"head_dim": 16},
        {"hidden_size": 128},
        {"hidden_size": -64},
        {"intermediate_size": 224},
        {"vocab_size": 4096},
        {"num_layers": 1 << 30},
    ],
    ids=str,
)
def test_a_model_of_other_sizes_than_its_weights_is_refused(changes: dict[str, Any]) -> None:
    model = random_model(shape(), torch.bfloat16)
    model.config = lying(**changes)
    with pytest.raises((NativeUnavailable, RuntimeError, IndexError)):
        NativeExecutor(model, PAGES, BLOCK, context_length=CONTEXT, threads=1)


@pytest.mark.parametrize(
    ("tokens", "pages", "start", "rows"),
    [
        ([1, 2], [PAGES], 0, [0]),
        ([1, 2], [-1], 0, [0]),
        ([1, 2], [], 0, [0]),
        ([1] * (BLOCK + 1), [0], 0, [0]),
        ([1, 2], [0], -1, [0]),
        ([1, 2], list(range(PAGES)), CONTEXT - 1, [0]),
        ([1, 2], [0], 0, [2]),
        ([1, 2], [0], 0, [-1]),
    ],
)
def test_a_step_outside_of_its_memory_is_refused(
    tokens: list[int], pages: list[int], start: int, rows: list[int]
) -> None:
    executor = native(shape(), targets()[0], threads=1)
    with pytest.raises(RuntimeError, match="the step is not valid"):
        executor.logits([chunk(0, tokens, pages, start)], rows)
    assert executor.logits([chunk(0, [1, 2], [0])], [1]).isfinite().all()
