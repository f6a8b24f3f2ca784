"""A small run of the simulation of experiments, and its parts against the test that the gateway uses."""

import numpy as np
import pytest

from loadtests.simulations import experiment_runs, rollouts
from loadtests.simulations.experiment_runs import Arms, run
from policies.sequential import effect
from policies.sequential.effect import EffectSum

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("scenario", experiment_runs.SCENARIOS)
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_equal_arms_have_a_winner_in_at_most_alpha_of_the_runs(scenario: str, share: float) -> None:
    result = run(scenario, Arms(0.3, 0.3, share), 200, 600, seed=3)
    assert np.sum(result.highest >= np.log(2 / 0.05)) <= rollouts.most(0.05, 200)
    assert np.sum(result.z >= 1.96) > rollouts.most(0.05, 200)  # the control: a z-test at every value


@pytest.mark.benchmarks
def test_rare_values_name_no_wrong_winner() -> None:
    """1 % against 5 %: both arms often begin without any value of 1, whose variance is 0."""
    result = run("steady", Arms(0.05, 0.01), 400, 1500, seed=9)
    assert np.sum(result.decided_at <= 1500) <= rollouts.most(0.025, 400)
    right = run("steady", Arms(0.01, 0.05), 400, 1500, seed=9)
    assert np.sum(right.decided_at <= 1500) > 5 * rollouts.most(0.025, 400)


def test_a_better_arm_wins_and_thompson_sampling_leaves_the_floor() -> None:
    result = run("steady", Arms(0.3, 0.7), 100, 600, seed=4)
    assert np.mean(result.decided_at <= 600) > 0.95
    sampled = run("thompson", Arms(0.3, 0.7), 100, 1000, seed=4, floor=0.05)
    assert sampled.share > 0.9
    assert sampled.least_share == pytest.approx(0.05)


def test_a_baseline_needs_fewer_values() -> None:
    plain, predicted = (run("steady", Arms(0.4, 0.6), 100, 800, seed=5, skill=skill) for skill in (0.0, 0.8))
    assert np.median(predicted.decided_at) < 0.85 * np.median(plain.decided_at)


def test_the_simulated_e_value_is_that_of_the_gateway() -> None:
    assert tuple(experiment_runs.BETS) == effect._BETS
    rng, sums = np.random.default_rng(8), EffectSum()
    for _ in range(300):
        sums.add(bool(rng.random() < 0.3), float(rng.uniform(-0.5, 0.9)), 0.3)
    simulated = experiment_runs._log_mixture(np.array([sums.total]), np.array([sums.squares]))
    assert simulated[0] == pytest.approx(sums.log_above())
