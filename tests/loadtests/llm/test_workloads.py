"""The prompts of the LLM benchmark, and its figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.llm.client import Load
from loadtests.llm.events import Answer
from loadtests.llm.figures import Cost, figures, percentile
from loadtests.llm.headrace import MODEL_LENGTH
from loadtests.llm.workloads import LONGEST, W1, W3, W5, WORKLOADS, Word, Workload, vocabulary
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.store import resolve

pytestmark = pytest.mark.plain

WORDS = [Word(index, f" w{index}") for index in range(100)]


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_rounds_differ_in_words_and_not_in_lengths(workload: Workload) -> None:
    first, again, other = (workload.build(WORDS, seed) for seed in ("1", "1", "2"))
    assert first == again
    assert len(first) == workload.requests
    assert [len(drawn.prompt) for drawn in first] == [len(drawn.prompt) for drawn in other]
    assert [drawn.max_tokens for drawn in first] == [drawn.max_tokens for drawn in other]
    assert not {drawn.prompt for drawn in first} & {drawn.prompt for drawn in other}


def test_lengths_are_in_their_bounds_and_fill_them() -> None:
    prompts = W1.build(WORDS, "1")
    for lengths, (low, high) in (
        ([len(a.prompt) for a in prompts], W1.prompt),
        ([a.max_tokens for a in prompts], W1.answer),
    ):
        assert low <= min(lengths) < low + (high - low) / 4
        assert high - (high - low) / 4 < max(lengths) <= high


def test_only_the_system_prompt_is_shared() -> None:
    prompts = W3.build(WORDS, "1")
    assert len({drawn.prompt[:512] for drawn in prompts}) == 1
    assert len({drawn.prompt[512:] for drawn in prompts}) == len(prompts)
    assert {len(drawn.prompt) for drawn in prompts} == {544}


def test_every_prompt_and_answer_fits_into_the_servers() -> None:
    assert LONGEST <= MODEL_LENGTH
    assert {(one.prompt, one.at_once) for one in W5} == {((n, n), many) for n in (2000, 4000) for many in (1, 8)}
    assert all(one.shared == 0 for one in W5)


def test_a_few_requests_are_the_first_of_all() -> None:
    assert W1.build(WORDS, "1", 3) == W1.build(WORDS, "1")[:3]


@pytest.mark.benchmarks
def test_prompts_are_the_same_as_text_and_as_tokens() -> None:
    model = resolve("bundled:smollm2-135m-instruct")
    words, tokenizer = vocabulary(model), load_tokenizer(model)
    assert len(words) > 10_000
    for begin in range(0, len(words), 1000):
        some = words[begin : begin + 1000]
        text = "".join(word.text for word in some)
        assert tokenizer.encode(text, allow_special=False, add_bos=True) == [word.id for word in some]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_least_that_is_not_below_its_share(values: list[float], share: float) -> None:
    computed = percentile(values, share)
    assert sum(value <= computed for value in values) >= share * len(values)
    assert sum(value < computed for value in values) < share * len(values)


def test_figures_are_named_for_their_workload() -> None:
    answers = [
        Answer(sent=1.0, pieces=[1.5, 1.6, 1.8], ended=2, prompt_tokens=4, tokens=3, text=""),
        Answer(sent=1.0, pieces=[2.0], ended=2, prompt_tokens=4, tokens=1, text=""),
    ]
    load = Load(answers, [], wall_s=2.0, client_cpu_s=0.1)
    named = figures("w1", load, Cost(cpu_s=0.5, resident_bytes=5_000_000))
    assert named == pytest.approx(
        {
            "tokens_per_s_w1": 2,
            "first_p50_ms_w1": 500,
            "first_p99_ms_w1": 1000,
            "gap_p50_ms_w1": 100,
            "gap_p99_ms_w1": 200,
            "cpu_s_per_1k_tokens_w1": 125,
            "rss_mb_w1": 5,
            "client_cores_w1": 0.05,
        }
    )
