"""Long prompts in steps of made costs: their order, their waits, and the gaps of the sequences beside them."""

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine import step_budget
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.scheduler_config import SchedulerConfig
from runtimes.llm.engine.sequence import Sampled, SamplingParams, Sequence, StepBatch
from runtimes.llm.engine.standing import Standing
from runtimes.llm.engine.step_budget import LONGEST, WAIT_SHARE
from runtimes.llm.engine.waits import shared_wait

TARGET, ANSWER = 0.05, 128


class Clocked:
    """A scheduler whose steps cost as much as on two cores for a model of 135M parameters."""

    def __init__(self) -> None:
        bounds = SchedulerConfig(
            max_model_len=4352, max_num_seqs=64, max_num_batched_tokens=512, max_queue=512, max_step_seconds=TARGET
        )
        self.scheduler = Scheduler(bounds, BlockManager(2912, 16))
        self.now = 0.0
        self.first: dict[int, float] = {}
        self.gaps: dict[int, list[float]] = {}
        self.ended: list[int] = []
        self._last: dict[int, float] = {}
        self._next = 0

    def arrive(self, prompt: int, answer: int = ANSWER, tenant: str = "t", priority: int = 0) -> int:
        identity, self._next = self._next, self._next + 1
        params, standing = SamplingParams(max_tokens=answer), Standing(tenant, 1.0, priority)
        self.scheduler.add(Sequence(identity, [identity] * prompt, params, standing=standing), self.now)
        return identity

    def step(self) -> list[int]:
        """The sequences that end."""
        batch = self.scheduler.schedule(self.now)
        seconds = cost(batch)
        begun, self.now = self.now, self.now + seconds
        self.scheduler.measured(batch, seconds)
        outputs = self.scheduler.update(batch, {one.sequence_id: Sampled(5) for one in batch.chunks if one.samples})
        for identity, output in outputs.items():
            if identity in self._last:
                self.gaps.setdefault(identity, []).append(self.now - self._last[identity])
            self.first.setdefault(identity, self.now)
            self._last[identity] = self.now
            if output.finish_reason is not None:
                self.ended.append(identity)
        assert self.now > begun
        return [identity for identity, output in outputs.items() if output.finish_reason is not None]


def cost(batch: StepBatch) -> float:
    """Seconds: the weights once, the products of each token, and attention over all tokens before it."""
    attention = sum(len(chunk.token_ids) * chunk.end for chunk in batch.chunks)
    return 0.006 + 0.00025 * batch.num_tokens + 1.2e-7 * attention + 2e-3 * batch.num_decodes


def closed_loop(engine: Clocked, requests: int, at_once: int, prompt: int) -> list[float]:
    """The seconds to the first token of each request, with `at_once` requests in flight."""
    arrived = {engine.arrive(prompt): engine.now for _ in range(at_once)}
    while len(engine.ended) < requests:
        for _ in engine.step():
            if len(arrived) < requests:
                arrived[engine.arrive(prompt)] = engine.now
    engine.scheduler.check_integrity()
    return [engine.first[identity] - came for identity, came in arrived.items()]


def test_prompts_of_one_tenant_are_computed_in_the_order_of_their_arrival() -> None:
    engine = Clocked()
    closed_loop(engine, requests=16, at_once=8, prompt=4000)
    assert list(engine.first) == sorted(engine.first)
    assert engine.scheduler.num_preemptions == 0


def test_steps_grow_with_the_wait_for_a_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of eight callers wait for their prompts while few decode: a longer step shortens the wait."""
    waits = closed_loop(engine := Clocked(), requests=16, at_once=8, prompt=4000)
    gaps = [gap for measured in engine.gaps.values() for gap in measured]
    assert max(gaps) <= 1.3 * LONGEST * TARGET
    monkeypatch.setattr(step_budget, "LONGEST", 1)
    constant = closed_loop(fixed := Clocked(), requests=16, at_once=8, prompt=4000)
    assert median(waits) < 0.6 * median(constant)
    assert engine.now < fixed.now


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([("quiet", 1), ("a", -2)]),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-1, 1), st.integers(2000, 4000)), min_size=8, max_size=14),
)
def test_no_stream_slows_down_for_other_tenants_or_less_urgent_prompts(
    streams: tuple[str, int], queue: list[tuple[str, int, int]]
) -> None:
    engine = Clocked()
    stream = engine.arrive(50, 3000, *streams)
    for _ in range(4):
        engine.step()
    for tenant, priority, prompt in queue:
        engine.arrive(prompt, 8, tenant, priority)
    scheduler = engine.scheduler
    while scheduler.num_waiting:
        if stream in scheduler._running.decoding:
            assert shared_wait(scheduler._waiting, scheduler._running, engine.now) == 0
        engine.step()
    assert stream in engine.gaps


@pytest.mark.parametrize(("waited", "longest"), [(2.0, TARGET), (4.0, 4 * WAIT_SHARE), (100.0, LONGEST * TARGET)])
def test_a_step_lasts_a_share_of_the_wait_within_its_bounds(waited: float, longest: float) -> None:
    engine = Clocked()
    engine.arrive(50, 900)
    for _ in range(20):
        engine.step()
    begun = engine.now
    engine.arrive(4000, 8)
    engine.arrive(4000, 8)
    for _ in range(12):  # the estimate settles
        engine.step()
    engine.now = begun + waited
    seconds = []
    for _ in range(4):
        before = engine.now
        engine.step()
        seconds.append(engine.now - before)
        engine.now = begun + waited
    assert seconds[-1] == pytest.approx(longest, rel=0.25)
