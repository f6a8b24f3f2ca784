from typing import Any

import pytest

from runtimes.llm.sequence import SamplingParams, Sequence

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", -1),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", float("nan")),
        ("top_k", -1),
        ("top_k", 2**31),
        ("max_tokens", 10**30),
        ("repetition_penalty", 1.2e-38),
        ("repetition_penalty", 1e30),
        ("seed", 2**63),
        ("seed", -(2**63) - 1),
    ],
)
def test_sampling_params_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    params: dict[str, Any] = {"max_tokens": 1} | {field: value}
    with pytest.raises(ValueError, match=field):
        SamplingParams(**params)


def test_chunks_cover_a_sequence_and_only_the_last_one_samples() -> None:
    sequence = Sequence(7, list(range(10)), SamplingParams(max_tokens=1))
    seen: list[int] = []
    samples = []
    while sequence.num_computed < len(sequence):
        chunk = sequence.chunk(4)
        assert chunk.start == len(seen)
        seen += chunk.token_ids
        samples.append(chunk.samples)
        sequence.num_computed = chunk.end
    assert seen == list(range(10))
    assert samples == [False, False, True]


def test_a_seed_is_used_and_an_absent_seed_is_drawn_once() -> None:
    seeded, negative = (Sequence(0, [1], SamplingParams(max_tokens=1, seed=seed)) for seed in (5, -1))
    assert (seeded.seed, negative.seed) == (5, 2**64 - 1)
    one, two = (Sequence(0, [1], SamplingParams(max_tokens=1)) for _ in range(2))
    assert one.seed != two.seed
    assert one.chunk(1).seed == one.seed
