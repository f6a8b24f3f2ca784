"""Rollouts in both kinds of database: counts, decisions, orders, the lease, and subjects that count once."""

from collections.abc import Iterator

import pytest

from gateway.features.rollouts.schema import TAKEOVER
from policies.rollouts.decide import OrderRefused
from policies.rollouts.tally import ArmTally, StratumTally
from tests.support.rollouts import OPERATOR, Gateway, counts, planned

pytestmark = pytest.mark.usefixtures("plain_generations")


@pytest.fixture
def gateways(any_database: str) -> Iterator[list[Gateway]]:
    made = [Gateway(any_database), Gateway(any_database)]
    yield made
    for gateway in made:
        gateway.store.close()


@pytest.fixture
def one(gateways: list[Gateway]) -> Gateway:
    return gateways[0]


def test_counts_add_up_over_gateways_and_restarts(gateways: list[Gateway]) -> None:
    one, two = gateways
    one.tick(planned())
    one.tick(planned(), counts(95, 5, (3, 1)))
    two.tick(planned(), counts(95, 5, (2, 0)))
    progress = one.store.read()["r"]
    assert progress.strata[0].events == {"failures": [5, 1]}
    assert (progress.strata[0].assigned, progress.strata[0].ended) == ([190, 10], [190, 10])
    again = Gateway(one.url)
    assert again.store.read()["r"] == progress
    again.store.close()


def test_counts_of_strata_and_generations_that_are_gone_are_dropped(one: Gateway) -> None:
    one.tick(planned())
    one.tick(planned(), counts(1, 1, stratum=7), counts(1, 1, generation=9))
    assert one.store.read()["r"].strata[0].assigned == [0, 0]


def test_one_gateway_decides_and_another_takes_over_when_it_ends(gateways: list[Gateway]) -> None:
    one, two = gateways
    assert one.tick(planned(), seconds=1) is not None
    elapsed = one.store.read()["r"].elapsed
    for _ in range(5):
        assert two.tick(planned(), seconds=1) is not None
    assert one.store.read()["r"].elapsed == elapsed
    two.now += TAKEOVER
    two.tick(planned(), seconds=1)
    assert one.store.read()["r"].elapsed == elapsed + 1
    one.tick(planned(), seconds=1)
    assert one.store.read()["r"].elapsed == elapsed + 1


def test_a_holder_that_beats_is_never_replaced(gateways: list[Gateway]) -> None:
    """Also by a gateway whose clock runs a hundred times as fast."""
    one, two = gateways
    one.tick(planned())
    for _ in range(30):
        one.tick(planned(), seconds=1)
        before = one.store.read()["r"].elapsed
        two.tick(planned(), seconds=9.9)
        assert one.store.read()["r"].elapsed == before


def test_a_released_lease_is_free_at_once(gateways: list[Gateway]) -> None:
    one, two = gateways
    one.tick(planned())
    one.store.release(one.lease)
    elapsed = one.store.read()["r"].elapsed
    two.tick(planned())
    assert one.store.read()["r"].elapsed == elapsed + 1


def test_only_the_decider_starts_a_rollout_anew_for_other_arms(gateways: list[Gateway]) -> None:
    """While gateways reload one after the other, two files are in force."""
    one, two = gateways
    one.tick(planned("old"))
    one.tick(planned("old"), counts(95, 5))
    assert two.tick(planned("new"), counts(95, 5)) is None
    assert one.store.read()["r"].fingerprint == "old"
    progress = one.tick(planned("new"))
    assert progress is not None
    assert (progress.fingerprint, progress.generation, progress.step) == ("new", 2, 0)
    assert one.store.read()["r"].strata[0].assigned == [0, 0]


def test_a_reload_with_other_conditions_preserves_the_state(one: Gateway) -> None:
    one.tick(planned())
    one.tick(planned(), counts(95, 5, (1, 1)))
    one.tick(planned(alpha="5%", back_if=[{"metric": "first_byte", "slower_than": "2s"}]))
    progress = one.store.read()["r"]
    assert (progress.generation, progress.strata[0].events) == (1, {"failures": [1, 1]})


def test_decisions_have_audit_entries_with_their_evidence(one: Gateway) -> None:
    one.tick(planned())
    one.tick(planned(), counts(95, 5))
    back = one.tick(planned(), counts(9405, 495, (20, 14)))
    assert back is not None
    assert (back.status, back.share) == ("back", 0.0)
    one.tick(planned())
    actions = one.audit()
    assert [action for action, _ in actions] == ["rollout.start", "rollout.back"]
    evidence = actions[1][1]["evidence"][0]
    assert (evidence["event"], evidence["from"], evidence["to"]) == ("failures", 20, 14)
    assert evidence["e"] >= 100
    assert 1.2 < evidence["ratio"][0] < 14 / 20 * 19 < evidence["ratio"][1]


def test_an_operator_s_orders_are_followed_once_each(one: Gateway) -> None:
    with pytest.raises(OrderRefused, match="no gateway has begun"):
        one.store.order(planned(), "back", OPERATOR)
    one.tick(planned())
    assert one.order(planned(), "pause").status == "held"
    assert one.order(planned(), "back").share == 0.0
    with pytest.raises(OrderRefused):
        one.store.order(planned(), "back", OPERATOR)
    with pytest.raises(OrderRefused, match="no gateway has begun"):
        one.store.order(planned("other arms"), "on", OPERATOR)
    assert [action for action, _ in one.audit()] == ["rollout.start", "rollout.pause", "rollout.back"]


def test_the_time_series_has_the_weight_and_the_evidence(gateways: list[Gateway]) -> None:
    one, two = gateways
    wall = 1000.0
    for each in gateways:
        each.store._wall = lambda: wall
    for second in range(120):
        wall += 1.0
        one.tick(planned(), counts(95, 5))
        if second == 60:
            two.store.read()
    one.tick(planned(), counts(9405, 495, (20, 14)))
    wall += 2.0
    one.tick(planned())
    points = one.store.series("r", 1)
    weights = [point["weight"] for point in points]
    assert 4 <= len(points) <= 8
    assert weights[0] > 0 == weights[-1]
    assert points[-1]["status"] == "back"
    conditions = points[-1]["conditions"]
    assert (conditions[0]["kind"], conditions[0]["event"]) == ("back_if", "failures")
    assert conditions[0]["e_value"] >= 100
    assert two.store.series("r", 1) == points


def subjects(key: str, arms: dict[int, int]) -> StratumTally:
    return StratumTally("r", 1, 0, ArmTally(subjects={key: arms}))


def test_a_subject_that_two_processes_report_counts_once(gateways: list[Gateway]) -> None:
    one, two = gateways
    users = planned(sticky="user")
    one.tick(users)
    one.tick(users, subjects("failures", {1: 1, 2: 0}))
    two.tick(users, subjects("failures", {2: 0, 3: 0}), subjects("", {1: 1, 9: 0}))
    one.tick(users, subjects("failures", dict.fromkeys(range(1, 4), 1)))
    progress = one.store.read()["r"]
    assert progress.strata[0].events == {"failures": [2, 1]}
    assert progress.strata[0].assigned == [1, 1]
    assert progress.subjects == {"failures": 3, "": 2}


def test_any_number_of_subjects_counts(one: Gateway) -> None:
    users = planned(sticky="user")
    one.tick(users)
    for start in range(0, 12_000, 4_000):
        one.tick(users, subjects("", {i: i % 2 for i in range(start, start + 4_000)}))
    assert one.store.read()["r"].strata[0].assigned == [6_000, 6_000]
