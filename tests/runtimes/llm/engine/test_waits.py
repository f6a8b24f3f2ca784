"""Long prompts in steps of made costs: their order, their waits, and the gaps of the sequences beside them."""

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine import step_budget
from runtimes.llm.engine.step_budget import LONGEST, WAIT_SHARE, shared_wait
from tests.support.clocked_scheduler import TARGET, Clocked

pytestmark = pytest.mark.plain


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
