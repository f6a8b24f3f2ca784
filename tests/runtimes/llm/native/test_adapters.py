"""The native step with adapters: the numbers of torch, and a row has the same ones in any company."""

import gc
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.model.lora import LowRank, LowRankAdapter
from runtimes.llm.native.build import targets
from runtimes.llm.sequence import Chunk, StepAdapter
from tests.runtimes.llm.lora import random_adapter
from tests.runtimes.llm.native.features import MIXTURES, SHAPES, TOLERANCE, WEIGHTS
from tests.runtimes.llm.native.models import chunk, native, reference, shape, tokens

SIZES = (40, 1, 17, 3, 30, 1)
"""Tokens of the chunks of a step; each has eight pages of its own."""
FEATURES = [
    "llama", "biases", "norms of queries and keys", "norms after", "odd widths", "a key head each", "layer norms",
    "relu2 without a gate", "clamped", "windows",
]  # fmt: skip


@pytest.fixture(scope="module", params=targets())
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def step(adapters: list[StepAdapter | None], sizes: tuple[int, ...] = SIZES, first: int = 0) -> list[Chunk]:
    numbered = enumerate(zip(sizes, adapters, strict=True), first)
    return [
        replace(chunk(i, tokens(size, i), range(8 * i, 8 * i + 8)), adapter=adapter) for i, (size, adapter) in numbered
    ]


def assert_near(given: torch.Tensor, expected: torch.Tensor) -> None:
    error = (given - expected).abs().mean() / expected.std()
    assert given.isfinite().all()
    assert error < TOLERANCE, f"{error:.4f} of their spread apart"


@pytest.mark.parametrize("features", FEATURES)
def test_adapters_are_those_of_torch(target: str, features: str) -> None:
    config = shape(**SHAPES[features])
    executor, expected = native(config, target), reference(config)
    own = [random_adapter(config, rank, rank) for rank in (1, 4, 7, 16)]
    chosen = [own[0], None, own[1], own[2], own[3], own[1]]
    given = executor.logits(step([one and executor.prepared(one) for one in chosen]), range(sum(SIZES)))
    assert_near(given, expected.logits(step([one and expected.prepared(one) for one in chosen]), range(sum(SIZES))))


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_every_kind_of_weights_takes_adapters(target: str, weights: tuple[int, int, bool] | None) -> None:
    config = shape(intermediate_size=96)
    executor, expected = native(config, target, weights), reference(config, weights)
    own = random_adapter(config, 8)
    given = executor.logits(step([executor.prepared(own)], (50,)), range(50))
    assert_near(given, expected.logits(step([expected.prepared(own)], (50,)), range(50)))


def test_attention_and_the_shared_expert_of_a_mixture_take_adapters(target: str) -> None:
    config = shape(experts=MIXTURES["shared"], num_layers=3, dense_layers=frozenset({0}), intermediate_size=96)
    executor, expected = native(config, target), reference(config)
    own = random_adapter(config, 4)
    given = executor.logits(step([executor.prepared(own)], (60,)), range(60)).clone()
    near = expected.logits(step([expected.prepared(own)], (60,)), range(60))
    error = (given - near).abs().mean(dim=1) / near.std()  # a token whose experts nearly tie may have others
    assert error.quantile(0.75) < 2 * TOLERANCE


@given(
    work=st.lists(st.tuples(st.integers(1, 45), st.integers(0, 8)), min_size=1, max_size=10),
    ranks=st.lists(st.integers(1, 33), min_size=8, max_size=8),
    threads=st.integers(1, 3),
)
def test_a_row_has_the_same_numbers_in_any_company(work: list[tuple[int, int]], ranks: list[int], threads: int) -> None:
    config = shape(num_layers=1)
    executor = native(config, targets()[0], threads=threads)
    own = [None, *(executor.prepared(random_adapter(config, rank, seed)) for seed, rank in enumerate(ranks))]
    sizes, chosen = tuple(size for size, _ in work), [own[which] for _, which in work]
    together = executor.logits(step(chosen, sizes), range(sum(sizes))).clone()
    parts = together.split(list(sizes))
    for i, (size, adapter) in enumerate(zip(sizes, chosen, strict=True)):
        alone = executor.logits(step([adapter], (size,), first=i), range(size))
        assert torch.equal(parts[i], alone)


def test_an_adapter_of_some_layers_and_matrices(target: str) -> None:
    config = shape()
    executor, expected = native(config, target), reference(config)
    whole = random_adapter(config, 4, only=["qkv", "down"])
    partial = LowRankAdapter([{}, {"qkv": whole.layers[1]["qkv"][1:2]}], b"partial")
    for own in (whole, partial):
        given = executor.logits(step([executor.prepared(own)], (20,)), range(20))
        assert_near(given, expected.logits(step([expected.prepared(own)], (20,)), range(20)))


def test_an_adapter_may_end_before_its_executor_and_after_it(target: str) -> None:
    config = shape()
    executor = native(config, target)
    plain = executor.logits(step([None], (20,)), range(20)).clone()
    own = executor.prepared(random_adapter(config, 4))
    assert not torch.equal(executor.logits(step([own], (20,)), range(20)), plain)
    del own
    gc.collect()
    assert torch.equal(executor.logits(step([None], (20,)), range(20)), plain)
    own = executor.prepared(random_adapter(config, 4))
    executor.close()
    del own
    gc.collect()


@pytest.mark.parametrize(
    "wrong",
    [
        {"qkv": [LowRank(0, torch.zeros(2, 64), torch.zeros(1024, 2))]},
        {"qkv": [LowRank(8, torch.zeros(2, 64), torch.zeros(16, 2))]},
        {"attention_out": [LowRank(0, torch.zeros(2, 192), torch.zeros(24, 2))]},
        {"down": [LowRank(first, torch.zeros(2, 112), torch.zeros(16, 2)) for first in (16, 0)]},
    ],
)
def test_parts_beyond_a_matrix_are_refused(wrong: dict[str, list[LowRank]]) -> None:
    executor = native(shape(), targets()[0])
    with pytest.raises(RuntimeError, match="the adapter is not valid"):
        executor.prepared(LowRankAdapter([wrong, {}], b""))  # type: ignore[list-item]
