"""A model on several processes: the same tokens as on one, one end of all, and a reason when one dies."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from msgspec.structs import replace

from runtimes.llm.engine.async_engine import AsyncEngine, Engine, EngineConfig, EngineDead, SamplingParams
from runtimes.llm.engine.rank_loader import load_engine
from runtimes.llm.engine.ranks.channel import RankEnded
from runtimes.llm.engine.ranks.group import TorchRanks
from runtimes.llm.engine.ranks.others import Ranks
from runtimes.llm.engine.speculation import Speculation
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import TokenOutput
from tests.runtimes.llm import families
from tests.runtimes.llm.family_table import tiny
from tests.runtimes.llm.reference import save_safetensors
from tests.support.llm_engines import run

pytestmark = pytest.mark.processes
BOUNDS: dict[str, Any] = {
    "dtype": "float32", "device": "cpu", "executor": "torch", "threads": 1, "kv_cache_bytes": 1 << 20,
    "max_num_batched_tokens": 48, "max_num_seqs": 4,
}  # fmt: skip
PROMPT = [(7 * i + i * i // 5) % 250 for i in range(120)]
PROMPTS = [[5], PROMPT[:34], PROMPT, [9, *PROMPT[:49]], PROMPT[:100], [*PROMPT[:64], 7]]
"""More than run at once, longer than a step; the last two begin with cached pages."""
LONG = SamplingParams(max_tokens=100, ignore_eos=True)


def config(model: Path, ranks: int, **changes: Any) -> EngineConfig:
    return EngineConfig(model=model, tensor_parallel=ranks, **(BOUNDS | changes))


def outputs(engine: Engine) -> list[list[TokenOutput]]:
    """The answers to all prompts: the last two come when the prompt that they share pages with is computed."""
    params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True, logprobs=4)
    drawn = SamplingParams(max_tokens=20, temperature=0.8, top_p=0.9, seed=7, ignore_eos=True, logprobs=0)
    answers = []
    for prompts in (PROMPTS[:4], PROMPTS[4:]):
        ids = [engine.add(prompt, how) for prompt in prompts for how in (params, drawn)]
        given = run(engine)
        answers += [[one for output in given[each] for one in (*output.before, output)] for each in ids]
    return answers


def assert_same_answers(path: Path, ranks: int, **changes: Any) -> None:
    expected = outputs(load_engine(config(path, 1, **changes)))
    engine = load_engine(config(path, ranks, **changes))
    try:
        given = outputs(engine)
        assert engine.stats().preemptions == 0
    finally:
        engine.release()
    assert sum(answer[0].cached_tokens for answer in given[-4:]) >= 2 * (96 + 64)
    for one, other in zip(given, expected, strict=True):
        assert [output.token_id for output in one] == [output.token_id for output in other]
        for output, reference in zip(one, other, strict=True):
            assert output.logprobs is not None
            assert reference.logprobs is not None
            assert output.logprobs.logprob == pytest.approx(reference.logprobs.logprob, abs=2e-4)
            assert dict(output.logprobs.top) == pytest.approx(dict(reference.logprobs.top), abs=2e-4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_safetensors(families.tiny("qwen3"), tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def engine(model: Path) -> Iterator[Engine]:
    engine = load_engine(config(model, 2))
    yield engine
    engine.release()


def others() -> list[psutil.Process]:
    """The processes of other ranks."""
    children = psutil.Process().children()
    return [child for child in children if "runtimes.llm.engine.ranks.process" in child.cmdline()]


# ── the same answers ──────────────────────────────────────────────────────────────────────────────────


def test_two_processes_answer_as_one_does(model: Path) -> None:
    assert_same_answers(model, 2)
    assert not others()


def test_processes_share_a_key_head_and_experts(tmp_path: Path) -> None:
    assert_same_answers(save_safetensors(tiny("qwen3_moe"), tmp_path), 4)


@pytest.mark.parametrize(
    "changes", [{"weights": "int8"}, {"kv_cache_dtype": "int8"}, {"speculation": Speculation("ngram", 4)}]
)
def test_codes_and_proposals_are_those_of_one_process(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_same_answers(save_safetensors(families.tiny("llama", intermediate_size=128), tmp_path), 2, **changes)


def test_rank_0_alone_computes_a_draft(model: Path, tmp_path: Path) -> None:
    small = save_safetensors(
        families.tiny("qwen3", num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=3), tmp_path
    )
    assert_same_answers(model, 2, speculation=Speculation("draft_model", 4, model=str(small)))


def test_embeddings_are_those_of_one_process(model: Path, engine: Engine) -> None:
    vectors = []
    for one in (engine, load_engine(config(model, 1))):
        text = one.add(PROMPT, SamplingParams(max_tokens=1), pooling="mean")
        [output] = run(one)[text]
        assert output.pooled is not None
        vectors.append(output.pooled)
    assert vectors[0] == pytest.approx(vectors[1], abs=2e-4)


def test_the_cache_has_as_many_pages_as_that_of_one_process(model: Path, engine: Engine) -> None:
    assert engine.stats().kv_blocks_total == load_engine(config(model, 1)).stats().kv_blocks_total


# ── a rank that ends ──────────────────────────────────────────────────────────────────────────────────


def test_a_step_after_the_death_of_a_rank_is_refused_with_the_reason(engine: Engine) -> None:
    [other] = others()
    engine.add(PROMPT, LONG)
    engine.step()
    os.kill(other.pid, signal.SIGSTOP)  # so that the step waits for it
    os.kill(other.pid, signal.SIGKILL)
    with pytest.raises(RankEnded, match=r"^rank 1 ended \(signal 9\)$"):
        run(engine)


async def test_the_death_of_a_rank_ends_all_answers(engine: Engine) -> None:
    served = AsyncEngine(engine)
    await served.start()
    answers = [served.submit(PROMPT, LONG) for _ in range(8)]  # more than run at once
    await anext(answers[0])
    [other] = others()
    os.kill(other.pid, signal.SIGKILL)
    for answer in answers:
        with pytest.raises(EngineDead, match=r"the engine failed: rank 1 ended \(signal 9\)"):
            async for _ in answer:
                pass
    with pytest.raises(EngineDead, match=r"rank 1 ended"):
        served.submit(PROMPT, LONG)
    await served.aclose()


async def test_the_death_of_a_rank_ends_an_idle_engine(engine: Engine) -> None:
    served = AsyncEngine(engine)
    await served.start()
    [other] = others()
    os.kill(other.pid, signal.SIGKILL)
    await asyncio.wait_for(served.ended(), 60)
    with pytest.raises(EngineDead, match=r"rank 1 ended \(signal 9\)"):
        served.submit(PROMPT, LONG)
    await served.aclose()


def test_a_failure_of_rank_0_ends_the_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise MemoryError("out of memory")

    runner: Any = engine._runner
    monkeypatch.setattr(runner.executor._own, "logits", failing)
    engine.add(PROMPT, LONG)
    with pytest.raises(RankEnded, match="rank 0 failed: out of memory"):
        engine.step()


async def test_the_end_of_an_engine_ends_its_ranks(model: Path) -> None:
    served = AsyncEngine(load_engine(config(model, 4)))
    await served.start()
    processes = others()
    assert len(processes) == 3
    await served.aclose()
    assert not any(process.is_running() for process in processes)


# ── a start that fails ────────────────────────────────────────────────────────────────────────────────


def test_a_rank_that_does_not_start_is_the_error_of_the_load(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match=r"^rank 1 ended \(status 1\)$"):
        load_engine(config(model, 2))
    assert not others()


def test_a_rank_that_cannot_load_gives_its_reason(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Ranks.launch
    monkeypatch.setattr(Ranks, "launch", lambda self, options: launch(self, replace(options, model="/nowhere")))
    with pytest.raises(RuntimeError, match=r"^rank 1 ended \(there is no model at /nowhere\)$"):
        load_engine(config(model, 2))
    assert not others()


def test_a_rank_that_dies_before_it_meets_the_others_is_the_reason(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = TorchRanks.connect

    def alone(self: TorchRanks, store: str, device: torch.device) -> None:
        [rank] = others()
        ended = os.pidfd_open(rank.pid)  # tells the end, and leaves the status to the engine
        rank.kill()
        select.select([ended], [], [])
        os.close(ended)
        connect(self, store, device)

    monkeypatch.setattr(TorchRanks, "connect", alone)
    monkeypatch.setattr("runtimes.llm.engine.ranks.group.SECONDS", 2.0)
    with pytest.raises(RuntimeError, match=r"^rank 1 ended \(signal 9\)$"):
        load_engine(config(model, 2))
    assert not others()
    monkeypatch.undo()
    engine = load_engine(config(model, 2))  # the group that did not come about leaves nothing behind
    engine.release()
    assert not others()


def test_a_cache_that_no_memory_holds_is_refused(model: Path) -> None:
    with pytest.raises(MemoryError, match="the KV cache takes 100 TiB"):
        load_engine(config(model, 2, kv_cache_bytes=100 << 40))
    assert not others()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"executor": "native"}, "the native step is one process"), ({"tensor_parallel": 3}, "it may be 1, 2, 4")],
)
def test_a_model_that_processes_cannot_share_starts_none(model: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises((ValueError, UnsupportedModel), match=reason):
        load_engine(EngineConfig(model=model, **(BOUNDS | {"tensor_parallel": 2} | changes)))
    assert not others()
