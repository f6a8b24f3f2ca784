"""The time that prompts may add to a step, with steps of made costs."""

from dataclasses import dataclass
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine import step_budget
from runtimes.llm.engine.step_budget import LONGEST, SMALLEST_SHARE, WAIT_SHARE, StepBudget, shared_wait
from tests.support.clocked_scheduler import Clocked

pytestmark = pytest.mark.plain
MOST, TARGET = 512, 0.05


@dataclass(frozen=True)
class Machine:
    """Seconds of a step: a part for sequences that decode, and of each prompt token by its position."""

    decode: float
    token: float
    growth: float = 0.0

    def seconds(self, decodes: int, prompt_tokens: int, position: int = 0) -> float:
        return self.decode * bool(decodes) + prompt_tokens * self.token * (1 + self.growth * position)


def test_alone_a_prompt_has_the_whole_step() -> None:
    budget = StepBudget(MOST, TARGET)
    assert budget.prompt_tokens(0) == MOST
    budget.measured(0, MOST, 0.2)
    assert budget.prompt_tokens(0) == MOST
    assert budget.prompt_tokens(4) < MOST / 2


def test_without_a_measurement_the_step_is_full() -> None:
    budget = StepBudget(MOST, TARGET)
    budget.measured(3, 100, 0.0)
    assert budget.prompt_tokens(3) == MOST - 3


@given(
    decode=st.floats(0.001, 0.5),
    token=st.floats(1e-5, 2e-3),
    growth=st.floats(0, 1e-3),
    decodes=st.integers(1, 32),
)
def test_steps_last_as_long_as_the_target_while_a_prompt_advances(
    decode: float, token: float, growth: float, decodes: int
) -> None:
    machine, budget, position = Machine(decode, token, growth), StepBudget(MOST, TARGET), 0
    budget.measured(decodes, 0, decode)
    for step in range(40):
        count = budget.prompt_tokens(decodes)
        assert MOST // SMALLEST_SHARE <= count <= MOST - decodes
        seconds = machine.seconds(decodes, count, position)
        if step >= 8:
            least = machine.seconds(decodes, MOST // SMALLEST_SHARE, position)
            assert seconds <= max(1.3 * max(TARGET, 2 * decode), least)
            if count < MOST - decodes:
                assert seconds >= 0.7 * TARGET
        budget.measured(decodes, count, seconds)
        position += count


def test_other_sequences_than_were_measured_change_the_chunk_and_not_the_length_of_the_step() -> None:
    budget, small, large = StepBudget(MOST, TARGET), Machine(0.005, 0.0004), Machine(0.03, 0.0004)
    budget.measured(1, 0, small.decode)
    for _ in range(12):
        count = budget.prompt_tokens(16)
        budget.measured(16, count, large.seconds(16, count))
    assert large.seconds(16, budget.prompt_tokens(16)) == pytest.approx(max(TARGET, 0.03 + 64 * 0.0004), rel=0.1)


def test_the_short_end_of_a_prompt_barely_changes_the_cost_of_tokens() -> None:
    budget = StepBudget(MOST, TARGET)
    budget.measured(0, 512, 0.2)
    before = budget.prompt_tokens(1)
    budget.measured(0, 3, 0.01)  # nearly all of it is reading the weights
    assert before > budget.prompt_tokens(1) > before / 2


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


@settings(max_examples=10, deadline=None)
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
