import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError
from runtimes.llm.engine.sampler import sample, sample_apart, uniform
from runtimes.llm.sampling_params import GREEDY_BELOW
from runtimes.llm.sequence import Chunk, SamplingParams


def chunk(params: SamplingParams, *, seed: int = 0, position: int = 1) -> Chunk:
    return Chunk(
        sequence_id=0, start=position - 1, token_ids=(1,), block_table=(0,), samples=True, params=params, seed=seed
    )


def params(*, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> SamplingParams:
    return SamplingParams(max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p)


def tokens(logits: torch.Tensor, chunks: list[Chunk]) -> list[int]:
    return [one.token_id for one in sample(logits, chunks)]


def shares(logits: torch.Tensor, how: SamplingParams, draws: int = 4000) -> dict[int, float]:
    """How often each token is drawn at `draws` positions."""
    chunks = [chunk(how, position=position) for position in range(1, draws + 1)]
    counts = Counter(tokens(logits.expand(draws, -1).clone(), chunks))
    return {token: count / draws for token, count in counts.items()}


def assert_close(observed: dict[int, float], expected: list[float], draws: int = 4000) -> None:
    for token, share in enumerate(expected):
        # Five standard deviations of a binomial share; the draws are fixed, so this never flickers.
        assert abs(observed.get(token, 0.0) - share) <= 5 * math.sqrt(share * (1 - share) / draws)
    assert all(expected[token] > 0 for token in observed)


LOGITS = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05]).log()


def test_temperature_zero_takes_the_best() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 3.0, 1.0]])
    assert tokens(logits, [chunk(params(temperature=0))] * 2) == [1, 0]


def test_temperature_one_draws_from_the_distribution() -> None:
    assert_close(shares(LOGITS, params()), [0.5, 0.2, 0.15, 0.1, 0.05])


def test_temperature_sharpens() -> None:
    squared = [share**2 for share in (0.5, 0.2, 0.15, 0.1, 0.05)]
    assert_close(shares(LOGITS, params(temperature=0.5)), [share / sum(squared) for share in squared])


def test_a_tiny_temperature_is_greedy_and_not_nan() -> None:
    assert shares(LOGITS, params(temperature=1e-40), draws=50) == {0: 1.0}


@given(st.floats(min_value=0, max_value=2), st.integers(0, 2**32), st.sampled_from([1e-30, 1.0, 1e30]))
@settings(max_examples=200, deadline=None)
def test_every_temperature_draws_a_token(temperature: float, seed: int, spread: float) -> None:
    """Subnormal numbers among them."""
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(seed)) * spread
    best = int(logits.argmax())
    drawn = sample(logits, [chunk(params(temperature=temperature), seed=seed)])[0]
    assert drawn.error is None
    assert 0 <= drawn.token_id < 300
    assert drawn.token_id == best or temperature >= GREEDY_BELOW


def test_a_row_with_failed_sampling_fails_alone() -> None:
    """A bias at a token that the logits do not have breaks the step of all rows."""
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    sound = SamplingParams(max_tokens=1, temperature=1.0, repetition_penalty=1.5, logit_bias={3: 2.0})
    broken = SamplingParams(max_tokens=1, logit_bias={2**31: 1.0})
    chunks = [chunk(how, seed=row) for row, how in enumerate([sound, broken, sound, SamplingParams(max_tokens=1)])]
    alone = [sample(logits[row : row + 1].clone(), [chunks[row]])[0] for row in (0, 2, 3)]
    apart = sample_apart(logits.clone(), chunks, logits.clone)
    assert [apart[row] for row in (0, 2, 3)] == alone
    assert apart[1].token_id == -1
    assert isinstance(apart[1].error, BackendError)


def test_memory_that_runs_out_while_sampling_is_not_a_rows_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def process(*_: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr("runtimes.llm.engine.sampler.process", process)
    logits = torch.zeros(1, 5)
    with pytest.raises(RuntimeError, match="out of memory"):
        sample_apart(logits, [chunk(params())], logits.clone)


def test_top_k_selects_the_k_likeliest() -> None:
    assert_close(shares(LOGITS, params(top_k=2)), [5 / 7, 2 / 7, 0, 0, 0])
    assert_close(shares(LOGITS, params(top_k=99)), [0.5, 0.2, 0.15, 0.1, 0.05])


def test_top_p_selects_the_smallest_set_that_reaches_it() -> None:
    assert_close(shares(LOGITS, params(top_p=0.6)), [5 / 7, 2 / 7, 0, 0, 0])
    assert_close(shares(LOGITS, params(top_p=0.3)), [1, 0, 0, 0, 0])


def test_top_p_counts_within_top_k() -> None:
    # The first two of the three tokens after top_k have 0.82 of the mass.
    assert_close(shares(LOGITS, params(top_k=3, top_p=0.8)), [5 / 7, 2 / 7, 0, 0, 0])


def test_a_flat_distribution_over_a_large_vocabulary_is_cut_exactly() -> None:
    """Its top-p set is far larger than the candidates that are looked at first."""
    logits = torch.linspace(0, -1, 5000)
    likely = logits.softmax(-1).cumsum(-1)
    size = int((likely < 0.9).sum()) + 1
    drawn = shares(logits, params(top_p=0.9), draws=1000)
    assert 0.95 * size < max(drawn) < size


def test_uniform_is_uniform_and_pinned() -> None:
    numbers = [uniform(7, position) for position in range(4000)]
    assert all(0 <= number < 1 for number in numbers)
    tenths = Counter(int(10 * number) for number in numbers)
    assert all(abs(count - 400) < 5 * math.sqrt(360) for count in tenths.values())
    # The same on every machine and in every release: a seed is a promise.
    assert uniform(7, 3) == uniform(7, 3) != uniform(3, 7)
    assert uniform(42, 10) == 0.07968973371497967


a_chunk = st.builds(
    chunk,
    st.builds(
        params,
        temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        top_k=st.sampled_from([0, 1, 3, 40]),
        top_p=st.sampled_from([0.1, 0.7, 0.95, 1.0]),
    ),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(1, 9000),
)


@settings(deadline=None, max_examples=60)
@given(chunks=st.lists(a_chunk, min_size=1, max_size=12), seed=st.integers(0, 2**31))
def test_a_draw_does_not_depend_on_the_rest_of_the_batch(chunks: list[Chunk], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Rounded to bfloat16, so that equal logits are frequent, as in practice.
    logits = torch.randn(len(chunks), 3000, generator=generator).mul(2).bfloat16()
    together = tokens(logits.float(), chunks)
    assert together == [tokens(logits[row : row + 1].float(), [one])[0] for row, one in enumerate(chunks)]
