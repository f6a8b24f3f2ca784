"""Answers of an engine with a draft model are those without, bit for bit, in any company."""

from pathlib import Path
from typing import Any

import pytest
import torch

from runtimes.llm.engine.async_engine import Engine, EngineConfig
from runtimes.llm.engine.speculation import Speculation
from tests.runtimes.llm.lora import random_adapter
from tests.runtimes.llm.native.answers import PARAMS, outputs, shown, timeless
from tests.runtimes.llm.native.models import BLOCK, random_model, shape

LARGE = shape(num_layers=3, layer_kinds=(0, 0, 0))
DRAFTS = {
    "smaller": shape(num_layers=1, layer_kinds=(0,)),
    "equal": LARGE,
    "more rows": shape(vocab_size=160),
    "fewer rows": shape(vocab_size=100),
}
DRAFT = Speculation("draft_model", tokens=5, model="small")


def engine_of(draft: str | None, *, executor: Any = "native", **bounds: Any) -> Engine:
    dtype = torch.bfloat16 if executor == "native" else torch.float32
    model = random_model(LARGE, dtype)
    small = None if draft is None else random_model(DRAFTS[draft], dtype)
    of_token = model.kv_bytes_per_token + (0 if small is None else small.kv_bytes_per_token)
    size = of_token * bounds.pop("cache_tokens", 12_000)
    given: dict[str, Any] = {"kv_cache_bytes": size, "executor": executor, "block_size": BLOCK, "threads": 2} | bounds
    config = EngineConfig(model=Path(), **{"speculation": None if draft is None else DRAFT, **given})
    return timeless(Engine.serving(model, config, small))


@pytest.mark.parametrize("draft", DRAFTS)
def test_answers_are_equal_however_requests_are_scheduled(draft: str) -> None:
    expected = shown(outputs(engine_of(None), PARAMS))
    for bounds in (
        {},
        {"max_num_batched_tokens": 48, "max_num_seqs": 6},
        {"cache_tokens": 400, "max_model_len": 300, "prefix_cache": False},
    ):
        engine = engine_of(draft, **bounds)
        assert shown(outputs(engine, PARAMS)) == expected
        stats = engine.stats()
        assert 0 < stats.accepted_tokens <= stats.proposed_tokens
        assert stats.generated_tokens == sum(map(len, expected))
        assert (stats.preemptions > 0) == ("cache_tokens" in bounds)


def test_adapters_change_the_large_model_only() -> None:
    own = [None, *(random_adapter(LARGE, 4, seed) for seed in range(2))]
    answers = []
    for draft in (None, "equal"):
        engine = engine_of(draft)
        assert engine.prepared is not None
        answers.append(shown(outputs(engine, PARAMS[:4], [one and engine.prepared(one) for one in own])))
    assert answers[0] == answers[1]
    assert 0 < engine.stats().accepted_tokens < engine.stats().proposed_tokens


@pytest.mark.parametrize("draft", [None, "smaller"])
def test_predictions_change_no_answer_and_count_their_tokens(draft: str | None) -> None:
    whole = outputs(engine_of(None), PARAMS)
    expected = shown(whole)
    answers = [[one.token_id for one in answer] for answer in whole]
    predictions = [
        answer if number % 3 else [*answer[:20], 5, 5, *answer[21:]] for number, answer in enumerate(answers)
    ]
    predictions[::5] = [[7] * 30] * len(predictions[::5])
    engine = engine_of(draft, speculation=Speculation("ngram", tokens=6) if draft is None else DRAFT)
    given = outputs(engine, PARAMS, predictions=predictions)
    assert shown(given) == expected
    last = [answer[-1] for answer in given]
    stats = engine.stats()
    assert 0 < sum(one.num_confirmed for one in last) <= stats.accepted_tokens
    assert sum(one.num_confirmed for one in last) <= sum(one.num_predicted for one in last) <= stats.proposed_tokens
    assert max(one.num_confirmed for one in last) > 15
