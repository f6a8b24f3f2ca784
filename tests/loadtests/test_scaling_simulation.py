"""Small runs of the simulation of scaling, and its pool against sums that are easy to do by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from loadtests.simulations import scaling
from loadtests.simulations.scaling_days import DAY, invented, published
from loadtests.simulations.scaling_pool import SimulatedPool
from loadtests.simulations.scaling_rules import Headrace, Knative, RayServe, Rule
from policies.scaling.scaler import ScalingFacts, ScalingRules

pytestmark = pytest.mark.plain


class Fixed:
    """A rule with a number for each time."""

    tick = 1.0

    def __init__(self, *replicas: int) -> None:
        self._replicas = replicas

    def desired(self, facts: ScalingFacts, now: float) -> int:
        return self._replicas[min(int(now), len(self._replicas)) - 1]


def test_replica_hours_and_waits_of_a_small_pool() -> None:
    """Four requests of 10 s for one replica of two places; a second replica is ordered at 1 s and serves at 4 s."""
    pool = SimulatedPool(Fixed(2), places=2, start=3.0, replicas=1)
    outcome = pool.run([0.0, 0.0, 0.5, 0.5], [10.0] * 4)
    assert outcome.p50 == pytest.approx(1.75)  # of 0, 0, 3.5 and 3.5 s
    assert outcome.longest == pytest.approx(3.5)
    assert outcome.replica_hours == pytest.approx((14 + 13) / 3600)
    assert (outcome.starts, outcome.peak) == (1, 2)


def test_a_removed_replica_finishes_its_requests() -> None:
    outcome = SimulatedPool(Fixed(1), places=1, start=3.0, replicas=2).run([0.0, 0.0], [10.0, 20.0])
    assert outcome.longest == 0
    assert outcome.replica_hours == pytest.approx(30 / 3600)


@pytest.mark.parametrize(
    ("rule", "demand", "replicas"),
    [
        (Knative(10, 1, 100), 70.0, 10),  # 70 % of 10 places
        (RayServe(5, 1, 100), 20.0, 10),  # 2 of 5 places
        (Headrace(ScalingRules(10, 1, 100)), 64.0, 8),  # 64 + 2 x 8 at 10
    ],
)
def test_constant_demand(rule: Rule, demand: float, replicas: int) -> None:
    current = 9
    for tick in range(1, 2000):
        current = rule.desired(ScalingFacts(demand, ready=current), tick * rule.tick)
    assert current == replicas


def test_knative_removes_nothing_for_a_minute_after_a_panic() -> None:
    rule = Knative(10, 1, 100)
    for tick in range(30):
        rule.desired(ScalingFacts(7.0, ready=1), 2.0 * tick)
    burst = [rule.desired(ScalingFacts(140.0, ready=1), 60.0 + 2 * tick) for tick in range(3)]
    assert burst[-1] == 20
    after = [rule.desired(ScalingFacts(0.0, ready=20), 66.0 + 2 * tick) for tick in range(40)]
    assert after[25] == 20
    assert after[-1] < 20


def test_an_invented_day_has_its_rate_and_is_the_same_for_a_seed() -> None:
    day = invented(0.5, 3)
    assert len(day.at) == pytest.approx(0.5 * DAY, rel=0.2)
    assert np.all(np.diff(day.at) >= 0)
    assert np.array_equal(day.at, invented(0.5, 3).at)


def test_a_published_day_is_drawn_from_its_clients(tmp_path: Path) -> None:
    lengths = {"0": {"input_tokens": "{100: 0.5, 300: 0.5}", "output_tokens": "{7: 1.0}"}}
    for number, rate in enumerate((0.3, 0.1)):
        rows = [f"{start},{rate if start < 129600 else 0},1.5,Gamma,0.4,5" for start in range(0, 172800, 600)]
        (tmp_path / f"chunk-{number}-trace.csv").write_text("\n".join(rows))
        (tmp_path / f"chunk-{number}-dataset.json").write_text(json.dumps(lengths))
    day = published(tmp_path, 1, 0.5, seed=2)
    assert len(day.at) == pytest.approx(0.5 * DAY, rel=0.1)
    assert day.at.max() < DAY / 2  # the second half of the day has no requests
    assert set(day.prompt) == {100, 300}
    assert set(day.completion) == {7}
    with pytest.raises(ValueError, match="day 5"):
        published(tmp_path, 5, 0.5, seed=2)


@pytest.mark.benchmarks
def test_the_command_prints_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    scaling.main(["--days", "1", "--rate", "0.2"])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last["ratios"]) == {"replica_hours/knative", "replica_hours/ray-serve"}
    assert {row["rule"].split(",")[0] for row in last["rows"]} == {"knative", "ray-serve", "headrace"}
