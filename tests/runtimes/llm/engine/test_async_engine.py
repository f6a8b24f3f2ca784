"""The engine and its thread, with a runner that computes nothing."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from runtimes.llm.engine.async_engine import (
    AsyncEngine,
    Engine,
    EngineDead,
    Generation,
    PromptTooLong,
    QueueFull,
    SamplingParams,
    StepRunner,
    TokenOutput,
)
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.sequence import Sampled, StepBatch

EOS = 2


class CountingRunner:
    """Generates 100, 101, 102 … after any prompt, and `end` after the tokens up to it."""

    def __init__(self, end: int = 10_000) -> None:
        self.end = end

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        return {chunk.sequence_id: Sampled(self._next(chunk.token_ids[-1])) for chunk in batch.chunks if chunk.samples}

    def _next(self, last: int) -> int:
        return EOS if last + 1 == self.end else max(100, last + 1)


class GatedRunner(CountingRunner):
    """Stops inside every step until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        self.entered.release()
        assert self.go.acquire(timeout=300)
        return super().run(batch)

    async def inside_a_step(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=300)


class FailingRunner(CountingRunner):
    """Computes `good` steps and then no more."""

    def __init__(self, good: int) -> None:
        super().__init__()
        self.good = good

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        if self.good == 0:
            raise RuntimeError("the device is lost")
        self.good -= 1
        return super().run(batch)


def make_engine(runner: StepRunner, *, queue: int = 64, seqs: int = 32, max_model_len: int = 128) -> Engine:
    config = SchedulerConfig(max_model_len=max_model_len, max_num_seqs=seqs, max_num_batched_tokens=64, max_queue=queue)
    return Engine(
        Scheduler(config, BlockManager(num_blocks=64, block_size=4)),
        runner,
        vocab_size=20_000,
        eos_token_ids=frozenset({EOS}),
    )


@asynccontextmanager
async def started(runner: StepRunner, *, queue: int = 64, seqs: int = 32) -> AsyncIterator[AsyncEngine]:
    engine = AsyncEngine(make_engine(runner, queue=queue, seqs=seqs))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()
        engine.check_idle()


async def collect(generation: Generation) -> list[TokenOutput]:
    async with asyncio.timeout(300):
        return [output async for output in generation]


def tokens(outputs: Sequence[TokenOutput]) -> list[int]:
    return [output.token_id for output in outputs]


# ---- Engine


class SlowRunner(CountingRunner):
    """A token takes a millisecond of `now`, the clock of the engine."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        self.now += 0.001 * batch.num_tokens
        return super().run(batch)


def test_a_long_prompt_adds_little_to_the_gaps_of_others() -> None:
    runner = SlowRunner()
    config = SchedulerConfig(max_model_len=4096, max_num_seqs=8, max_num_batched_tokens=512, max_queue=8)
    engine = Engine(
        Scheduler(config, BlockManager(num_blocks=1024, block_size=4)),
        runner,
        vocab_size=20_000,
        eos_token_ids=frozenset({EOS}),
        clock=lambda: runner.now,
    )
    engine.add([5] * 600, SamplingParams(max_tokens=90))
    while not engine.step():
        pass
    engine.add([6] * 3000, SamplingParams(max_tokens=4))
    gaps, before = [], runner.now
    while outputs := engine.step():
        gaps.append(runner.now - before)
        before = runner.now
        if len(outputs) == 2:  # the long prompt is computed
            break
    assert max(gaps) <= 1.4 * max(config.max_step_seconds, 0.064)
    assert len(gaps) <= 3000 / 45


def test_step_grows_every_answer() -> None:
    engine = make_engine(CountingRunner())
    one = engine.add([5, 6], SamplingParams(max_tokens=2))
    two = engine.add([7], SamplingParams(max_tokens=1))
    assert engine.step() == {one: TokenOutput(100), two: TokenOutput(100, "length")}
    assert engine.step() == {one: TokenOutput(101, "length")}
    engine.check_idle()


def test_end_tokens() -> None:
    engine = make_engine(CountingRunner(end=101))
    stopping = engine.add([5], SamplingParams(max_tokens=9))
    ignoring = engine.add([5], SamplingParams(max_tokens=9, ignore_eos=True))
    stopped_by_id = engine.add([5], SamplingParams(max_tokens=9, ignore_eos=True, stop_token_ids=frozenset({EOS})))
    engine.step()
    assert engine.step() == {
        stopping: TokenOutput(EOS, "stop"),
        ignoring: TokenOutput(EOS),
        stopped_by_id: TokenOutput(EOS, "stop"),
    }


@pytest.mark.parametrize("prompt", [[], [-1], [20_000], [5, 99_999]])
def test_prompts_that_no_model_understands_are_refused(prompt: list[int]) -> None:
    engine = make_engine(CountingRunner())
    with pytest.raises(ValueError, match="prompt"):
        engine.add(prompt, SamplingParams(max_tokens=1))
    engine.check_idle()


def test_check_idle_names_the_remaining_sequences() -> None:
    engine = make_engine(CountingRunner())
    engine.add([5], SamplingParams(max_tokens=9))
    engine.add([5], SamplingParams(max_tokens=9))
    engine.step()
    engine.add([5], SamplingParams(max_tokens=9))
    with pytest.raises(AssertionError, match="2 sequences run, 1 wait"):
        engine.check_idle()


def test_stats_count() -> None:
    engine = make_engine(CountingRunner())
    engine.add([5] * 9, SamplingParams(max_tokens=2))
    engine.add([5], SamplingParams(max_tokens=9))
    engine.step()
    engine.step()
    engine.add([5], SamplingParams(max_tokens=9))
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.kv_blocks_total, stats.kv_blocks_free) == (1, 1, 64, 63)
    assert (stats.prompt_tokens, stats.generated_tokens, stats.steps, stats.preemptions) == (11, 4, 2, 0)


# ---- AsyncEngine


async def test_answers_stream_and_end() -> None:
    async with started(CountingRunner()) as engine:
        assert await collect(engine.submit([5], SamplingParams(max_tokens=3))) == [
            TokenOutput(100),
            TokenOutput(101),
            TokenOutput(102, "length"),
        ]
        engine.check_idle()


async def test_many_at_once_each_get_their_own_answer() -> None:
    async with started(CountingRunner()) as engine:
        generations = [engine.submit([200 + 50 * i], SamplingParams(max_tokens=1 + i % 7)) for i in range(60)]
        answers = await asyncio.gather(*map(collect, generations))
    for i, answer in enumerate(answers):
        assert tokens(answer) == [201 + 50 * i + step for step in range(1 + i % 7)]


async def test_a_step_crosses_to_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = GatedRunner()
    async with started(runner) as engine:
        blocker = engine.submit([5], SamplingParams(max_tokens=2))
        await runner.inside_a_step()
        generations = [engine.submit([5], SamplingParams(max_tokens=3)) for _ in range(8)]
        crossings = []
        loop, call = asyncio.get_running_loop(), asyncio.get_running_loop().call_soon_threadsafe

        def counted(callback: object, *args: object, **kwargs: object) -> object:
            if threading.current_thread().name == "llm-engine":
                crossings.append(callback)
            return call(callback, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        runner.go.release(4)
        for generation in (blocker, *generations):
            await collect(generation)
    assert len(crossings) == 4


async def test_cancel_frees_the_pages_at_once_even_inside_a_step() -> None:
    runner = GatedRunner()
    async with started(runner) as engine:
        generation = engine.submit([5] * 20, SamplingParams(max_tokens=50))
        await runner.inside_a_step()
        assert engine.stats().kv_blocks_free == 64 - 5
        generation.cancel()
        assert engine.stats().kv_blocks_free == 64
        engine.check_idle()
        runner.go.release(99)
        assert await collect(generation) == []
        # The step that was under way delivers nothing to it, and the next request is served.
        assert len(await collect(engine.submit([5], SamplingParams(max_tokens=2)))) == 2
        assert await collect(generation) == []


async def test_cancel_wakes_the_reader_and_is_idempotent() -> None:
    runner = GatedRunner()
    async with started(runner) as engine:
        generation = engine.submit([5], SamplingParams(max_tokens=50))
        await runner.inside_a_step()
        reader = asyncio.create_task(collect(generation))
        await asyncio.sleep(0)  # let it begin to wait
        generation.cancel()
        generation.cancel()
        assert await reader == []
        runner.go.release(99)


async def test_cancel_after_the_end_preserves_the_answer() -> None:
    async with started(CountingRunner()) as engine:
        generation = engine.submit([5], SamplingParams(max_tokens=2))
        first = await anext(generation)
        second = await anext(generation)
        generation.cancel()
        assert tokens([first, second]) == [100, 101]
        assert await collect(generation) == []


async def test_max_tokens_of_zero() -> None:
    async with started(CountingRunner()) as engine:
        assert await collect(engine.submit([5], SamplingParams(max_tokens=0))) == []
        assert await collect(engine.submit([5] * 128, SamplingParams(max_tokens=0))) == []  # the whole context
        with pytest.raises(PromptTooLong):
            engine.submit([5] * 129, SamplingParams(max_tokens=0))


async def test_refusals() -> None:
    runner = GatedRunner()
    async with started(runner, queue=2, seqs=1) as engine:
        open_ones = [engine.submit([5], SamplingParams(max_tokens=1))]
        await runner.inside_a_step()
        open_ones += [engine.submit([5], SamplingParams(max_tokens=1)) for _ in range(2)]
        with pytest.raises(QueueFull):
            engine.submit([5], SamplingParams(max_tokens=1))
        with pytest.raises(PromptTooLong) as caught:
            engine.submit([5] * 200, SamplingParams(max_tokens=1))
        assert (caught.value.length, caught.value.limit) == (200, 127)
        runner.go.release(99)
        assert [len(await collect(generation)) for generation in open_ones] == [1, 1, 1]


async def test_the_death_of_the_thread_fails_every_generation(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, logger="runtimes.llm.engine.async_engine"):
        async with started(FailingRunner(good=2), seqs=2) as engine:
            generations = [engine.submit([5], SamplingParams(max_tokens=9)) for _ in range(3)]
            assert await anext(generations[0]) == TokenOutput(100)
            for generation in generations:
                with pytest.raises(EngineDead) as caught:
                    await collect(generation)
                assert isinstance(caught.value.__cause__, RuntimeError)
                with pytest.raises(EngineDead):  # and again for every later request
                    await collect(generation)
            assert not engine.alive
            await asyncio.wait_for(engine.ended(), 5)
            with pytest.raises(EngineDead, match="failed"):
                engine.submit([5], SamplingParams(max_tokens=1))


async def test_closing_ends_open_answers_and_refuses_new_ones() -> None:
    runner = GatedRunner()
    async with started(runner) as engine:
        generation = engine.submit([5], SamplingParams(max_tokens=50))
        await runner.inside_a_step()
        closing = asyncio.create_task(engine.aclose())
        with pytest.raises(EngineDead, match="closed"):
            await collect(generation)
        runner.go.release(99)
        await closing
        with pytest.raises(EngineDead, match="closed"):
            engine.submit([5], SamplingParams(max_tokens=1))


async def test_an_engine_that_was_not_started_refuses() -> None:
    engine = AsyncEngine(make_engine(CountingRunner()))
    with pytest.raises(EngineDead, match="not been started"):
        engine.submit([5], SamplingParams(max_tokens=1))
    await engine.aclose()
