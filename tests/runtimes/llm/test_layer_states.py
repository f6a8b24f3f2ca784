"""Latents, inputs of convolutions and recurrent states are right however requests are scheduled."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from runtimes.llm.engine import core, sampler
from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.engine.model_runner import ModelRunner
from runtimes.llm.engine.speculation import Speculation, Speculator
from runtimes.llm.memory import CacheSize, cache_size, state_bytes
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.recurrent.states import StateCache
from runtimes.llm.sequence import Sequence
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.family_table import tiny
from tests.runtimes.llm.reference import assert_greedy, save_safetensors
from tests.support.llm_engines import answers, run

BLOCK, NEW = 16, 20
ROWS = [
    "lfm2",
    "lfm2-biased",
    "deepseek_v3",
    "granitemoehybrid",
    "granitemoehybrid-dense",
    "falcon_h1",
    "nemotron_h",
    "qwen3_5_text",
]
TEXT = [(7 * i + i * i // 5) % 250 for i in range(150)]
PROMPTS = [TEXT[at : at + length] for at, length in enumerate((1, 2, 15, 16, 17, 48, 65, 120))]


class Case:
    """A small model, transformers' own reading of it, and its greedy answers."""

    def __init__(self, row: str, folder: Path) -> None:
        self.reference = tiny(row)
        self.model: Llama = load_model(save_safetensors(self.reference, folder), dtype="float32", device="cpu")

    def engine(self, tokens: int = 4096, states: int = 16, **bounds: Any) -> Engine:
        """With room for so many tokens, and states of sequences."""
        size = CacheSize(tokens // BLOCK, states if self.recurrent else 0)
        with mock.patch.object(core, "cache_size", return_value=size):
            return Engine.serving(self.model, EngineConfig(model=Path(), **({"max_num_seqs": 8} | bounds)))

    @property
    def recurrent(self) -> bool:
        return self.model.config.recurrent is not None

    def check(self, prompts: list[list[int]], given: list[list[int]]) -> None:
        for prompt, answer in zip(prompts, given, strict=True):
            assert len(answer) == NEW
            assert_greedy(self.reference, prompt, answer)


@pytest.fixture(scope="module", params=ROWS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp(request.param))


def test_chunks_and_preemptions_change_no_answer(case: Case) -> None:
    engine = case.engine(tokens=192, max_num_batched_tokens=40)
    case.check(PROMPTS, answers(engine, PROMPTS, NEW))
    assert engine.stats().preemptions > 0


def test_cached_beginnings_change_no_answer(case: Case) -> None:
    """Prompts again, prompts that part within another's, and one that is a part of another."""
    engine = case.engine(max_num_batched_tokens=64)
    case.check(PROMPTS, answers(engine, PROMPTS, NEW))
    others = [TEXT[7:80] + [9] * 20, TEXT[7:80] + [11] * 20, TEXT[7:60], TEXT[7:140]]
    for prompts in (PROMPTS, others, others):
        before = engine.stats().cached_prompt_tokens
        case.check(prompts, answers(engine, prompts, NEW))
        assert engine.stats().cached_prompt_tokens > before


def test_several_answers_of_one_prompt_are_as_alone(case: Case) -> None:
    how: list[dict[str, Any]] = [{"temperature": 0.9, "seed": seed} for seed in range(4)]
    alone = [answers(case.engine(), [PROMPTS[-1]], NEW, **one)[0] for one in how]
    engine = case.engine(max_num_batched_tokens=50)
    ids = [engine.add(PROMPTS[-1], SamplingParams(max_tokens=NEW, ignore_eos=True, **one)) for one in how]
    outputs = run(engine)
    assert [[output.token_id for output in outputs[one]] for one in ids] == alone
    assert len({tuple(answer) for answer in alone}) > 1


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_cancelled_requests_leave_nothing_to_others(case: Case, steps: int) -> None:
    engine = case.engine(tokens=256, max_num_batched_tokens=40)
    ids = [engine.add(prompt, SamplingParams(max_tokens=NEW, ignore_eos=True)) for prompt in PROMPTS[4:]]
    for _ in range(steps):
        engine.step()
    for identity in ids:
        engine.abort(identity)
    engine.check_idle()
    case.check(PROMPTS, answers(engine, PROMPTS, NEW))


def test_an_answer_is_carried_on_from_every_token(case: Case) -> None:
    prompt = PROMPTS[5]
    (whole,) = answers(case.engine(), [prompt], NEW)
    engine = case.engine(max_num_batched_tokens=64)
    params = SamplingParams(max_tokens=NEW, ignore_eos=True, temperature=0)
    for cut in range(1, NEW):
        identity = engine.add([*prompt, *whole[:cut]], params, continued=cut)
        assert [output.token_id for output in run(engine)[identity]] == whole[cut:]


def test_a_dirty_cache_changes_nothing(case: Case) -> None:
    engine = case.engine()
    runner = engine._runner
    assert isinstance(runner, ModelRunner)
    assert isinstance(runner.executor, TorchExecutor)
    cache = runner.executor.cache
    states = [] if cache.states is None else [cache.states.inputs, cache.states.states]
    for numbers in (cache.keys, cache.values, cache.inputs, *states):
        if isinstance(numbers, torch.Tensor):
            numbers.fill_(torch.nan)
    case.check(PROMPTS, answers(engine, PROMPTS, NEW))


def _proposing(whole: dict[int, list[int]], right: int) -> Callable[..., dict[int, list[int]]]:
    """Proposals of which the first `right` are those of the `whole` answers, and the next ones are not."""

    def proposals(self: Speculator, sequences: list[Sequence], room: int, prompt_token: float = 0.0) -> Any:
        made = {}
        for sequence in sequences:
            coming = whole[sequence.id][sequence.num_generated : NEW - 1][: right + 2]
            wrong = [(token + 1) % 250 for token in coming[right:]]
            if coming and room >= len(coming):
                made[sequence.id] = coming[:right] + wrong
                room -= len(coming)
        return made

    return proposals


@pytest.mark.parametrize("right", [0, 1, 3, 17])
def test_refused_proposals_change_no_answer(case: Case, right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether none, some or nearly all are accepted, and whether pages end within them."""
    if case.recurrent:
        with pytest.raises(ValueError, match="speculation is not supported for a model with recurrent layers"):
            case.engine(speculation=Speculation("ngram"))
        return
    whole = dict(enumerate(answers(case.engine(), PROMPTS, NEW)))
    monkeypatch.setattr(Speculator, "proposals", _proposing(whole, right))
    engine = case.engine(max_num_batched_tokens=300, speculation=Speculation("ngram"))
    ids = [engine.add(prompt, SamplingParams(max_tokens=NEW, ignore_eos=True, temperature=0)) for prompt in PROMPTS]
    outputs = run(engine)
    for identity in ids:
        tokens = [one.token_id for output in outputs[identity] for one in (*output.before, output)]
        assert tokens == whole[identity]
    stats = engine.stats()
    assert stats.accepted_tokens < stats.proposed_tokens
    assert (stats.accepted_tokens > 0) == (right > 0)


# ── states of recurrent layers ────────────────────────────────────────────────────────────────────────

RECURRENT = [row for row in ROWS if row.startswith(("granitemoehybrid", "falcon", "nemotron", "qwen"))]


@pytest.fixture(scope="module", params=RECURRENT)
def recurrent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("states", [1, 2, 5])
def test_few_slots_make_prompts_wait_and_change_no_answer(recurrent: Case, states: int) -> None:
    engine = recurrent.engine(states=states, max_num_batched_tokens=64)
    for prompts in (PROMPTS, [*PROMPTS, *PROMPTS], [TEXT[7:80] + [9] * 20, TEXT[7:80] + [11] * 20]):
        recurrent.check(prompts, answers(engine, prompts, NEW))


def test_a_beginning_is_cached_where_its_state_was_copied(recurrent: Case) -> None:
    engine = recurrent.engine(max_num_batched_tokens=64)
    shared, cached = TEXT[:70], []
    for tail in (9, 11, 13, 13):
        before = engine.stats().cached_prompt_tokens
        prompt = [*shared, *[tail] * 30]
        recurrent.check([prompt], answers(engine, [prompt], NEW))
        cached.append(engine.stats().cached_prompt_tokens - before)
    assert cached == [0, 0, 64, 96]


def test_a_failure_of_sampling_computes_no_state_twice(recurrent: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = answers(recurrent.engine(), PROMPTS, NEW)
    sample, turns = sampler.sample, itertools.cycle([True, False])
    failed: list[int] = []

    def failing(logits: torch.Tensor, chunks: Any) -> Any:
        if len(chunks) > 1 and next(turns):
            failed.append(len(chunks))
            with torch.inference_mode():
                logits.fill_(torch.nan)
            raise RuntimeError("by design")
        return sample(logits, chunks)

    monkeypatch.setattr(sampler, "sample", failing)
    assert answers(recurrent.engine(), PROMPTS, NEW) == whole
    assert failed


def test_the_size_of_the_cache_counts_states(recurrent: Case) -> None:
    config = recurrent.model.config
    state = state_bytes(config, torch.float32)
    cache = StateCache(config, 3, torch.float32, torch.device("cpu"))
    assert cache.inputs.nbytes + cache.states.nbytes == 3 * state
    cpu, page = torch.device("cpu"), 1 << 10
    for count, states in ((40, 8), (7, 3)):
        size = cache_size(count * state, None, page, state, 8, cpu)
        assert size.states == states
        assert (count - 1) * state < size.blocks * page + size.states * state <= count * state
    with pytest.raises(ValueError, match="kv_cache_bytes is"):
        cache_size(state, None, page, state, 8, cpu)
