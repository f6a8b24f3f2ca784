"""The number of replicas: bounds, reasons, and properties over all sequences of measurements."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.scaling.scaler import (
    LEAST,
    MOST,
    Demand,
    Scaler,
    ScalingDecision,
    ScalingFacts,
    ScalingRules,
    SleepFacts,
    chosen,
    resized,
)

RULES = ScalingRules(places=8, least=0, most=20)

intervals = st.lists(
    st.tuples(
        st.floats(0, 300),
        st.builds(
            ScalingFacts,
            demand=st.floats(0, 1e4),
            waiting=st.integers(0, 1000),
            ready=st.integers(0, 30),
            starting=st.integers(0, 30),
            begun=st.integers(0, 1000),
            late=st.integers(0, 1000),
            occupancy=st.floats(0, 1),
            floor=st.integers(0, 30),
        ),
    ),
    max_size=40,
)
rules = st.builds(
    ScalingRules,
    places=st.floats(0.5, 100),
    least=st.integers(0, 5),
    most=st.integers(5, 40),
    wait=st.floats(0, 60),
    late=st.floats(0.001, 0.5),
    hold=st.floats(0, 3600),
    idle=st.floats(0, 3600),
)


@given(rules, intervals)
def test_a_decision_is_within_its_bounds_and_has_a_reason(
    rules: ScalingRules, history: list[tuple[float, ScalingFacts]]
) -> None:
    scaler, now = Scaler(rules), 0.0
    for seconds, facts in history:
        now += seconds
        decision = scaler.desired(facts, now)
        assert max(rules.least, min(facts.floor, rules.most)) <= decision.replicas <= rules.most
        assert decision.reason
        assert LEAST <= scaler.margin <= scaler.largest_margin
        if facts.waiting:
            assert decision.replicas >= min(1, rules.most)


@given(st.floats(0.1, 1000), st.floats(0.5, 50))
def test_constant_demand_has_places_and_a_margin_of_its_square_root(demand: float, places: float) -> None:
    scaler = Scaler(ScalingRules(places, least=0, most=10**6))
    for tick in range(400):
        decision = scaler.desired(ScalingFacts(demand, ready=1), 2.0 * tick)
    margin = scaler.margin
    assert decision.replicas == max(1, ceil((demand + margin * demand**0.5) / places - 1e-9))


@given(st.integers(1, 50), st.data())
def test_the_result_does_not_depend_on_the_division_into_intervals(seconds: int, data: st.DataObject) -> None:
    """Means of shorter intervals of one constant demand lead to the same state."""
    one, many = Demand(0.01), Demand(0.01)
    for demand in (one, many):
        demand.observe(4.0, 0.0)
    level = data.draw(st.floats(0, 100))
    one.observe(level, float(seconds))
    for _ in range(seconds):
        many.observe(level, 1.0)
    assert one.required == pytest.approx(many.required)


def test_a_replica_is_removed_after_the_hold_and_the_last_after_idle() -> None:
    scaler = Scaler(ScalingRules(places=1, least=0, most=20, hold=600, idle=900))
    assert scaler.desired(ScalingFacts(10.0, ready=10), 0.0).replicas > 10
    counts = [scaler.desired(ScalingFacts(0.0, ready=17), float(now)).replicas for now in range(2, 1000, 2)]
    assert counts == sorted(counts, reverse=True)
    assert counts[: 598 // 2] == [counts[0]] * (598 // 2)  # held
    assert 1 < counts[650 // 2] < counts[0]  # the mean of that time was still falling
    assert counts[890 // 2] == 1
    assert counts[902 // 2] == 0


def test_a_waiting_request_starts_a_replica_of_a_pool_at_zero() -> None:
    scaler = Scaler(RULES)
    assert scaler.desired(ScalingFacts(0.0), 0.0) == ScalingDecision(0, "no request so far")
    for now in range(0, 1200, 10):
        decision = scaler.desired(ScalingFacts(0.0, ready=1), float(now))
    assert decision.replicas == 0
    assert "600 s" in decision.reason
    assert scaler.desired(ScalingFacts(0.02, waiting=1), 1200.0).replicas == 1


def test_late_requests_raise_the_margin_and_punctual_ones_lower_it() -> None:
    demand = Demand(late=0.01)
    first = demand.margin
    demand.adapt(begun=100, late=10)
    raised = demand.margin
    demand.adapt(begun=900, late=0)
    assert first < raised
    assert demand.margin == pytest.approx(first)  # 10 of 1,000 were late: the objective
    for _ in range(100):
        demand.adapt(begun=1000, late=0)
    assert demand.margin == LEAST
    assert demand.caution == pytest.approx(0.25)


def test_the_reason_names_the_bound_that_decides() -> None:
    crowded = Scaler(ScalingRules(places=8, most=20)).desired(ScalingFacts(8.0, ready=4, occupancy=0.99), 0.0)
    assert crowded.replicas == 5
    assert "99% occupied" in crowded.reason
    most = Scaler(ScalingRules(places=1, most=3)).desired(ScalingFacts(50.0, ready=3), 0.0)
    assert most.replicas == 3
    assert most.reason.startswith("`most` is 3")
    scheduled = Scaler(ScalingRules(places=8, most=20)).desired(ScalingFacts(0.0, floor=6), 0.0)
    assert scheduled.replicas == 6
    assert scheduled.reason.startswith("the schedule is 6")


def test_new_rules_apply_to_the_measurements_so_far() -> None:
    scaler = Scaler(RULES)
    for tick in range(300):
        scaler.desired(ScalingFacts(16.0, ready=3), 2.0 * tick)
    scaler.change_rules(ScalingRules(places=4, least=0, most=20, late=0.05))
    assert scaler.desired(ScalingFacts(16.0, ready=3), 600.0).replicas == ceil((16 + scaler.margin * 4) / 4)


@pytest.mark.parametrize(
    "fields", [{"least": 3, "most": 2}, {"places": 0}, {"late": 0}, {"late": 1}, {"occupancy": 0}, {"hold": -1}]
)
def test_impossible_rules_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="`"):
        ScalingRules(**{"places": 8, **fields})  # type: ignore[arg-type]


def late_share(demand_of: Callable[[int], float], minutes: int) -> list[float]:
    """The margins of a pool all of whose requests are late."""
    demand, margins = Demand(0.01), []
    for second in range(minutes * 60):
        demand.observe(demand_of(second), 1.0)
        demand.adapt(50, 50)
        margins.append(demand.margin)
    return margins


def test_the_margin_of_independent_clients_is_bounded() -> None:
    assert late_share(lambda second: 400.0, 60)[-1] == MOST


def test_the_margin_of_bursty_clients_covers_their_deviation() -> None:
    """A minute in ten has six times the demand: its deviation is 15 times that of independent clients."""
    margins = late_share(lambda second: 1200.0 if second // 60 % 10 == 9 else 200.0, 120)
    assert margins[-1] * 300**0.5 > 900


def test_a_burst_is_forgotten() -> None:
    demand = Demand(0.01)
    for second in range(8 * 3600):
        demand.observe(5000.0 if 600 <= second < 660 else 100.0, 1.0)
        demand.adapt(100, 100 if 600 <= second < 660 else 0)
    assert demand.largest_margin < 1.5 * MOST


numbers = st.sets(st.integers(0, 40), max_size=20)


@given(numbers, numbers, st.integers(0, 20))
def test_a_change_adds_or_removes_and_prefers_replicas_that_serve(
    running: set[int], ready: set[int], replicas: int
) -> None:
    after = set(resized(running, ready, replicas))
    assert len(after) == replicas
    added, removed = after - running, running - after
    assert not added or not removed
    if added:
        assert max(added) < replicas or set(range(max(added))) <= running | added, "the lowest free numbers"
    if removed & ready:
        assert after <= ready, "a replica that serves was removed before one that does not"


def test_the_highest_goes_first() -> None:
    assert resized((0, 1, 2, 3), {0, 1, 2, 3}, 2) == (0, 1)
    assert resized((0, 1, 2, 3), {1, 3}, 2) == (1, 3)
    assert resized((1, 3), {1, 3}, 4) == (0, 1, 2, 3)


SERVERS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=8).map(
    lambda flags: [SleepFacts(str(at), reachable=r, failing=f, asleep=a) for at, (r, f, a) in enumerate(flags)]
)


@given(SERVERS, st.integers(0, 9), st.integers(0, 9))
def test_a_smaller_choice_is_a_part_of_a_larger_one(servers: list[SleepFacts], few: int, more: int) -> None:
    smaller, larger = chosen(servers, min(few, more)), chosen(servers, max(few, more))
    assert larger[: len(smaller)] == smaller
    assert len(larger) == min(len(servers), max(few, more)) == len(set(larger))


@given(SERVERS, st.integers(0, 9))
def test_no_server_is_woken_while_another_that_works_is_awake(servers: list[SleepFacts], replicas: int) -> None:
    selected = set(chosen(servers, replicas))
    works = [server for server in servers if server.reachable and not server.failing]
    spare = [server for server in works if not server.asleep and server.address not in selected]
    assert not spare or not any(server.asleep for server in works if server.address in selected)
    assert not (spare and any(server.address in selected for server in servers if server not in works))


@given(SERVERS, st.integers(0, 9))
def test_the_choice_stays_when_it_is_applied(servers: list[SleepFacts], replicas: int) -> None:
    selected = chosen(servers, replicas)
    applied = [replace(server, asleep=server.address not in selected) for server in servers]
    assert set(chosen(applied, replicas)) == set(selected)
