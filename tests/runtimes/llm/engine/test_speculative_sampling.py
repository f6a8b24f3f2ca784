"""Rejection sampling by its own statistics, with fixed seeds: accepted proposals, and what replaces others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from runtimes.llm.engine.draft_model import DraftModel
from runtimes.llm.engine.drafts import Acceptance, DraftState, PlannedDraft
from runtimes.llm.engine.model_runner import Logits, ModelRunner
from runtimes.llm.sequence import Chunk, Sampled, SamplingParams, StepBatch
from runtimes.llm.sequence import Sequence as Answer

FIRST = (0.4, 0.3, 0.2, 0.07, 0.03)
SECOND = {0: (0.1, 0.6, 0.1, 0.1, 0.1), 1: (0.2, 0.2, 0.2, 0.2, 0.2), 2: (0.05, 0.05, 0.8, 0.05, 0.05)}
DRAWS = 4000
# The 0.999 quantiles of the chi-square distribution by degrees of freedom (Abramowitz and Stegun, table 26.8).
LIMITS = {1: 10.83, 3: 16.27, 4: 18.47}


class Chain:
    """A model whose next token depends on the last one; a text begins with token 4."""

    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        last = [token for chunk in chunks for token in chunk.token_ids]
        return torch.tensor([FIRST if last[row] == 4 else SECOND.get(last[row], FIRST) for row in rows]).log()

    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        raise NotImplementedError


def drawn(proposed: list[int], how: SamplingParams) -> list[Sampled]:
    """The results of as many sequences, each with a seed of its own."""
    chunks = [Answer(seed, [4], replace(how, seed=seed)).speculation(proposed) for seed in range(DRAWS)]
    sampled = ModelRunner(Chain()).run(StepBatch.of(chunks, []))
    return [sampled[seed] for seed in range(DRAWS)]


def chi_square(counts: Counter[int], shares: dict[int, float]) -> float:
    total = sum(counts.values())
    assert counts.keys() <= {token for token, share in shares.items() if share}
    return sum((counts[token] - total * share) ** 2 / (total * share) for token, share in shares.items() if share)


PLAIN = SamplingParams(max_tokens=9)


@pytest.mark.parametrize("proposed", [0, 1, 2, 3])
def test_a_proposal_is_accepted_with_its_probability_and_else_the_rest_is_drawn_from(proposed: int) -> None:
    results = drawn([proposed, 0], PLAIN)
    first = Counter((*one.before, one)[0].token_id for one in results)
    assert chi_square(first, dict(enumerate(FIRST))) < LIMITS[4]
    accepted = Counter(int(bool(one.before)) for one in results)
    assert chi_square(accepted, {1: FIRST[proposed], 0: 1 - FIRST[proposed]}) < LIMITS[1]
    refused = Counter(one.token_id for one in results if not one.before)
    left = {token: share / (1 - FIRST[proposed]) for token, share in enumerate(FIRST) if token != proposed}
    assert chi_square(refused, left) < LIMITS[3]


@pytest.mark.parametrize("proposed", [0, 1, 2])
def test_the_token_after_an_accepted_one_has_its_own_distribution(proposed: int) -> None:
    after = [one for one in drawn([proposed, 1], PLAIN) if one.before]
    second = Counter((*one.before, one)[1].token_id for one in after)
    assert chi_square(second, dict(enumerate(SECOND[proposed]))) < LIMITS[4]
    accepted = Counter(int(len(one.before) == 2) for one in after)
    share = SECOND[proposed][1]
    assert chi_square(accepted, {1: share, 0: 1 - share}) < LIMITS[1]


def test_a_proposal_that_top_k_excludes_is_never_accepted() -> None:
    results = drawn([2, 0], SamplingParams(max_tokens=9, top_k=2))
    assert not any(one.before for one in results)
    shares = {0: 4 / 7, 1: 3 / 7}
    assert chi_square(Counter(one.token_id for one in results), shares) < LIMITS[1]


def test_a_greedy_answer_accepts_the_best_only() -> None:
    greedy = SamplingParams(max_tokens=9, temperature=0)
    assert {(*[b.token_id for b in one.before], one.token_id) for one in drawn([0, 1, 3], greedy)} == {(0, 1, 0)}
    assert {(*[b.token_id for b in one.before], one.token_id) for one in drawn([1, 1], greedy)} == {(0,)}


def test_the_seed_of_an_answer_draws_as_without_proposals() -> None:
    how = [SamplingParams(max_tokens=9, seed=seed) for seed in range(200)]
    alone = ModelRunner(Chain()).run(StepBatch.of([Answer(i, [4], one).chunk(1) for i, one in enumerate(how)], []))
    together = drawn([0, 1], PLAIN)[:200]
    assert [alone[i].token_id for i in range(200)] == [(*one.before, one)[0].token_id for one in together]


def test_a_failed_row_ends_the_answer_after_the_accepted_tokens() -> None:
    class Broken(Chain):
        def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
            logits = super().logits(chunks, rows)
            logits[1:] = torch.nan
            return logits

    greedy = SamplingParams(max_tokens=9, temperature=0)
    (one,) = ModelRunner(Broken()).run(StepBatch.of([Answer(0, [4], greedy).speculation([0, 1])], [])).values()
    assert one.error is not None
    assert [before.token_id for before in one.before] == [0]
    (other,) = ModelRunner(Broken()).run(StepBatch.of([Answer(0, [4], greedy).speculation([1, 1])], [])).values()
    assert (other.token_id, other.error, other.before) == (0, None, ())


# ── a draft model ─────────────────────────────────────────────────────────────────────────────────────

DRAFTED_FIRST = (0.1, 0.5, 0.3, 0.05, 0.05)


class OtherChain(Chain):
    """A draft that finds other tokens likely."""

    first = DRAFTED_FIRST

    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        last = [token for chunk in chunks for token in chunk.token_ids]
        return torch.tensor([self.first if last[row] == 4 else FIRST for row in rows]).log()


def drafted(draft: Logits, how: SamplingParams, count: int = 2) -> list[list[int]]:
    """The tokens of one step of as many sequences, of which a draft proposes `count`, and the accepted ones of each."""
    answers = [Answer(seed, [4], replace(how, seed=seed)) for seed in range(DRAWS)]
    drafts = [PlannedDraft(one, one.chunk(1), DraftState(Acceptance()), start=0, end=1, count=count) for one in answers]
    batch = StepBatch.of([draft.newest for draft in drafts], [])
    proposing = DraftModel(draft, vocab_size=5, own_size=5).run(batch, drafts)
    assert proposing.num_proposed == count * DRAWS
    sampled = ModelRunner(Chain()).run(proposing)
    return [[one.token_id for one in (*sampled[seed].before, sampled[seed])] for seed in range(DRAWS)]


def test_a_drafts_proposals_leave_the_distribution_as_it_is() -> None:
    answers = drafted(OtherChain(), PLAIN)
    assert chi_square(Counter(one[0] for one in answers), dict(enumerate(FIRST))) < LIMITS[4]
    for first, shares in SECOND.items():
        # Whether a second token is there depends on the first draw alone, not on the second.
        second = Counter(one[1] for one in answers if one[0] == first and len(one) > 1)
        assert chi_square(second, dict(enumerate(shares))) < LIMITS[4]


def test_two_draws_with_one_number_agree_where_the_distributions_overlap() -> None:
    ends, drafted_ends = (list(accumulate(shares, initial=0.0)) for shares in (FIRST, DRAFTED_FIRST))
    share = sum(
        max(0.0, min(ends[i + 1], drafted_ends[i + 1]) - max(ends[i], drafted_ends[i])) for i in range(len(FIRST))
    )
    counts = Counter(int(len(one) > 1) for one in drafted(OtherChain(), PLAIN))
    assert chi_square(counts, {1: share, 0: 1 - share}) < LIMITS[1]


@pytest.mark.parametrize("how", [PLAIN, replace(PLAIN, top_k=2), replace(PLAIN, top_p=0.8, temperature=0.7)])
def test_an_equal_draft_is_always_right_and_the_seed_draws_as_without(how: SamplingParams) -> None:
    answers = drafted(Chain(), how)
    assert {len(one) for one in answers} == {3}
    alone = ModelRunner(Chain()).run(
        StepBatch.of([Answer(seed, [4], replace(how, seed=seed)).chunk(1) for seed in range(DRAWS)], [])
    )
    assert [one[0] for one in answers] == [alone[seed].token_id for seed in range(DRAWS)]


def test_a_draft_that_computes_no_numbers_proposes_nothing() -> None:
    class Broken(Chain):
        def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
            return torch.full((len(rows), 5), torch.nan)

    answer = Answer(0, [4], SamplingParams(max_tokens=9, temperature=0))
    draft = PlannedDraft(answer, answer.chunk(1), DraftState(Acceptance()), start=0, end=1, count=3)
    batch = DraftModel(Broken(), vocab_size=5, own_size=5).run(StepBatch.of([draft.newest], []), [draft])
    assert batch.num_proposed == 0
    assert ModelRunner(Chain()).run(batch)[0].token_id == 0
