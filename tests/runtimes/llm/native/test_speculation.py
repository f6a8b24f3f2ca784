"""Answers of the native step with speculation are those without, bit for bit, in any company."""

from pathlib import Path
from typing import Any

import pytest
import torch

from runtimes.llm.engine.async_engine import Engine, EngineConfig
from runtimes.llm.engine.speculation import Speculation
from runtimes.llm.model.model_config import LayerKind
from tests.runtimes.llm.lora import random_adapter
from tests.runtimes.llm.native.answers import GREEDY, PARAMS, outputs, shown, timeless
from tests.runtimes.llm.native.models import BLOCK, random_model, rope, shape

SHAPES = {
    "dense": (shape(), None, "auto"),
    "windows": (shape(kinds=(LayerKind(rope(32), window=24), LayerKind(rope(32))), layer_kinds=(0, 1)), None, "auto"),
    "int4 and small pages": (shape(), (4, 16, True), "int8"),
}


def engine_of(name: str, tokens: int | None, **bounds: Any) -> Engine:
    config, quantized, cache = SHAPES[name]
    model = random_model(config, torch.bfloat16, quantized)
    size = model.kv_bytes_per_token * bounds.pop("cache_tokens", 12_000)
    speculation = None if tokens is None else Speculation("ngram", tokens=tokens)
    given: dict[str, Any] = {"kv_cache_bytes": size, "executor": "native", "block_size": BLOCK, "threads": 2} | bounds
    engine = Engine.serving(model, EngineConfig(model=Path(), kv_cache_dtype=cache, speculation=speculation, **given))  # type: ignore[arg-type]
    return timeless(engine)


@pytest.mark.parametrize("name", SHAPES)
def test_answers_are_equal_however_requests_are_scheduled(name: str) -> None:
    expected = shown(outputs(engine_of(name, None), PARAMS))
    for bounds in (
        {},
        {"max_num_batched_tokens": 48, "max_num_seqs": 6},
        {"cache_tokens": 400, "max_model_len": 300, "prefix_cache": False},
    ):
        engine = engine_of(name, 8, **bounds)
        assert shown(outputs(engine, PARAMS)) == expected
        stats = engine.stats()
        assert 0 < stats.accepted_tokens < stats.proposed_tokens
        assert stats.generated_tokens == sum(map(len, expected))
        assert (stats.preemptions > 0) == ("cache_tokens" in bounds)
    plain, fast = engine_of(name, None), engine_of(name, 8)
    assert shown(outputs(plain, [GREEDY])) == shown(outputs(fast, [GREEDY]))
    assert fast.stats().steps < plain.stats().steps


def test_adapters_go_with_their_answers_through_proposals_and_preemptions() -> None:
    own = [None, *(random_adapter(SHAPES["dense"][0], 4, seed) for seed in range(2))]

    def given(tokens: int | None, **bounds: Any) -> tuple[list[list[tuple[Any, ...]]], Engine]:
        engine = engine_of("dense", tokens, **bounds)
        assert engine.prepared is not None
        return shown(outputs(engine, PARAMS[:4], [one and engine.prepared(one) for one in own])), engine

    expected, _ = given(None, prefix_cache=False)
    without = shown(outputs(engine_of("dense", None), PARAMS[:4]))
    assert [expected[i] == without[i] for i in range(3)] == [True, False, False]
    answers, engine = given(8, cache_tokens=400, max_model_len=300)
    assert answers == expected
    stats = engine.stats()
    assert 0 < stats.accepted_tokens < stats.proposed_tokens
    assert stats.preemptions > 0


def test_torch_generates_the_same_tokens() -> None:
    given = []
    for speculation in (None, Speculation("ngram", tokens=8)):
        model = random_model(shape(), torch.float32)
        size = model.kv_bytes_per_token * 12_000
        config = EngineConfig(model=Path(), kv_cache_bytes=size, executor="torch", speculation=speculation)
        engine = timeless(Engine.serving(model, config))
        given.append([[one.token_id for one in answer] for answer in outputs(engine, [GREEDY])])
    assert given[0] == given[1]
    assert engine.stats().accepted_tokens > 0


def test_pages_of_refused_tokens_are_computed_anew_for_the_next_request() -> None:
    engine = engine_of("dense", 8)
    first = shown(outputs(engine, PARAMS[:4]))
    assert shown(outputs(engine, PARAMS[:4])) == first
    assert engine.stats().cached_prompt_tokens > 0
    assert engine.stats().proposed_tokens > engine.stats().accepted_tokens
