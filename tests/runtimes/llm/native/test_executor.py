"""The native step computes what torch does, on every kind of processor that this machine can be."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine.executor import Executor
from runtimes.llm.model.model_config import ExpertShape, LayerKind
from runtimes.llm.native.build import targets
from runtimes.llm.native.executor import PARTS, NativeExecutor
from tests.runtimes.llm.native.features import MIXTURES, SHAPES, TOLERANCE, WEIGHTS
from tests.runtimes.llm.native.models import (
    BLOCK,
    CORES,
    PAGES,
    chunk,
    native,
    pages,
    random_model,
    reference,
    rope,
    shape,
    tokens,
)


@pytest.fixture(scope="module", params=targets())
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def whole(executor: Executor, prompt: list[int]) -> torch.Tensor:
    """Logits after each token."""
    return executor.logits([chunk(0, prompt, pages(len(prompt)))], range(len(prompt))).clone()


def assert_near(given: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    error = (given - expected).abs().mean() / expected.std()
    assert given.isfinite().all()
    assert error < tolerance, f"{error:.4f} of their spread apart"


@pytest.mark.parametrize("features", SHAPES.values(), ids=SHAPES.keys())
def test_every_feature_of_a_model(target: str, features: dict[str, Any]) -> None:
    config = shape(**features)
    prompt = tokens(100)
    expected = whole(reference(config), prompt)
    assert_near(whole(native(config, target), prompt), expected)


@pytest.mark.parametrize("weights", ["bf16", "int8", "int4 with offsets"])
@pytest.mark.parametrize("experts", MIXTURES.values(), ids=MIXTURES.keys())
def test_every_mixture_of_experts(target: str, experts: ExpertShape, weights: str) -> None:
    """Nine of ten tokens agree. A token whose experts nearly tie may have others in fewer bits, which the sparse mixer,
    whose shares jump near a tie, makes common: there a quarter agrees."""
    config = shape(experts=experts, num_layers=3, dense_layers=frozenset({0}), intermediate_size=96, sinks=True)
    prompt = tokens(100)
    given, expected = (
        whole(native(config, target, WEIGHTS[weights]), prompt),
        whole(reference(config, WEIGHTS[weights]), prompt),
    )
    assert given.isfinite().all()
    error = (given - expected).abs().mean(dim=1) / expected.std()
    share, most = (0.25, TOLERANCE) if experts.scoring == "sparsemixer" else (0.9, 1.5 * TOLERANCE)
    assert error.quantile(share) < most, f"{error.quantile(share):.4f} of their spread apart"


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.int8], ids=["bf16", "int8"])
@pytest.mark.parametrize("features", ["llama", "windows", "soft caps", "a key head each"])
def test_a_prompt_of_several_spans_and_tiles(target: str, features: str, kv_dtype: torch.dtype) -> None:
    config = shape(**SHAPES[features])
    prompt = tokens(470)
    given = whole(native(config, target, kv_dtype=kv_dtype), prompt)
    assert_near(given, whole(reference(config), prompt), 2 * TOLERANCE if kv_dtype == torch.int8 else TOLERANCE)


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_every_kind_of_weights(target: str, weights: tuple[int, int, bool] | None) -> None:
    config = shape(intermediate_size=96, tie_word_embeddings=False)
    prompt = tokens(90)
    executor, expected = native(config, target, weights), reference(config, weights)
    assert_near(whole(executor, prompt), whole(expected, prompt))
    assert_near(executor.hidden([chunk(0, prompt, pages(90))]), expected.hidden([chunk(0, prompt, pages(90))]))


def test_a_cache_of_eight_bits(target: str) -> None:
    config = shape()
    prompt = tokens(200)
    expected = whole(reference(config), prompt)
    assert_near(whole(native(config, target, kv_dtype=torch.int8), prompt), expected, 2 * TOLERANCE)


# ── whatever shares a step, and however a prompt is cut ───────────────────────────────────────────────

CONFIG = shape(kinds=(LayerKind(rope(32)), LayerKind(rope(32), window=50)), layer_kinds=(0, 1))
VARIANTS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "int4": {"quantized": (4, 16, True)},
    "small cache": {"kv_dtype": torch.int8},
    "experts": {"experts": MIXTURES["groups"]},
    "experts in int4": {"experts": MIXTURES["shared"], "quantized": (4, 16, True)},
}


@pytest.fixture(scope="module", params=list(VARIANTS.values()), ids=list(VARIANTS))
def executor(request: pytest.FixtureRequest, target: str) -> Iterator[NativeExecutor]:
    how = dict(request.param)
    made = native(replace(CONFIG, experts=how.pop("experts", None)), target, **how)
    yield made
    made.close()


LENGTHS = (150, 1, 33, 64, 97)


@pytest.fixture(scope="module")
def alone(executor: NativeExecutor) -> list[torch.Tensor]:
    """The logits after each token of some prompts, computed one token at a time."""
    answers = []
    for seed, length in enumerate(LENGTHS):
        prompt, table = tokens(length, seed), pages(length, seed)
        parts = [executor.logits([chunk(seed, prompt[i : i + 1], table, i)], [0]).clone() for i in range(length)]
        answers.append(torch.cat(parts))
    return answers


@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_company_and_cuts_change_no_bit(
    executor: NativeExecutor, alone: list[torch.Tensor], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(range(PAGES)))
    tables, done = {}, dict.fromkeys(range(len(LENGTHS)), 0)
    for seed, length in enumerate(LENGTHS):
        tables[seed], shuffled = shuffled[: -(-length // BLOCK)], shuffled[-(-length // BLOCK) :]
    while done:
        chosen = data.draw(st.lists(st.sampled_from(sorted(done)), min_size=1, unique=True))
        chunks = []
        for seed in chosen:
            left = LENGTHS[seed] - done[seed]
            count = data.draw(st.integers(1, left) | st.just(left))
            chunks.append(chunk(seed, tokens(LENGTHS[seed], seed)[done[seed] :][:count], tables[seed], done[seed]))
        rows = range(sum(len(one.token_ids) for one in chunks))
        logits = executor.logits(chunks, rows)
        expected = torch.cat([alone[one.sequence_id][one.start : one.end] for one in chunks])
        assert torch.equal(logits, expected)
        for one in chunks:
            done[one.sequence_id] = one.end
            if one.end == LENGTHS[one.sequence_id]:
                del done[one.sequence_id]


@pytest.fixture(scope="module")
def one_by_one(executor: NativeExecutor) -> torch.Tensor:
    """The logits after each token of a long prompt, computed one token at a time."""
    prompt, table = tokens(420), pages(420)
    return torch.cat(
        [executor.logits([chunk(0, prompt[i : i + 1], table, i)], [0]).clone() for i in range(len(prompt))]
    )


@pytest.mark.parametrize("cuts", [(420,), (7, 129, 256, 28), (64,) * 6 + (36,), (128, 1, 127, 164)])
def test_a_long_prompt_is_equal_however_it_is_cut(
    executor: NativeExecutor, one_by_one: torch.Tensor, cuts: tuple[int, ...]
) -> None:
    """Spans have 128 positions, tiles up to 96 queries: the cuts meet and cross both."""
    prompt, table, neighbour = tokens(420), pages(420), [pages(PAGES * BLOCK)[-1]]
    begin, given = 0, []
    for count in cuts:
        step = [chunk(1, tokens(3), neighbour), chunk(0, prompt[begin : begin + count], table, begin)]
        given.append(executor.logits(step, range(3, 3 + count)).clone())
        begin += count
    assert torch.equal(torch.cat(given), one_by_one)


def test_threads_change_no_bit(target: str) -> None:
    prompt = tokens(70)
    answers = [whole(native(CONFIG, target, threads=threads), prompt) for threads in (1, 2, 3)]
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])


def pinned_threads() -> dict[int, int]:
    """The core of each thread of this process that is pinned to one core, by the thread's number."""
    core_by_thread = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended since it was listed
            cores = os.sched_getaffinity(int(task.name))
            if len(cores) == 1:
                core_by_thread[int(task.name)] = cores.pop()
    return core_by_thread


@pytest.mark.skipif(len(CORES) < 2, reason="needs Linux, and two cores to choose between")
@pytest.mark.parametrize(("threads", "pinned"), [(len(CORES), len(CORES) - 1), (len(CORES) + 1, 0), (1, 0)])
def test_as_many_threads_as_cores_have_one_each(target: str, threads: int, pinned: int) -> None:
    before = pinned_threads()
    executor = native(shape(), target, threads=threads, adapts=False)
    whole(executor, tokens(9))
    workers = {thread: core for thread, core in pinned_threads().items() if thread not in before}
    assert len(workers) == len(set(workers.values())) == pinned
    assert os.sched_getaffinity(0) == CORES  # the caller's thread is its own again
    executor.close()
    assert not workers.keys() & pinned_threads().keys()


@pytest.mark.skipif(len(CORES) < 2, reason="needs Linux, and two cores to choose between")
def test_the_callers_thread_has_the_core_that_is_left_for_as_long_as_a_step(target: str) -> None:
    before = pinned_threads()
    executor = native(shape(), target, threads=len(CORES), adapts=False)
    caller, seen, over = threading.get_native_id(), set[int](), threading.Event()

    def watch() -> None:
        while not (seen or over.is_set()):
            if len(cores := os.sched_getaffinity(caller)) == 1:
                seen.update(cores)

    watching = threading.Thread(target=watch)
    watching.start()
    prompt, end = tokens(200), time.monotonic() + 60
    while not seen and time.monotonic() < end:
        whole(executor, prompt)
    over.set()
    watching.join()
    workers = {core for thread, core in pinned_threads().items() if thread not in before}
    assert seen == CORES - workers
    executor.close()


def test_some_rows_are_those_rows(executor: NativeExecutor) -> None:
    prompt = tokens(40)
    every = whole(executor, prompt)
    assert torch.equal(executor.logits([chunk(0, prompt, pages(40))], [39, 3]), every[[39, 3]])


def test_nan_stays_in_its_own_sequence(target: str) -> None:
    """It reaches neither the neighbours nor the next sequence on the same pages."""
    model = random_model(shape(tie_word_embeddings=False), torch.bfloat16)
    model.embedding[7] = torch.inf
    executor = NativeExecutor(model, PAGES, BLOCK, context_length=512, threads=2, target=target)
    prompt, table = [1, 2, 3], [4]
    expected = executor.logits([chunk(0, prompt, table)], [2]).clone()
    both = executor.logits([chunk(0, [7] * 40, [1, 2, 3]), chunk(1, prompt, table)], [39, 42])
    assert not both[0].isfinite().all()
    assert torch.equal(both[1:], expected)
    assert torch.equal(executor.logits([chunk(2, prompt, [2])], [2]), expected)


def test_it_reports_its_seconds_by_part(target: str) -> None:
    executor = native(CONFIG, target)
    whole(executor, tokens(50))
    spent = executor.seconds()
    assert set(spent) == set(PARTS)
    assert all(seconds > 0 for seconds in spent.values())


def test_it_takes_the_layers(target: str) -> None:
    model = random_model(CONFIG, torch.bfloat16)
    executor = NativeExecutor(model, 4, BLOCK, context_length=64, threads=1, target=target)
    assert not model.layers
    executor.close()
    executor.close()
