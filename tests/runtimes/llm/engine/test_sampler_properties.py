"""The sampler draws by its definition, with any parameters, in any batch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine.sampler import sample
from runtimes.llm.sequence import Sampled, SamplingParams
from tests.runtimes.llm.sampler_cases import VOCAB, chunk_of, logits_of
from tests.runtimes.llm.sampling_reference import may_be_drawn, processed, shares

# The error of float32.
SLACK = 1e-3
TOKENS = st.integers(0, VOCAB - 1)

some_params = st.builds(
    SamplingParams,
    max_tokens=st.just(99),
    temperature=st.sampled_from([0.0, 0.05, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 63, 64, 65, 5000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    presence_penalty=st.sampled_from([0.0, 1.5, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.75, -1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    logit_bias=st.dictionaries(TOKENS, st.sampled_from([-100.0, -2.5, 3.0, 100.0]), max_size=4),
    logprobs=st.sampled_from([None, 0, 3]),
    seed=st.integers(-(2**63), 2**63 - 1),
)
an_asker = st.tuples(some_params, st.lists(TOKENS, min_size=1, max_size=8), st.lists(st.integers(0, 20), max_size=12))


@settings(deadline=None, max_examples=25)
@given(
    askers=st.lists(an_asker, min_size=1, max_size=6),
    seed=st.integers(0, 2**31),
    spread=st.sampled_from([0.3, 2.0, 6.0]),
)
def test_drawn_tokens_are_allowed_and_independent_of_the_batch(
    askers: list[tuple[SamplingParams, list[int], list[int]]], seed: int, spread: float
) -> None:
    logits = logits_of(seed, len(askers), spread)
    chunks = [chunk_of(identity, asker) for identity, asker in enumerate(askers)]
    together = sample(logits.clone(), chunks)
    for row, (sampled, asker) in enumerate(zip(together, askers, strict=True)):
        assert sample(logits[row : row + 1].clone(), chunks[row : row + 1]) == [sampled]
        assert_right(sampled, logits[row], *asker)


def assert_right(
    sampled: Sampled, logits: torch.Tensor, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]
) -> None:
    assert sampled.error is None
    _, allowed = may_be_drawn(processed(logits.double().numpy(), params, prompt, generated), params, SLACK)
    assert sampled.token_id in allowed
    if params.logprobs is None:
        assert sampled.logprobs is None
        return
    assert sampled.logprobs is not None
    plain = logits.double().log_softmax(-1)
    assert abs(sampled.logprobs.logprob - float(plain[sampled.token_id])) < 1e-4
    best = plain.topk(max(params.logprobs, 1)).values.tolist()[: params.logprobs]
    assert [logprob for _, logprob in sampled.logprobs.top] == pytest.approx(best, abs=1e-4)


@settings(deadline=None, max_examples=20)
@given(params=some_params, seed=st.integers(0, 2**31), spread=st.sampled_from([0.5, 3.0, 8.0]))
def test_many_draws_cover_all_allowed_tokens(params: SamplingParams, seed: int, spread: float) -> None:
    """Each half of them, the likelier and the other, is drawn at its expected rate."""
    draws = 200
    logits = logits_of(seed, 1, spread)
    scores = processed(logits[0].double().numpy(), params, [0], [])
    must, may = may_be_drawn(scores, params, SLACK)
    chunk = chunk_of(0, (params, [0], []))
    places = [replace(chunk, start=place) for place in range(draws)]
    token_ids = [one.token_id for one in sample(logits.expand(draws, -1).clone(), places)]
    assert set(token_ids) <= may
    if must != may or params.temperature == 0:  # rounding may decide: the shares are not known
        return
    weights = shares(scores, params)
    ranked = sorted(must, key=lambda token: -weights[token])
    likelier = ranked[: (len(ranked) + 1) // 2]
    share = float(weights[likelier].sum() / weights[ranked].sum())
    drawn = sum(token in set(likelier) for token in token_ids) / draws
    assert abs(drawn - share) <= 6 * (share * (1 - share) / draws) ** 0.5 + 1e-3


def test_underflow_does_not_admit_unlikely_tokens() -> None:
    """At a low temperature nearly all probabilities are 0 and equal; `top_p` and `min_p` still apply."""
    logits = torch.full((1, VOCAB), -60.0)
    logits[0, 3], logits[0, 9] = 1.0, 0.9
    limits: list[dict[str, Any]] = [{"top_p": 0.5}, {"min_p": 0.5, "top_p": 0.999}]
    for limit in limits:  # the second token has 0.37 of the first one's probability
        for top_k in (0, 5, 63, 64, 65, 5000):
            params = SamplingParams(max_tokens=9, temperature=0.1, top_k=top_k, **limit)
            chunks = [replace(chunk_of(0, (params, [0], [])), start=place) for place in range(100)]
            token_ids = {one.token_id for one in sample(logits.expand(100, -1).clone(), chunks)}
            assert token_ids == {3}, (limit, top_k)
