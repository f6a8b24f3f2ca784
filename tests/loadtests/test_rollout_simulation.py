"""A small run of the simulation of rollouts, and its parts against the tests that the gateway uses."""

import json
from math import exp

import numpy as np
import pytest
from scipy.special import gammaln

from loadtests.simulations import rollout_runs, rollouts
from loadtests.simulations.exact_power import exact_power
from loadtests.simulations.rollout_runs import LAG, STEPS
from policies.sequential.event_ratio import EventCount, e_value, log_rise
from policies.sequential.proportions import Assigned, log_mismatch

pytestmark = pytest.mark.plain

RESEARCHED = {
    (0.01, 5): (133, 308), (0.01, 10): (46, 97), (0.05, 2): (303, 641), (0.05, 3): (95, 205), (0.05, 5): (35, 75),
    (0.05, 10): (13, 28), (0.2, 2): (106, 219), (0.2, 3): (39, 78), (0.2, 5): (17, 34), (0.2, 10): (9, 17),
    (0.5, 2): (89, 179), (0.5, 3): (36, 76), (0.5, 5): (21, 39), (0.5, 10): (14, 21),
}  # fmt: skip
"""The events until 50 % and 90 % of the runs alarm at 1 %, by share and ratio, computed exactly."""


@pytest.mark.parametrize("scenario", rollout_runs.SCENARIOS)
@pytest.mark.parametrize("share", rollout_runs.SHARES)
def test_equal_arms_alarm_in_at_most_alpha_of_the_runs(scenario: str, share: str) -> None:
    highest = rollout_runs.highest_e(scenario, 0.01, share, 200, 2000, seed=7)
    for alpha in rollouts.ALPHAS:
        assert np.sum(highest >= -np.log(alpha)) <= rollouts.most(alpha, 200)


def test_the_simulated_e_value_is_that_of_the_gateway() -> None:
    """They are equal at every event, also at omitted events and with counts that lag."""
    rng, shares = np.random.default_rng(5), np.array(STEPS["stepped"])
    bounds = np.array([0, 300, 301, 500, 800])
    step = np.repeat(np.arange(4), np.diff(bounds))
    canary = rng.random(800) < np.minimum(2 * shares[step], 0.9)

    def log_e(seen: np.ndarray) -> float:
        return log_rise(
            [EventCount(w, int(np.sum(seen & (step == k))), int(np.sum(seen & canary & (step == k))))
             for k, w in enumerate(shares)]
        )  # fmt: skip

    total, own = rollout_runs._counts(bounds, canary)
    index = np.arange(800)
    every = [log_e(index <= i) for i in index]
    assert rollout_runs._highest(total, own, shares) == pytest.approx(max(every))
    second = rng.random(800) < 0.5
    late = [log_e((index <= i) & (~second | (index < i // LAG * LAG))) for i in index]
    total, own = rollout_runs._lagging(step, canary, second, 4)
    assert rollout_runs._highest(total, own, shares) == pytest.approx(max(late))


@pytest.mark.parametrize(("share", "ratio"), [(0.01, 10), (0.05, 5), (0.2, 10), (0.5, 3)])
def test_the_power_is_that_of_the_exact_table(share: float, ratio: int) -> None:
    middle, ninth, own, most_own = rollout_runs.power(share, ratio, 0.01, 3000, 700, seed=2)
    assert middle is not None
    assert ninth is not None
    assert middle == pytest.approx(RESEARCHED[share, ratio][0], rel=0.1, abs=1.5)
    assert ninth == pytest.approx(RESEARCHED[share, ratio][1], rel=0.1, abs=2)
    assert own is not None
    assert most_own is not None
    assert own <= most_own <= ninth


@pytest.mark.parametrize(("share", "ratio"), RESEARCHED)
def test_the_exact_power_is_that_of_the_research(share: float, ratio: int) -> None:
    exact = exact_power(share, ratio, 0.01, 700)
    for one, other in zip(exact, RESEARCHED[share, ratio], strict=True):
        assert one == pytest.approx(other, rel=0.01, abs=1)


def test_an_exact_power_beyond_the_last_event_is_absent() -> None:
    assert exact_power(0.01, 2, 0.01, 700) == (None, None)
    middle, ninth = exact_power(0.01, 3, 0.01, 700)
    assert middle == pytest.approx(410, rel=0.01)
    assert ninth is None


def test_a_power_that_differs_by_more_than_a_tenth_is_reported() -> None:
    exact = (100, 200)
    same = rollouts.PowerCell(0.05, 3, (109, 190, 1, 2), exact)
    assert not same.differs
    assert same._replace(simulated=(112, 200, 1, 2)).differs
    assert same._replace(simulated=(100, None, 1, None)).differs
    assert not same._replace(simulated=(9, 17, 1, 2), exact=(10, 18)).differs
    assert not same._replace(simulated=(100, None, 1, None), exact=(100, 690)).differs


@pytest.mark.benchmarks
def test_the_proof_of_equal_arms_takes_as_many_events_as_computed() -> None:
    for below, events in ((2.0, 53), (3.0, 22)):
        assert rollout_runs.promotion(0.5, below, 0.05, 2000, 700, seed=3) == pytest.approx(events, rel=0.1, abs=1.5)


def test_the_controls_alarm_too_often_and_their_remedies_do_not() -> None:
    """A z-test that is read at every event, and each event of users of whom few have most, are not valid."""
    bound = rollouts.most(0.05, 200)
    assert rollout_runs.z_test(200, 5000, seed=1) > bound
    every, once = rollout_runs.heavy_users(200, 5000, seed=1)
    assert every > bound >= once
    assert rollout_runs.mismatches(200, 5000, seed=1) <= rollouts.most(0.001, 200)


def test_the_simulated_sample_ratio_test_is_that_of_the_gateway() -> None:
    n, own = 4000, 150
    assigned = log_mismatch([Assigned((0.05, 0.95), (own, n - own))])
    whole = gammaln(100.0) - gammaln(100.0 + n)
    parts = [gammaln(100 * w + k) - gammaln(100 * w) - k * np.log(w) for w, k in ((0.05, own), (0.95, n - own))]
    assert exp(assigned) == pytest.approx(float(np.exp(whole + sum(parts))), rel=1e-6)
    assert e_value(assigned) > 1


def test_a_claim_that_does_not_hold_is_reported() -> None:
    rows: list[dict[str, object]] = [
        {"scenario": "steady", "base": 0.01, "share": "5%", "alarms": {"5%": 130, "1%": 5}},
        {"scenario": "drift", "base": 0.01, "share": "5%", "alarms": {"5%": 129, "1%": 33}},
    ]
    right = {"z-test at every event": 900, "every event of heavy users": 700, "one event per user": 50}
    assert rollouts.failures(rows, right, 2000) == ["steady at 0.01 and 5%: {'5%': 130, '1%': 5}"]
    wrong = {"z-test at every event": 3, "one event per user": 400, "sample ratio": 40}
    assert len(rollouts.failures(rows[1:], wrong, 2000)) == 3


@pytest.mark.benchmarks
def test_the_program_prints_its_tables_and_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    rollouts.main(["--runs", "4", "--peeks", "2000", "--jobs", "1"])
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])
    assert len(figures["alarms"]) == 48
    assert "| lagging workers | 10.0% |" in printed
    assert "| 50% |" in printed
