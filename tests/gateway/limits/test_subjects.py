from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import LimitsConfig
from gateway.limits.allowance import Allowance
from gateway.limits.subjects import Limit
from policies.facts import Facts
from tests.gateway.limits.timed_ledger import used

MOST = 4


def limit(**fields: Any) -> Limit:
    return Limit(LimitsConfig.model_validate({"per": "user", **fields}), max_subjects=MOST)


def of(users: Limit, user: str, now: float) -> Allowance:
    facts = Facts("acme", "k", "chat", {}, False, 1, user, "r")
    return users.of(users.subject_of(facts, "chat"), now, now)


def test_an_idle_one_makes_room_and_one_that_owes_does_not() -> None:
    users = limit(tokens="10/min")
    in_debt = of(users, "u0", 0.0)
    hold = in_debt.take(used(10), 0, 0.0, 0.0)
    assert hold is not None
    hold.allowance.settle(hold, used(20), 0, 0.0)
    for i in range(1, MOST):
        of(users, f"u{i}", 0.0)
    newcomer = of(users, "new", 0.0)
    assert of(users, "u0", 0.0) is in_debt
    assert of(users, "new", 0.0) is newcomer
    assert len(users) == MOST
    for i in range(MOST):  # after two minutes every debt is repaid
        of(users, f"later{i}", 180.0)
    assert of(users, "u0", 180.0) is not in_debt


def test_without_an_idle_subject_newcomers_share_one() -> None:
    users = limit(spend="1 usd/month")
    for i in range(MOST):
        assert of(users, f"u{i}", 0.0).take(used(1), 1, 0.0, 0.0)
    shared = of(users, "new", 0.0)
    assert of(users, "newer", 0.0) is shared
    assert len(users) == MOST + 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 120)), max_size=80))
def test_no_user_is_granted_more_by_being_forgotten_and_no_more_are_remembered(
    calls: list[tuple[int, int, int]],
) -> None:
    """A user draws on at most two allowances: its own, and the one that newcomers share."""
    users, now = limit(tokens="10/min"), 0.0
    own: dict[int, list[tuple[float, int]]] = {}
    for user, tokens, passed in calls:
        now += passed
        allowance = of(users, f"u{user}", now)
        if (hold := allowance.take(used(min(tokens, 10)), 0, now, now)) is not None:
            hold.allowance.settle(hold, used(min(tokens, 10)), 0, now)
            own.setdefault(user, []).append((now, min(tokens, 10)))
        assert len(users) <= MOST + 1
    for granted in own.values():
        for i, (start, _) in enumerate(granted):
            for j, (end, _) in enumerate(granted[i:], i):
                total = sum(tokens for _, tokens in granted[i : j + 1])
                assert total <= 2 * (10 + (end - start) / 6) + 1e-6
