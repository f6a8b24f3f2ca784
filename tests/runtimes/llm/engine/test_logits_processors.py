"""Forbidden tokens are not drawn, and a failed row ends alone."""

from typing import Any

import torch

from runtimes.llm.engine.sampler import sample
from runtimes.llm.sequence import SamplingParams
from tests.runtimes.llm.sampler_cases import VOCAB, chunk_of, logits_of


class Only:
    """A constraint that allows a few tokens, once."""

    free = False

    def __init__(self, *allowed: int) -> None:
        self.allowed = set(allowed)

    def mask(self) -> bytes:
        bits = bytearray(VOCAB // 8 + 1)
        for token_id in self.allowed:
            bits[token_id // 8] |= 1 << token_id % 8
        return bytes(bits[: max(self.allowed, default=0) // 8 + 1])

    def advance(self, token_id: int) -> None:
        self.allowed.remove(token_id)


class Fails(Only):
    def mask(self) -> bytes:
        raise RuntimeError("the library is at a loss")


def test_a_constraint_and_a_ban_leave_nothing_else_and_a_failing_one_ends_its_row_alone() -> None:
    greedy, drawn = SamplingParams(max_tokens=9, temperature=0), SamplingParams(max_tokens=9, seed=4)
    early = SamplingParams(max_tokens=9, min_tokens=3, temperature=0)
    logits = logits_of(1, 7, 1.0)
    logits[:, 8499] = 50.0
    cases: list[tuple[SamplingParams, dict[str, Any]]] = [
        (greedy, {"constraint": Only(3, 8002)}),
        (drawn, {"constraint": Only(5)}),
        (greedy, {"constraint": Fails(1)}),
        (early, {"stop_token_ids": frozenset({8499})}),
        (greedy, {"constraint": Only()}),
        (greedy, {}),
        (drawn, {}),
    ]
    chunks = [chunk_of(row, (params, [1], []), **how) for row, (params, how) in enumerate(cases)]
    logits[6, 17] = torch.nan
    sampled = sample(logits.clone(), chunks)
    assert sampled[0].token_id == (3 if logits[0, 3] > logits[0, 8002] else 8002)
    assert sampled[1].token_id == 5
    assert sampled[3].token_id == int(logits[3, :8499].argmax())
    assert sampled[5].token_id == 8499
    errors = {row: one.error.message for row, one in enumerate(sampled) if one.error is not None}
    assert set(errors) == {2, 4, 6}
    assert "at a loss" in errors[2]
    assert "forbidden" in errors[4]
    assert "nan" in errors[6]


def test_a_ban_ends_when_the_answer_is_long_enough() -> None:
    params = SamplingParams(max_tokens=9, min_tokens=2, temperature=0)
    stops = frozenset({7})
    assert [chunk_of(0, (params, [1], [2] * count), stop_token_ids=stops).banned for count in range(4)] == [
        stops, stops, frozenset(), frozenset(),
    ]  # fmt: skip
