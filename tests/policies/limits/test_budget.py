import calendar
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.money import Period
from policies.limits.budget import CalendarBudget, window

periods: st.SearchStrategy[Period] = st.sampled_from(["hour", "day", "month"])
times = st.floats(0, datetime(2200, 1, 1, tzinfo=UTC).timestamp())


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "now", "start", "end"),
    [
        ("month", at(2028, 2, 29, 23, 59, 59), at(2028, 2, 1), at(2028, 3, 1)),
        ("month", at(2027, 2, 28), at(2027, 2, 1), at(2027, 3, 1)),
        ("month", at(2100, 2, 28, 12), at(2100, 2, 1), at(2100, 3, 1)),  # no leap year
        ("month", at(2027, 12, 31, 23), at(2027, 12, 1), at(2028, 1, 1)),
        ("month", at(2027, 5, 1), at(2027, 5, 1), at(2027, 6, 1)),
        ("day", at(2028, 2, 29, 0), at(2028, 2, 29), at(2028, 3, 1)),
        ("day", at(2027, 12, 31, 23, 59, 59), at(2027, 12, 31), at(2028, 1, 1)),
        ("hour", at(2027, 12, 31, 23, 59, 59), at(2027, 12, 31, 23), at(2028, 1, 1)),
    ],
)
def test_windows(period: Period, now: float, start: float, end: float) -> None:
    assert window(period, now) == (start, end)


@given(periods, times)
def test_windows_are_contiguous_and_as_long_as_the_calendar_has_them(period: Period, now: float) -> None:
    start, end = window(period, now)
    assert start <= now < end
    assert window(period, start) == (start, end)
    assert window(period, end)[0] == end
    begun = datetime.fromtimestamp(start, UTC)
    hours = {"hour": 1, "day": 24, "month": 24 * calendar.monthrange(begun.year, begun.month)[1]}
    assert end - start == 3600 * hours[period]


def test_after_the_wait_the_next_window_grants_again() -> None:
    now = at(2028, 2, 29, 23)
    budget = CalendarBudget(10, "day", now)
    assert budget.take(10, now) == 0
    assert budget.wait(1, now) == budget.take(1, now) == 3600
    assert budget.take(10, now + 3600) == 0
    assert budget.remaining(now + 3600) == 0


def test_an_overdraft_ends_with_the_window() -> None:
    now = at(2027, 1, 31)
    budget = CalendarBudget(10, "month", now)
    budget.take(5, now)
    budget.settle(5, 25, budget.window)
    assert budget.remaining(now) == 0
    assert budget.take(0, now) == 86400
    assert budget.remaining(at(2027, 2, 1)) == 10


def test_a_clock_set_back_opens_no_old_window() -> None:
    now = at(2027, 2, 1)
    budget = CalendarBudget(10, "day", now)
    assert budget.take(10, now) == 0
    assert budget.take(1, now - 5) > 0
    assert budget.remaining(now - 86400) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60), st.integers(0, 2 * 86400)), max_size=50))
def test_settled_exactly_and_each_request_in_the_window_it_began_in(calls: list[tuple[int, int, int]]) -> None:
    """Each call takes an estimate and settles the one before it, perhaps in a later window."""
    now = at(2027, 12, 30)
    budget = CalendarBudget(100, "day", now)
    charged: dict[float, int] = {}
    open_: tuple[int, int, int, float] | None = None
    for estimate, truth, passed in calls:
        now += passed
        day = window("day", now)[0]
        taken = budget.take(estimate, now) == 0
        if taken:
            charged[day] = charged.get(day, 0) + estimate
        if open_ is not None:
            reserved, actual, began, its_day = open_
            budget.settle(reserved, actual, began)
            charged[its_day] += actual - reserved
        open_ = (estimate, truth, budget.window, day) if taken else None
        assert budget.remaining(now) == max(0, 100 - charged.get(day, 0))
