"""The choice of requests to trace."""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.tail import BURST, FEWEST, MOST_MODELS, SLOWEST, TailSampler

ALL = ("errors", "slowest", "rerouted", "rollouts")


class Ended(NamedTuple):
    """A request that has ended."""

    model: str = "chat"
    seconds: float = 0.1
    failed: bool = False
    rerouted: bool = False
    rollout: bool = False

    def selected(self, sampler: TailSampler) -> bool:
        slow = sampler.is_slow(self.model, self.seconds)
        return slow or sampler.selects(failed=self.failed, rerouted=self.rerouted, rollout=self.rollout)


FINE = Ended()


@given(st.floats(0, 1), st.integers(0, 2**32))
def test_the_share_of_traces_is_that_of_the_configuration(share: float, seed: int) -> None:
    rng, sampler = Random(seed), TailSampler((), share)
    selected = sum(sampler.samples(rng.getrandbits(128)) for _ in range(2000))
    assert abs(selected / 2000 - share) < 0.06


def test_gateways_agree_on_a_trace() -> None:
    rng, few, many = Random(1), TailSampler((), 0.1), TailSampler((), 0.5)
    for _ in range(1000):
        trace = rng.getrandbits(128)
        assert many.samples(trace) or not few.samples(trace)


@pytest.mark.parametrize(
    ("rule", "ended"),
    [
        ("errors", FINE._replace(failed=True)),
        ("rerouted", FINE._replace(rerouted=True)),
        ("rollouts", FINE._replace(rollout=True)),
    ],
)
def test_a_rule_selects_its_requests(rule: str, ended: Ended) -> None:
    assert ended.selected(TailSampler((rule,), 0))
    assert not ended.selected(TailSampler(set(ALL) - {rule}, 0))
    assert not FINE.selected(TailSampler(ALL, 0))


@given(st.integers(0, 2**32), st.sampled_from(["uniform", "expovariate"]))
def test_about_one_in_a_hundred_is_slow(seed: int, shape: str) -> None:
    rng, sampler = Random(seed), TailSampler(("slowest",), 0)
    draw = rng.random if shape == "uniform" else lambda: rng.expovariate(1.0)
    selected = sum(FINE._replace(seconds=draw()).selected(sampler) for _ in range(5000))
    assert 15 <= selected <= 130


@given(st.lists(st.tuples(st.integers(1, 400), st.floats(0, 1e3)), min_size=1, max_size=12))
def test_servers_that_become_slow_do_not_fill_the_collector(periods: list[tuple[int, float]]) -> None:
    """Each period is slower than all before it."""
    sampler, level, selected, count = TailSampler(("slowest",), 0), 0.0, 0, 0
    for length, rise in periods:
        level += rise
        for place in range(length):
            count += 1
            selected += FINE._replace(seconds=level + place * 1e-6).selected(sampler)
            assert selected <= count * SLOWEST + BURST


def test_a_burst_of_slow_requests_is_selected_at_once() -> None:
    sampler = TailSampler(("slowest",), 0)
    for _ in range(2000):
        FINE.selected(sampler)
    slow = [FINE._replace(seconds=1.0).selected(sampler) for _ in range(50)]
    assert slow == [True] * int(BURST) + [False] * (50 - int(BURST))


def test_each_model_has_a_threshold_of_its_own() -> None:
    sampler = TailSampler(("slowest",), 0)
    for _ in range(2 * FEWEST):
        assert not FINE.selected(sampler)
        assert not FINE._replace(model="slow", seconds=10.0).selected(sampler)
    assert FINE._replace(seconds=1.0).selected(sampler)
    assert not FINE._replace(model="slow", seconds=10.0).selected(sampler)
    assert FINE._replace(model="slow", seconds=11.0).selected(sampler)


def test_models_are_bounded() -> None:
    sampler = TailSampler(("slowest",), 0)
    for i in range(2 * MOST_MODELS):
        FINE._replace(model=f"family-{i}").selected(sampler)
    assert len(sampler._slow) == MOST_MODELS
