"""Answers of an engine to prompts of many lengths and parameters at once, for comparison with another engine's."""

import itertools
from collections.abc import Sequence
from typing import Any

from runtimes.llm.engine.async_engine import Engine, SamplingParams
from runtimes.llm.sampling_params import BadWords
from runtimes.llm.sequence import StepAdapter, TokenOutput
from tests.runtimes.llm.native.models import tokens

LENGTHS = (3, 15, 16, 40, 70, 7)
ANSWER = 60


def timeless(engine: Engine) -> Engine:
    """Every step takes as long, so proposals are free: there are as many as may be."""
    ticks = itertools.count()
    engine.clock = lambda: float(next(ticks))
    return engine


def outputs(
    engine: Engine,
    params: list[SamplingParams],
    adapters: Sequence[StepAdapter | None] = (None,),
    predictions: Sequence[Sequence[int]] = ((),),
) -> list[list[TokenOutput]]:
    """The answers to prompts of all lengths at once, with `adapters` and `predictions` in turn; each repeats some of
    its text."""
    ids = []
    for number, (length, one) in enumerate(itertools.product(LENGTHS, params)):
        text = tokens(length, seed=number)
        adapter = adapters[number % len(adapters)]
        prediction = predictions[number % len(predictions)]
        ids.append(engine.add([*text, *tokens(9), *text], one, adapter=adapter, prediction=prediction))
    results: dict[int, list[TokenOutput]] = {identity: [] for identity in ids}
    while engine.stats().running or engine.stats().waiting:
        for identity, output in engine.step().items():
            results[identity] += [*output.before, output]
    engine.check_idle()
    return [results[identity] for identity in ids]


def shown(answers: list[list[TokenOutput]]) -> list[list[tuple[Any, ...]]]:
    return [[(one.token_id, one.finish_reason, one.logprobs, one.error) for one in answer] for answer in answers]


# A few tokens are likely, so that the text repeats itself.
BIASED: dict[str, Any] = {"max_tokens": ANSWER, "logit_bias": dict.fromkeys((3, 8, 21, 40), 4.0)}
PARAMS = [
    GREEDY := SamplingParams(**BIASED, temperature=0),
    SamplingParams(**BIASED, temperature=0, logprobs=3),
    SamplingParams(**BIASED, temperature=0.4, seed=7, top_p=0.9),
    SamplingParams(**BIASED, temperature=0.3, seed=8, top_k=20, min_p=0.01, logprobs=0),
    SamplingParams(**BIASED, temperature=0, frequency_penalty=0.1, repetition_penalty=1.05),
    SamplingParams(**BIASED, temperature=0, min_tokens=9, stop_token_ids=frozenset(range(0, 131, 2))),
    SamplingParams(**BIASED, temperature=0, bad_words=BadWords([[word] for word in range(0, 60, 7)])),
    SamplingParams(**BIASED, temperature=0, prompt_logprobs=1),
]
