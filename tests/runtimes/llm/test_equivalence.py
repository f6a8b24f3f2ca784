"""However requests are scheduled, SmolLM2 answers as transformers does, token for token, in float32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runtimes.llm.engine.async_engine import SamplingParams
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.engine.model_runner import ModelRunner
from runtimes.llm.model.llama import Llama
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.reference import TIE, assert_greedy, from_gguf
from tests.support.llm_engines import LENGTHS, NEW_TOKENS, answers, make_engine, run

pytestmark = pytest.mark.timeout(1800)


Check = Callable[[list[list[int]]], None]


@pytest.fixture(scope="module")
def model(bundled_model: Path) -> Llama:
    return load_model(bundled_model, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def reference(bundled_model: Path) -> Any:
    return from_gguf(bundled_model)


@pytest.fixture(scope="module")
def check(reference: Any, prompts: list[list[int]]) -> Check:
    """A function that checks an answer to each prompt; a checked answer is not computed again."""
    good: set[tuple[int, ...]] = set()

    def judge(given: list[list[int]]) -> None:
        for prompt, answer in zip(prompts, given, strict=True):
            assert len(answer) == NEW_TOKENS
            if (key := (*prompt, *answer)) not in good:
                assert_greedy(reference, prompt, answer)
                good.add(key)

    return judge


def test_alone(model: Llama, prompts: list[list[int]], check: Check) -> None:
    engine = make_engine(model)
    check([answers(engine, [prompt])[0] for prompt in prompts])


@pytest.mark.parametrize(
    ("bounds", "steps", "preempted"),
    [
        ({"max_num_batched_tokens": 4096}, range(NEW_TOKENS, NEW_TOKENS + 1), False),
        ({"max_num_batched_tokens": 48, "max_num_seqs": 8}, range(sum(LENGTHS) // 48 + 1, 10**6), False),
        ({"cache_tokens": 384, "max_num_batched_tokens": 256}, range(NEW_TOKENS, 10**6), True),
    ],
    ids=["one batch", "chunks", "preemptions"],
)
def test_together(
    model: Llama, prompts: list[list[int]], check: Check, bounds: dict[str, int], steps: range, preempted: bool
) -> None:
    engine = make_engine(model, **bounds)
    check(answers(engine, prompts))
    assert engine.stats().steps in steps
    assert (engine.stats().preemptions > 0) == preempted


def test_a_page_of_garbage_changes_nothing(model: Llama, prompts: list[list[int]]) -> None:
    """The contents of a freed page, even NaN, never reach its next owner."""
    clean, dirty = make_engine(model, cache_tokens=512), make_engine(model, cache_tokens=512)
    runner = dirty._runner
    assert isinstance(runner, ModelRunner)
    executor = runner.executor
    assert isinstance(executor, TorchExecutor)
    for pages in (executor.cache.keys, executor.cache.values):
        assert isinstance(pages, torch.Tensor)
        pages.fill_(torch.nan)
    assert answers(dirty, prompts[3:6]) == answers(clean, prompts[3:6])


def test_a_seed_gives_the_same_answer_in_any_company(model: Llama, prompts: list[list[int]]) -> None:
    how: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "top_k": 200, "seed": 1234}
    some = [prompts[index] for index in (2, 3, 4)]
    alone = [answers(make_engine(model), [prompt], **how)[0] for prompt in some]
    crowded = make_engine(model, cache_tokens=80)
    assert answers(crowded, some, **how) == alone
    assert crowded.stats().preemptions > 0
    other = answers(make_engine(model), some[:1], **(how | {"seed": 4321}))
    assert other != alone[:1]


def test_the_cache_of_a_prompt_changes_no_answer(model: Llama, prompts: list[list[int]], check: Check) -> None:
    engine = make_engine(model, max_num_seqs=8, max_num_batched_tokens=64)
    first = answers(engine, prompts)
    check(first)
    cached_before = engine.stats().cached_prompt_tokens
    assert answers(engine, prompts) == first
    cached = engine.stats().cached_prompt_tokens - cached_before
    assert cached == sum((len(prompt) - 1) // 16 * 16 for prompt in prompts)


def test_log_probabilities_are_those_of_transformers(model: Llama, prompts: list[list[int]], reference: Any) -> None:
    """Answers and prompts have them, in several chunks, for several requests at once, with and without penalties."""
    engine = make_engine(model, max_num_batched_tokens=48, max_num_seqs=8)
    chosen = [prompts[LENGTHS.index(length)] for length in (1, 16, 65)]
    how: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.9, "seed": 4}, {"presence_penalty": 1.0}]
    params = [SamplingParams(max_tokens=6, ignore_eos=True, logprobs=4, prompt_logprobs=2, **one) for one in how]
    ids_of_prompts = [engine.add(prompt, one) for prompt, one in zip(chosen, params, strict=True)]
    outputs_by_id = run(engine)
    for prompt, outputs in zip(chosen, map(outputs_by_id.__getitem__, ids_of_prompts), strict=True):
        ids = [*prompt, *[output.token_id for output in outputs]]
        with torch.inference_mode():
            expected = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
        cached = [*outputs[0].prompt_logprobs, *[output.logprobs for output in outputs]]
        assert len(cached) == len(ids) - 1
        for place, (token_id, one) in enumerate(zip(ids[1:], cached, strict=True)):
            assert one is not None
            assert one.logprob == pytest.approx(float(expected[place, token_id]), abs=TIE)
            assert [likely for _, likely in one.top] == pytest.approx(
                expected[place].topk(len(one.top)).values.tolist(), abs=TIE
            )
        assert {len(one.top) for one in outputs[0].prompt_logprobs} <= {2}


def test_penalties_survive_preemption_and_cutting(model: Llama, prompts: list[list[int]]) -> None:
    """Tokens generated before a preemption count."""
    how: dict[str, Any] = {"temperature": 0.9, "seed": 5, "presence_penalty": 1.0, "repetition_penalty": 1.2}
    some = [prompts[index] for index in (2, 3, 4)]
    alone = [answers(make_engine(model), [prompt], **how)[0] for prompt in some]
    crowded = make_engine(model, cache_tokens=80)
    assert answers(crowded, some, **how) == alone
    assert crowded.stats().preemptions > 0
    plain = answers(make_engine(model), some[:1], temperature=0.9, seed=5)
    assert plain != alone[:1]
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True, **how)
    for cut in (1, 16):
        engine = make_engine(model)
        identity = engine.add([*some[0], *alone[0][:cut]], params, continued=cut)
        rest: list[int] = []
        while engine.stats().running or engine.stats().waiting:
            rest.append(engine.step()[identity].token_id)
        assert alone[0][:cut] + rest == alone[0]
