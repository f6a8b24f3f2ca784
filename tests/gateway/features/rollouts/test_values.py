"""Values of clients in both kinds of database: each counts once, with its baseline, over all gateways."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from config.schema.experiment import ExperimentConfig, FeedbackMetricConfig
from gateway.auth.audit import Actor
from gateway.features.rollouts import values as stored_values
from gateway.features.rollouts.planned import Planned
from gateway.features.rollouts.schema import decider_lease
from gateway.features.rollouts.store import CountBatch, RolloutStore
from policies.experiments.progress import ExperimentProgress
from policies.rollouts.progress import RolloutProgress
from tests.support.gateways import PEPPER
from tests.support.planned_rollouts import plan
from tests.support.rollouts import row

pytestmark = pytest.mark.usefixtures("plain_generations")

METRICS = {"solved": FeedbackMetricConfig.model_validate({"name": "solved", "within": "1h"})}


def planned(fingerprint: str = "f", **changes: Any) -> Planned:
    fields = {"name": "e", "arms": ["a", "b"], "metric": "solved", "warmup": "0s", **changes}
    return Planned(ExperimentConfig.model_validate(fields), fingerprint, METRICS)


class Node:
    """One gateway: its store, its lease, its wall clock."""

    def __init__(self, database: str) -> None:
        self.now = 1000.0
        self.number = 0
        self.store = RolloutStore(database, PEPPER, lambda: self.now)
        self.lease = decider_lease(lambda: self.now)

    def tick(self, plan: Planned, seconds: float = 1.0) -> ExperimentProgress:
        self.now += seconds
        self.number += 1
        progress = self.store.tick([plan], CountBatch(self.number, ()), self.lease, seconds)["e"]
        assert isinstance(progress, ExperimentProgress)
        return progress


@pytest.fixture
def nodes(any_database: str) -> Iterator[list[Node]]:
    made = [Node(any_database), Node(any_database)]
    yield made
    for node in made:
        node.store.close()


def counts(progress: ExperimentProgress) -> tuple[list[int], list[float]]:
    sums = progress.metrics["solved"]
    return sums.counts, sums.totals


def test_a_value_counts_once_whichever_gateway_gets_it(nodes: list[Node]) -> None:
    one, two = nodes
    one.tick(planned())
    one.store.report([row(1, 0, 1.0), row(2, 1, 0.0), row(1, 0, 0.0)])
    two.store.report([row(1, 0, 0.0), row(3, 1, 1.0)])
    assert counts(one.tick(planned())) == ([1, 2], [1.0, 1.0])
    two.store.report([row(1, 0, 1.0), row(2, 1, 1.0), row(3, 1, 1.0)])
    assert counts(one.tick(planned())) == ([1, 2], [1.0, 1.0])


def test_many_values_count_over_several_decisions(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = nodes
    monkeypatch.setattr(stored_values, "MOST_AT_ONCE", 40)
    one.tick(planned())
    one.store.report([row(unit, unit % 2, 1.0) for unit in range(100)])
    assert sum(counts(one.tick(planned()))[0]) == 40
    assert sum(counts(one.tick(planned()))[0]) == 80
    assert sum(counts(one.tick(planned()))[0]) == 100


def test_another_decider_continues_after_the_last_counted_value(nodes: list[Node]) -> None:
    one, two = nodes
    one.tick(planned())
    one.store.report([row(1, 0, 1.0)])
    one.tick(planned())
    one.store.release(one.lease)
    two.store.report([row(2, 1, 1.0)])
    assert counts(two.tick(planned())) == ([1, 1], [1.0, 1.0])


def test_values_of_arms_before_do_not_count(nodes: list[Node]) -> None:
    one, _ = nodes
    one.tick(planned())
    one.store.report([row(1, 0, 1.0)])
    one.tick(planned())
    assert one.tick(planned("other arms")).generation == 2
    one.store.report([row(2, 0, 1.0)])
    one.store.report([row(1, 0, 1.0, generation=2)])
    assert counts(one.tick(planned("other arms"))) == ([1, 0], [1.0, 0.0])


def test_doubles_are_recognised_until_they_would_come_too_late(nodes: list[Node]) -> None:
    one, _ = nodes
    one.tick(planned())
    one.store.report([row(1, 0, 1.0)])
    one.tick(planned(), 3600 + 3000)
    one.store.report([row(1, 0, 1.0)])
    assert counts(one.tick(planned()))[0] == [1, 0]
    one.tick(planned(), 7200)
    with one.store._database.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM feedback").scalar() == 0


def test_a_baseline_predicts_the_values_of_its_subjects(nodes: list[Node]) -> None:
    one, _ = nodes
    plan = planned(sticky="user", baseline="100s")
    one.tick(plan)
    rng, levels = Random(1), [0.1, 0.9]
    users = {unit: rng.choice(levels) for unit in range(400)}
    one.store.report([row(unit, 0, level, stratum=0) for unit, level in users.items()])
    one.tick(plan, 60)
    one.store.report([row(unit, 0, level, stratum=1) for unit, level in list(users.items())[:300]])
    progress = one.tick(plan, 60)
    assert progress.covariate is not None
    assert progress.covariate == pytest.approx((1.0, sum(users.values()) / 400), abs=0.02)
    one.store.report([row(unit, unit % 2, level) for unit, level in users.items()])
    one.store.report([row(1000, 0, 0.5)])
    progress = one.tick(plan)
    assert progress.metrics["solved"].predicted == 400
    low, high = progress.metrics["solved"].pairs[0].interval(0.05)
    assert high - low < 0.15
    assert one.tick(plan).covariate == progress.covariate


def test_a_baseline_without_values_predicts_nothing(nodes: list[Node]) -> None:
    one, _ = nodes
    plan = planned(sticky="user", baseline="100s")
    one.tick(plan)
    assert one.tick(plan, 101).covariate == (0.0, 0.0)


def test_a_rollout_counts_bad_values(nodes: list[Node]) -> None:
    one, _ = nodes
    rollout = Planned(plan(back_if=[{"metric": "feedback", "of": "solved"}], warmup="0s"), "f", METRICS)

    def tick() -> RolloutProgress:
        one.number += 1
        progress = one.store.tick([rollout], CountBatch(one.number, ()), one.lease, 1.0)["r"]
        assert isinstance(progress, RolloutProgress)
        return progress

    tick()
    values = [row(unit, 1, float(unit < 10), 0, comparison="r") for unit in range(60)]
    one.store.report([*values, *values])
    progress = tick()
    assert progress.strata[0].events == {"feedback:solved": [0, 50]}
    assert (progress.status, progress.reason) == ("back", "feedback:solved")


def test_the_series_and_an_order_are_those_of_the_generation(nodes: list[Node]) -> None:
    one, _ = nodes
    one.tick(planned())
    one.tick(planned(), 61)
    assert [at["elapsed_seconds"] for at in one.store.series("e", 1)] == [1.0, 62.0]
    one.store.order(planned(), "stop", Actor("ann", "operator"))
    one.store.order(planned(), "on", Actor("ann", "operator"))
    assert one.store.series("e", 1) == []
    assert one.store.series("e", 2) == []


def test_values_of_another_scale_do_not_add_up(nodes: list[Node]) -> None:
    one, _ = nodes
    before, after = (
        Planned(planned().config, "f", {"solved": FeedbackMetricConfig(name="solved", type="number", min=0, max=most)})
        for most in (1, 10)
    )
    one.tick(before)
    one.store.report([row(unit, unit % 2, 1.0) for unit in range(10)])
    assert counts(one.tick(before))[0] == [5, 5]
    one.store.report([row(99, 0, 0.1)])
    progress = one.tick(after)
    assert counts(progress) == ([1, 0], [pytest.approx(0.1), 0.0])
    assert progress.strata[2].values == {"solved": [1, 0]}
    assert counts(one.tick(after))[0] == [1, 0]
