"""Limits of long periods begin with what is recorded, and follow other ledgers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import LimitExceeded
from config.schema.money import PICOS
from gateway.limits.account import MOST_GONE
from gateway.limits.drawn import DAY, HOUR, THOUSANDTHS, Draw, DrawnUnit, debt_of, drawn
from policies.limits.limits import TokenBucket
from tests.gateway.limits.timed_ledger import NOON, TimedLedger, dollars, used

HERE, PERIOD = DrawnUnit(1, "name", float(DAY)), float(DAY)


@given(
    st.lists(st.tuples(st.integers(1, 40 * HOUR), st.integers(1, 60)), max_size=60),
    st.integers(1, 100),
)
def test_a_restored_rate_never_has_more_left_than_before(steps: list[tuple[int, int]], amount: int) -> None:
    now, bucket, slots = float(NOON), TokenBucket(amount, PERIOD, NOON), dict[int, int]()
    for passed, tokens in steps:
        now += passed
        if not bucket.take(min(tokens, amount), now):
            slot, _ = HERE.slot(now)
            slots[slot] = slots.get(slot, 0) + 1000 * min(tokens, amount)
    recent = {slot: drawn_then for slot, drawn_then in slots.items() if slot + HOUR + 3 * DAY > now}
    left, restored = bucket.refill(now), amount - debt_of(recent, HERE, amount, now)
    assert restored <= left + 1e-6


def test_a_restored_rate_counts_each_hour_at_its_end() -> None:
    nine = {int(NOON) - 3 * HOUR: 48 * THOUSANDTHS}
    assert debt_of(nine, HERE, 48, NOON - 3 * HOUR + 60) == 48  # this hour counts now
    assert debt_of(nine, HERE, 48, NOON) == 48 - 2 * 2
    assert debt_of(nine, HERE, 48, NOON + DAY) == 0


def recorded(timed: TimedLedger) -> TimedLedger:
    """A ledger that records its draws."""
    timed.ledger.drawn.is_recorded = True
    timed.configure([limit.config for limit in timed.ledger.accounts["acme"].limits])
    return timed


def spent(timed: TimedLedger, usd: float, tokens: int = 10, **subject: Any) -> tuple[Draw, ...]:
    held = timed.reserve(tokens, usd=usd, **subject)
    held.settle(used(tokens), dollars(usd), 0.0)
    return held.draws


@pytest.fixture(params=["memory", "shared"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedLedger, "kind", request.param)


LIMITS = [
    {"spend": "10 usd/month", "requests": "9/day", "tokens": "1k/h"},
    {"spend": "6 usd/day", "tokens": "100/month", "per": "key"},
]


@pytest.mark.usefixtures("kind")
def test_ledgers_follow_each_other() -> None:
    one, two = recorded(TimedLedger(LIMITS)), recorded(TimedLedger(LIMITS))
    sums: list[Draw] = []

    def exchange() -> None:
        for timed in (one, two):
            timed.ledger.drawn.put(drawn(sums), 0.0, timed.utc)
            timed.ledger.drawn.put(drawn(sums), 0.0, timed.utc)  # the same again changes nothing

    sums += spent(one, 2.5)
    assert (one.left("spend"), two.left("spend")) == (7.5, 10)
    exchange()
    assert (one.left("spend"), two.left("spend"), two.left("requests")) == (7.5, 7.5, 8)
    assert two.left("tokens") == 1000  # full again soon
    sums += spent(two, 3)
    exchange()
    assert one.left("spend") == two.left("spend") == 4.5
    for timed in (one, two):
        with pytest.raises(LimitExceeded, match="spend: 6 usd/day for each key"):
            timed.reserve(1, usd=1)
        with pytest.raises(LimitExceeded, match="tokens: 100/month for each key"):
            timed.reserve(81, usd=0)
        timed.reserve(1, usd=1, key="k2").undo(0.0)
    later = recorded(TimedLedger(LIMITS))
    later.ledger.drawn.replace(drawn(sums), 0.0, later.utc)
    assert later.left("spend") == 4.5
    later.utc += DAY  # the next month
    assert later.left("spend") == 10
    later.ledger.drawn.replace(drawn(sums), 0.0, later.utc)
    assert later.left("spend") == 10


@pytest.mark.usefixtures("kind")
def test_a_window_that_begins_elsewhere_first_counts_when_it_begins_here() -> None:
    ahead, behind = recorded(TimedLedger({"spend": "5 usd/day"})), recorded(TimedLedger({"spend": "5 usd/day"}))
    ahead.utc += DAY
    draws = spent(ahead, 4)
    spent(behind, 1)
    behind.ledger.drawn.put(draws, 0.0, behind.utc)
    assert behind.left("spend") == 4
    behind.utc += DAY
    behind.ledger.drawn.put((), 0.0, behind.utc)
    assert behind.left("spend") == 1


def test_draws_are_of_the_window_in_which_the_request_began_and_need_the_section() -> None:
    timed = TimedLedger(LIMITS)
    assert spent(timed, 1) == ()
    held = recorded(timed).reserve(5, usd=1)
    timed.utc += 40 * DAY
    held.settle(used(7), dollars(2), 0.0)
    amounts = {(draw.begin, draw.whole) for draw in held.draws}
    month, day = NOON - 28 * DAY - DAY // 2, NOON - DAY // 2
    assert amounts == {(month, 2 * PICOS), (day, 2 * PICOS), (NOON, 1000), (day, 7000)}
    held.settle(used(7), dollars(2), 0.0)
    assert len(held.draws) == 4


def test_equal_limits_record_once_and_a_renamed_scope_is_another() -> None:
    twice = recorded(TimedLedger([{"spend": "5 usd/day"}, {"spend": "9 usd/day", "enforce": "shadow"}]))
    assert len(spent(twice, 1)) == 1
    names = {draw.name for limits in ([{"spend": "5 usd/day"}], [{"spend": "5 usd/day", "models": ["c*"]}],
             [{"spend": "5 usd/month"}], [{"spend": "5 usd/day", "per": "model"}])
             for draw in spent(recorded(TimedLedger(limits)), 1)}  # fmt: skip
    assert len(names) == 4


def test_an_account_remembers_few_of_the_limits_that_reloads_have_removed() -> None:
    timed = recorded(TimedLedger([]))
    limits = [{"spend": "5 usd/day", "models": [f"m{number}", "chat"]} for number in range(2 * MOST_GONE)]
    for each in limits:
        timed.configure([each])
        spent(timed, 1)
    timed.configure([])
    assert len(timed.ledger.accounts["acme"]._gone) == MOST_GONE
    timed.configure(limits[-1:])  # a late one comes back with what it has used
    with pytest.raises(LimitExceeded):
        timed.reserve(1, usd=5)
