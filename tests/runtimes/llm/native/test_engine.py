"""SmolLM2 by the native step: whatever requests share, and however they are scheduled, the answers are the same."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from runtimes.llm.engine.async_engine import Engine, EngineConfig
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.llama import Llama
from runtimes.llm.native.executor import NativeExecutor
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.native.models import chunk
from tests.support.llm_engines import answers

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def model(bundled_model: Path) -> Llama:
    return load_model(bundled_model, dtype="bfloat16", device="cpu")


def copy_of(model: Llama) -> Llama:
    """The same weights: the native step takes a model's layers away."""
    other = copy.copy(model)
    other.layers = list(model.layers)
    return other


def make_engine(model: Llama, *, cache_tokens: int = 8192, **bounds: Any) -> Engine:
    size = model.kv_bytes_per_token * cache_tokens
    return Engine.serving(copy_of(model), EngineConfig(model=Path(), kv_cache_bytes=size, executor="native", **bounds))


@pytest.fixture(scope="module")
def alone(model: Llama, prompts: list[list[int]]) -> list[list[int]]:
    engine = make_engine(model, prefix_cache=False)
    return [answers(engine, [prompt])[0] for prompt in prompts]


def test_one_batch_chunks_preemptions_and_the_prefix_cache_change_nothing(
    model: Llama, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    assert answers(make_engine(model, max_num_batched_tokens=4096), prompts) == alone
    engine = make_engine(model, max_num_batched_tokens=48, max_num_seqs=8)
    assert answers(engine, prompts) == alone
    assert answers(engine, prompts) == alone
    assert engine.stats().cached_prompt_tokens > 0
    crowded = make_engine(model, cache_tokens=384, max_num_batched_tokens=256)
    assert answers(crowded, prompts) == alone
    assert crowded.stats().preemptions > 0


def test_a_seed_gives_the_same_answer_in_any_company(model: Llama, prompts: list[list[int]]) -> None:
    how: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "seed": 1234}
    some = [prompt for prompt in prompts[::-1] if 16 <= len(prompt) <= 48]  # one fits in the small cache, two do not
    one_by_one = [answers(make_engine(model), [prompt], **how)[0] for prompt in some]
    small = make_engine(model, cache_tokens=80)
    assert answers(small, some, **how) == one_by_one
    assert small.stats().preemptions > 0


def test_it_agrees_with_torch(bundled_model: Path, model: Llama, prompts: list[list[int]]) -> None:
    """More often than torch in bfloat16 does with torch in float32: nine tenths of the tokens at least."""
    exact = TorchExecutor(load_model(bundled_model, dtype="float32", device="cpu"), 32, 16)
    fast = NativeExecutor(copy_of(model), 32, 16, context_length=512, threads=2)
    step = [chunk(0, prompts[-1], range(32))]
    rows = range(len(prompts[-1]))
    expected, given = exact.logits(step, rows), fast.logits(step, rows)
    assert (expected.argmax(-1) == given.argmax(-1)).float().mean() > 0.9
    assert torch.nn.functional.cosine_similarity(expected, given).min() > 0.99
