"""The decisions of experiments: winners, stopped arms, sample ratios, Thompson sampling, baselines and orders."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from config.schema.experiment import ExperimentConfig, FeedbackMetricConfig
from policies.experiments.decide import advance, ordered
from policies.experiments.progress import ExperimentProgress
from policies.experiments.report import described, is_due, point
from policies.experiments.values import ReportedValue, bad_values, count_value
from policies.rollouts.decide import OrderRefused

SOLVED = FeedbackMetricConfig(name="solved")
STARS = FeedbackMetricConfig(name="stars", type="number", min=1, max=5)


def planned(**changes: Any) -> ExperimentConfig:
    fields = {"name": "e", "arms": ["a", "b"], "metric": "solved", "warmup": "0s", **changes}
    return ExperimentConfig.model_validate(fields)


class Run:
    """One experiment with its progress."""

    def __init__(self, config: ExperimentConfig, metric: FeedbackMetricConfig = SOLVED, seed: int = 1) -> None:
        self.config = config
        self.metric = metric
        self.rng = Random(seed)
        self.progress = ExperimentProgress("e", "f")
        self.unit = 0
        self.tick()

    def tick(self, seconds: float = 1.0) -> ExperimentProgress:
        self.progress = advance(self.config, self.metric, self.progress, seconds, self.rng)
        return self.progress

    def report(self, arm: int, value: float, before: float | None = None) -> None:
        progress = self.progress
        assert progress.stratum is not None
        self.unit += 1
        progress.strata[progress.stratum].assigned[arm] += 1
        count_value(progress, ReportedValue(self.metric.name, self.unit, arm, progress.stratum, value), before)

    def users(self, count: int, *rates: float) -> None:
        """Users that are assigned to arms by the shares, and report 1 with the rates of their arms."""
        arms = range(len(rates))
        for _ in range(count):
            arm = self.rng.choices(arms, self.progress.shares)[0]
            self.report(arm, float(self.rng.random() < rates[arm]))

    def fail(self, *failures: int) -> None:
        progress = self.progress
        assert progress.stratum is not None
        progress.strata[progress.stratum].events["failures"] = list(failures)


def test_the_certainly_better_arm_wins() -> None:
    run = Run(planned())
    for _ in range(20):
        run.users(100, 0.3, 0.6)
        run.tick()
    assert (run.progress.status, run.progress.winner) == ("decided", 1)
    assert run.progress.shares == (0.5, 0.5)
    view = described(run.config, [SOLVED], run.progress)
    arm = view["metrics"]["solved"]["arms"][1]
    assert arm["e_value"]["better"] >= view["needed"]
    assert arm["interval"][0] > 0
    assert view["winner"] == "b"


def test_then_winner_gives_all_requests_to_the_winner() -> None:
    run = Run(planned(then="winner"))
    for _ in range(20):
        run.users(100, 0.8, 0.4) if run.progress.stratum is not None else None
        run.tick()
    assert (run.progress.winner, run.progress.shares, run.progress.stratum) == (0, (1.0, 0.0), None)


def test_lower_is_better() -> None:
    run = Run(planned(), FeedbackMetricConfig(name="solved", better="lower"))
    run.users(2000, 0.3, 0.6)
    assert run.tick().winner == 0


def test_a_number_has_the_units_of_its_metric() -> None:
    run = Run(planned(metric="stars"), STARS)
    for i in range(3000):
        run.report(i % 2, [0.25, 0.75][i % 2])
    arm = described(run.config, [STARS], run.tick())["metrics"]["stars"]["arms"][1]
    assert arm["mean"] == 4.0
    assert arm["effect"] == pytest.approx(2.0, abs=0.05)
    assert arm["interval"][0] < 2 < arm["interval"][1]


def test_equal_arms_have_no_winner_and_longest_ends_them() -> None:
    run = Run(planned(longest="1h", then="winner"))
    for _ in range(20):
        run.users(100, 0.5, 0.5)
        run.tick()
    assert run.progress.status == "running"
    run.tick(3600)
    assert (run.progress.status, run.progress.winner, run.progress.shares) == ("over", None, (1.0, 0.0))


def test_of_three_arms_one_must_be_better_than_each() -> None:
    run = Run(planned(arms=["a", "b", "c"]))
    run.users(6000, 0.2, 0.7, 0.7)
    assert run.tick().status == "running"
    run.users(4000, 0.2, 0.7, 0.95)
    assert run.tick().winner == 2


def test_a_guard_stops_its_arm_and_the_last_arm_wins() -> None:
    run = Run(planned(arms=["a", "b", "c"]))
    run.fail(0, 0, 40)
    run.tick()
    assert run.progress.dropped == {2: "failures"}
    assert run.progress.shares == (0.5, 0.5, 0.0)
    assert run.progress.status == "running"
    run.fail(0, 40, 0)
    run.tick()
    assert run.progress.dropped == {2: "failures", 1: "failures"}
    assert (run.progress.status, run.progress.winner) == ("decided", 0)


def test_a_guard_on_values_counts_bad_ones() -> None:
    config = planned(guards=[{"metric": "feedback", "of": "stars", "worse_than": 2}])
    metrics = {"stars": STARS, "solved": SOLVED}
    (key,) = (event.key for event in config.events())
    for value, expected in ((0.0, [key]), (0.24, [key]), (0.25, []), (1.0, [])):
        assert bad_values(config.events(), metrics, ReportedValue("stars", 1, 0, 2, value)) == expected
    assert bad_values(config.events(), metrics, ReportedValue("solved", 1, 0, 2, 0.0)) == []
    assert bad_values(config.events(), {}, ReportedValue("stars", 1, 0, 2, 0.0)) == []


@pytest.mark.parametrize("reason", ["sample ratio", "feedback ratio"])
def test_a_wrong_ratio_suspends_every_verdict_until_an_operator_accepts_it(reason: str) -> None:
    run = Run(planned())
    run.users(1000, 0.2, 0.9)
    stratum = run.progress.strata[2]
    if reason == "sample ratio":
        stratum.assigned[:] = [700, 300]
    else:
        stratum.values["solved"][:] = [700, 300]
    run.fail(0, 100)
    run.tick()
    assert (run.progress.status, run.progress.reason, run.progress.winner) == ("held", reason, None)
    assert run.progress.dropped == {}
    run.progress = ordered(run.config, run.progress, "on")
    run.tick()
    assert run.progress.winner in (0, 1)


def test_a_paused_experiment_decides_nothing() -> None:
    run = Run(planned())
    run.progress = ordered(run.config, run.progress, "pause")
    run.users(2000, 0.2, 0.9)
    assert run.tick().status == "held"
    run.progress = ordered(run.config, run.progress, "on")
    assert run.tick().winner == 1
    with pytest.raises(OrderRefused):
        ordered(run.config, run.progress, "pause")
    with pytest.raises(OrderRefused):
        ordered(run.config, run.progress, "on")


def test_a_stopped_experiment_leaves_all_requests_with_the_control_and_starts_anew() -> None:
    run = Run(planned())
    run.progress = ordered(run.config, run.progress, "stop")
    assert (run.progress.shares, run.progress.stratum) == ((1.0, 0.0), None)
    assert run.tick(1000).shares == (1.0, 0.0)
    with pytest.raises(OrderRefused):
        ordered(run.config, run.progress, "stop")
    run.progress = ordered(run.config, run.progress, "on")
    assert (run.progress.generation, run.progress.status) == (2, "running")
    assert run.tick().shares == (0.5, 0.5)


def test_thompson_sampling_favours_the_better_arm_and_leaves_each_its_floor() -> None:
    run = Run(planned(arms=["a", "b", "c"], decide="thompson", floor="10%", every="1m", alpha="0.01%"))
    seen = set()
    for _ in range(30):
        run.users(50, 0.2, 0.5, 0.3)
        run.tick(60)
        assert sum(run.progress.shares) == pytest.approx(1.0)
        assert min(run.progress.shares) >= 0.1 - 1e-12
        seen.add(run.progress.shares)
    assert run.progress.shares[1] == pytest.approx(0.8)
    assert len(run.progress.strata) <= len(seen) + 3
    assert sum(sum(stratum.assigned) for stratum in run.progress.compared) == 1500


def test_without_values_the_shares_of_thompson_sampling_stay() -> None:
    run = Run(planned(decide="thompson"))
    assert run.tick(7200).shares == (0.5, 0.5)


def test_edited_weights_are_another_set_of_shares() -> None:
    run = Run(planned())
    run.users(100, 0.5, 0.5)
    run.config = planned(arms=["a", {"pool": "b", "weight": 3}])
    run.tick()
    assert run.progress.shares == (0.25, 0.75)
    assert [sum(stratum.assigned) for stratum in run.progress.compared] == [100, 0]
    run.config = planned()
    run.tick()
    assert run.progress.stratum == 2


def test_the_warm_up_and_the_baseline_precede_the_comparison() -> None:
    run = Run(planned(sticky="user", warmup="10s", baseline="1h"))
    assert (run.progress.shares, run.progress.stratum) == ((1.0, 0.0), None)
    assert run.tick(10).stratum == 0
    assert run.tick(1799).stratum == 1
    assert run.progress.shares == (1.0, 0.0)
    assert run.tick(1800).stratum == 2
    assert run.progress.shares == (0.5, 0.5)


def test_a_baseline_narrows_the_interval() -> None:
    """Users differ much, arms little. Both experiments have the same values."""
    widths = []
    for theta in (0.0, 1.0):
        run = Run(planned(sticky="user"), seed=3)
        run.progress = replace(run.progress, covariate=(theta, 0.5))
        rng = Random(5)
        for _ in range(4000):
            arm, level = rng.randrange(2), rng.choice((0.1, 0.9))
            value = min(max(level + 0.05 * arm + rng.gauss(0, 0.02), 0.0), 1.0)
            run.report(arm, value, before=level)
        shown = described(run.config, [SOLVED], run.tick())["metrics"]["solved"]["arms"][1]
        low, high = shown["interval"]
        assert low < 0.05 < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3


def test_values_of_other_strata_do_not_count() -> None:
    run = Run(planned())
    for stratum in (0, 1, 3, 99):
        count_value(run.progress, ReportedValue("solved", 1, 0, stratum, 1.0), None)
    assert run.progress.metrics == {}


def test_the_time_series_grows_with_the_logarithm_of_the_time() -> None:
    run, points = Run(planned(alpha="0.01%")), 0
    run.users(50, 0.5, 0.5)
    for _ in range(14 * 24 * 60):
        run.progress = replace(run.progress, elapsed=run.progress.elapsed + 60)
        if is_due(run.progress):
            run.progress = replace(run.progress, pointed_at=run.progress.elapsed)
            points += 1
    assert 400 < points < 800
    shown = point(run.config, SOLVED, run.progress)
    assert [arm["share"] for arm in shown["arms"]] == [0.5, 0.5]
    assert sum(arm["samples"] for arm in shown["arms"]) == 50
    assert shown["arms"][1]["interval"][0] < shown["arms"][1]["effect"] < shown["arms"][1]["interval"][1]
