"""A rollout in one process: arms, units of counting, and what is not an event."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import PoolConfig
from config.schema.experiment import ExperimentConfig
from config.schema.rollout import RolloutConfig
from policies.facts import Facts
from policies.rollouts import live
from policies.rollouts.counting import ArmOutcome
from policies.rollouts.live import LiveComparison
from policies.rollouts.progress import fingerprint
from policies.rollouts.tally import MEASURING, ArmTally, ShareOrder
from tests.support.planned_rollouts import plan

EVENTS = [{"metric": m} for m in ("failures", "retries", "rejections", "blocked")]
TIMES = [{"metric": "first_byte", "slower_than": "2s"}, {"metric": "total", "slower_than": "5s"}]


def facts(**changes: Any) -> Facts:
    return Facts("acme", "key-1", "chat", {}, False, 1, None, "req-1")._replace(**changes)


def order(share: float, stratum: int | None, generation: int = 1) -> ShareOrder:
    return ShareOrder("r", "f", generation, (1 - share, share), stratum)


def running(share: float, config: RolloutConfig | None = None, generation: int = 1) -> LiveComparison:
    rollout = LiveComparison(config or plan(back_if=[*EVENTS, *TIMES]), "f", "chat")
    rollout.apply(order(share, 0, generation))
    return rollout


def end(rollout: LiveComparison, arm: int, outcome: ArmOutcome, **changes: Any) -> None:
    request_facts = facts(**changes)
    assignment = rollout.assign(arm, request_facts)
    assert assignment is not None
    assignment.end(outcome)


def only(rollout: LiveComparison) -> ArmTally:
    (taken,) = rollout.take()
    return taken.tally


OK = ArmOutcome("", 0.1, 0.2)


@pytest.mark.parametrize(
    ("outcome", "events", "ended"),
    [
        (OK, set(), 1),
        (ArmOutcome("backend", None, 0.1), {"failures"}, 1),
        (ArmOutcome("transport", 0.1, 0.3), {"failures"}, 1),
        (ArmOutcome("capacity", None, 0.1), {"failures"}, 1),
        (ArmOutcome("deadline", None, 3.0), {"failures", "first_byte>2s"}, 1),
        (ArmOutcome("caller", None, 0.1), {"rejections"}, 1),
        (ArmOutcome("caller", None, 0.1, blocked=True), {"blocked"}, 1),
        (ArmOutcome("credential", None, 0.1), set(), 1),
        (ArmOutcome("cancelled", None, 0.1), set(), 0),
        (ArmOutcome("cancelled", None, 2.5), {"first_byte>2s"}, 0),
        (ArmOutcome("cancelled", 0.1, 9.0), {"total>5s"}, 0),
        (ArmOutcome("", 2.0, 5.0), set(), 1),
        (ArmOutcome("", 2.1, 5.1, retried=True), {"first_byte>2s", "total>5s", "retries"}, 1),
    ],
)
def test_the_events_of_an_end(outcome: ArmOutcome, events: set[str], ended: int) -> None:
    """Errors of the client and cancellations are no failures; a bound that has passed has passed."""
    rollout = running(0.5)
    end(rollout, 1, outcome)
    tally = only(rollout)
    assert tally.events == {key: [0, 1] for key in events}
    assert (tally.assigned, tally.ended) == ([0, 1], [0, 1] if ended else [])


def test_an_end_counts_under_the_share_of_its_assignment() -> None:
    rollout, request_facts = running(0.05), facts()
    assignment = rollout.assign(0, request_facts)
    assert assignment is not None
    rollout.apply(order(0.5, 1, 1))
    later = rollout.assign(1, request_facts)
    assert later is not None
    for each in (assignment, later):
        each.end(ArmOutcome("backend", None, 0.1))
    counts = {taken.stratum: taken.tally.events["failures"] for taken in rollout.take()}
    assert counts == {0: [1, 0], 1: [0, 1]}
    assert rollout.take() == []


def test_requests_begun_before_a_reset_do_not_count_after_it() -> None:
    rollout, request_facts = running(0.5), facts()
    assignment = rollout.assign(1, request_facts)
    assert assignment is not None
    rollout.take()
    rollout.apply(order(0.05, 0, 2))
    assignment.end(ArmOutcome("backend", None, 0.1))
    assert rollout.take() == []


def test_nothing_counts_in_a_warm_up_and_without_an_order() -> None:
    rollout, request_facts = LiveComparison(plan(), "f", "chat"), facts()
    assert rollout.assign(0, request_facts) is None
    assert rollout.choose(request_facts, Random(1)) == 0
    rollout.apply(order(1.0, None, 1))
    assert rollout.assign(1, request_facts) is None
    assert {rollout.choose(request_facts, Random(i)) for i in range(50)} == {1}


@pytest.mark.parametrize("sticky", ["request", "user"])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_each_arm_gets_its_share(sticky: str, share: float) -> None:
    rollout, rng = running(share, plan(sticky=sticky)), Random(3)
    users = [facts(user=f"u{i}") for i in range(20_000)]
    got = Counter(rollout.choose(user, rng) for user in users)
    assert got[1] / 20_000 == pytest.approx(share, abs=4 * (share * (1 - share) / 20_000) ** 0.5)


def test_a_user_moves_to_the_new_arm_once_while_its_share_grows() -> None:
    rollout = running(0.01, plan(sticky="user"))
    users = [facts(user=f"u{i}") for i in range(3000)]
    moved = set[int]()
    for share in (0.01, 0.05, 0.25, 0.5, 1.0):
        rollout.apply(order(share, 0, 1))
        now = {i for i, user in enumerate(users) if rollout.choose(user, Random(1))}
        assert now == {i for i, user in enumerate(users) if rollout.choose(user, Random(2))}
        assert moved <= now
        moved = now
    assert len(moved) == 3000
    rollout.apply(order(0.0, None))
    assert not any(rollout.choose(user, Random(1)) for user in users)


def test_a_user_counts_one_event_of_each_metric() -> None:
    """The unit is what was randomised: a heavy user is one subject, and has one failure."""
    rollout = running(0.5, plan(sticky="user"))
    for _ in range(100):
        end(rollout, 1, ArmOutcome("backend", None, 0.1), user="ann")
    end(rollout, 0, ArmOutcome("backend", None, 0.1), user="bob")
    end(rollout, 0, OK, user="eve")
    tally = only(rollout)
    assert sorted(tally.subjects[""].values()) == [0, 0, 1]
    assert sorted(tally.subjects["failures"].values()) == [0, 1]
    assert tally.events == {}
    assert tally.assigned == []
    end(rollout, 1, ArmOutcome("backend", None, 0.1), user="ann")
    assert only(rollout).subjects == {}


def test_subjects_and_strata_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_REMEMBERED", 5)
    monkeypatch.setattr(live, "MOST_STRATA", 3)
    rollout = running(0.5, plan(sticky="user"))
    for i in range(20):
        end(rollout, i % 2, ArmOutcome("backend", None, 0.1), user=f"u{i}")
    tally = only(rollout)
    assert len(tally.subjects[""]) == len(tally.subjects["failures"]) == 5
    for stratum in range(10):
        rollout.apply(order(0.5, stratum, 1))
        end(rollout, 0, OK, user="x")
    assert [taken.stratum for taken in rollout.take()] == [7, 8, 9]


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.integers(0, 3)), max_size=60))
def test_the_counts_of_two_processes_add_up(ends: list[tuple[int, bool, int]]) -> None:
    one, parts, total = running(0.5), [running(0.5), running(0.5)], ArmTally()
    for i, (arm, failed, at) in enumerate(ends):
        outcome = ArmOutcome("backend" if failed else "", None if failed else 0.01 * at, 0.5)
        end(one, arm, outcome)
        end(parts[i % 2], arm, outcome)
    for part in parts:
        for taken in part.take():
            total.add(taken.tally)
    assert [total] == ([taken.tally for taken in one.take()] or [ArmTally()])


def test_the_fingerprint_follows_the_arms_and_nothing_else() -> None:
    pools = {
        "v1": PoolConfig(name="v1", endpoints=("http://a:1",)),
        "v2": PoolConfig(name="v2", endpoints=("http://b:1",)),
    }
    one = fingerprint(plan(), pools)
    steps = [{"weight": "100%", "for": "1h"}]
    assert fingerprint(plan(steps=steps, alpha="5%", back_if=EVENTS, name="other"), pools) == one
    more = {**pools, "v2": PoolConfig(name="v2", endpoints=("http://b:1", "http://c:1"))}
    assert fingerprint(plan(), more) == one
    for changed in (plan(to={"pool": "v2", "version": "3"}), plan(to="v3"), plan(sticky="user")):
        assert fingerprint(changed, pools) != one
    renamed = {**pools, "v2": pools["v2"].model_copy(update={"model": "other"})}
    assert fingerprint(plan(), renamed) != one


def test_a_stratum_that_measures_counts_times_only() -> None:
    config = plan(sticky="user", back_if=[{"metric": "failures"}, {"metric": "first_byte", "slower_than": "p95"}])
    rollout = running(0.5, config)
    rollout.apply(order(0.5, MEASURING, 1))
    assert not rollout.signs
    end(rollout, 0, OK, user="ann")
    end(rollout, 0, ArmOutcome("backend", None, 0.1), user="ann")
    (taken,) = rollout.take()
    assert (taken.stratum, taken.tally.events, taken.tally.subjects) == (MEASURING, {}, {})
    assert sum(taken.tally.first_byte[0].values()) == 1


def test_a_stratum_has_the_bounds_with_which_it_began() -> None:
    config = plan(back_if=[{"metric": "first_byte", "slower_than": "p95"}])
    rollout = running(0.5, config)
    for stratum, bound in ((0, 1.0), (1, 0.01)):
        rollout.apply(ShareOrder("r", "f", 1, (0.5, 0.5), stratum, {"first_byte>p95": bound}))
    rollout.configure(config)
    for stratum in (0, 1):
        rollout.apply(ShareOrder("r", "f", 1, (0.5, 0.5), stratum, {"first_byte>p95": 0.0}))
        end(rollout, 0, ArmOutcome("", 0.1, 0.2))
    assert [taken.tally.events for taken in rollout.take()] == [{}, {"first_byte>p95": [1, 0]}]


def test_long_subjects_are_not_cached() -> None:
    """Clients choose them, so they would fill the memory."""
    rollout = running(0.5, plan(sticky="user"))
    before = live._cached_number.cache_info().currsize
    for i in range(100):
        request = facts(user=f"{i}" * 1000)
        assert rollout.choose(request, Random(0)) == rollout.choose(request, Random(1))
        assert rollout.assign(0, request) is not None
    assert not rollout._chosen
    assert not rollout._assignments
    assert live._cached_number.cache_info().currsize == before


def test_a_subject_counts_once_under_all_shares_and_ends_under_its_own() -> None:
    """Its assignment is remembered, but not beyond its shares and its arm."""
    rollout, user = running(0.5, plan(sticky="user")), facts(user="ann")
    first = rollout.assign(0, user)
    assert first is not None
    assert rollout.assign(0, user) is first
    other = rollout.assign(1, user)
    assert other is not None
    assert (other.count.arm, first.count.arm) == (1, 0)
    rollout.apply(order(0.6, 1))
    later = rollout.assign(1, user)
    assert later is not None
    assert (later.count.stratum.number, other.count.stratum.number) == (1, 0)
    counted = {taken.stratum: taken.tally.subjects.get("") for taken in rollout.take()}
    assert counted == {0: {other.subject: 1}}


def test_an_experiment_starts_anew_with_another_metric() -> None:
    """A metric that is selected after its values are known would make the verdict invalid."""
    arms = {"name": "e", "arms": ["v1", "v2"]}
    one, other = (ExperimentConfig.model_validate({**arms, "metric": name}) for name in ("solved", "stars"))
    assert fingerprint(one, {}) != fingerprint(other, {})
    weighted = ExperimentConfig.model_validate(
        {**arms, "metric": "solved", "arms": [{"pool": "v1", "weight": 3}, "v2"]}
    )
    assert fingerprint(one, {}) == fingerprint(weighted, {})


@given(st.permutations([("A", "1"), ("B", "2"), ("C", "3"), ("D", "4")]))
def test_the_fingerprint_ignores_the_order_of_names(variables: list[tuple[str, str]]) -> None:
    def identity(env: dict[str, str], body: dict[str, int]) -> str:
        runtime = {"kind": "tensor", "repository": "models", "env": env}
        pools = {"v1": PoolConfig.model_validate({"name": "v1", "protocol": "oip-http", "runtime": runtime})}
        return fingerprint(plan(to={"pool": "v2", "rewrite": {"force": body}}), pools)

    written, body = dict(variables), {name: int(number) for name, number in variables}
    assert identity(written, body) == identity(dict(sorted(variables)), dict(sorted(body.items())))
    assert identity({**written, "A": "9"}, body) != identity(written, body)
