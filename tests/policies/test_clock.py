from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import TimeConfig
from policies.clock import DAYS, Window

MONDAY = datetime(2026, 3, 23, tzinfo=UTC)  # the week after, clocks in Europe go forward


def window(**config: Any) -> Window:
    return Window(TimeConfig.model_validate(config))


def utc(day: int, clock: str) -> float:
    hours, minutes = clock.split(":")
    return (MONDAY + timedelta(days=day, hours=int(hours), minutes=int(minutes))).timestamp()


@pytest.mark.parametrize(
    ("config", "moment", "expected"),
    [
        ({"between": "09:00-18:00"}, utc(0, "08:59"), False),
        ({"between": "09:00-18:00"}, utc(0, "09:00"), True),
        ({"between": "09:00-18:00"}, utc(0, "17:59"), True),
        ({"between": "09:00-18:00"}, utc(0, "18:00"), False),
        ({"between": "18:00-24:00"}, utc(0, "23:59"), True),
        ({"days": ["sat", "sun"]}, utc(4, "23:59"), False),
        ({"days": ["sat", "sun"]}, utc(5, "00:00"), True),
        # The night that begins on Friday extends into Saturday, and the night before it is Thursday's.
        ({"between": "22:00-06:00", "days": ["fri"]}, utc(4, "05:59"), False),
        ({"between": "22:00-06:00", "days": ["fri"]}, utc(4, "22:00"), True),
        ({"between": "22:00-06:00", "days": ["fri"]}, utc(5, "05:59"), True),
        ({"between": "22:00-06:00", "days": ["fri"]}, utc(5, "06:00"), False),
        ({"between": "22:00-06:00", "days": ["fri"]}, utc(5, "22:00"), False),
        ({"between": "22:00-06:00", "days": ["sun"]}, utc(7, "01:00"), True),
        # Nine o'clock in Berlin is eight in UTC in winter and seven in summer.
        ({"between": "09:00-18:00", "zone": "Europe/Berlin"}, utc(0, "07:30"), False),
        ({"between": "09:00-18:00", "zone": "Europe/Berlin"}, utc(0, "08:00"), True),
        ({"between": "09:00-18:00", "zone": "Europe/Berlin"}, utc(7, "07:00"), True),
        ({"between": "09:00-18:00", "zone": "Asia/Kathmandu"}, utc(0, "03:15"), True),
        ({"between": "09:00-18:00", "zone": "Asia/Kathmandu"}, utc(0, "03:14"), False),
        ({"days": ["mon"], "zone": "Pacific/Auckland"}, utc(6, "12:00"), True),
        # The hour from two to three does not exist in the night in which clocks go forward; the rest of the day does.
        ({"between": "02:00-03:00", "zone": "Europe/Berlin"}, utc(6, "01:30"), False),
        ({"between": "03:00-04:00", "zone": "Europe/Berlin"}, utc(6, "01:30"), True),
    ],
)
def test_windows(config: dict[str, Any], moment: float, expected: bool) -> None:
    assert window(**config).holds(moment) is expected


@given(
    st.integers(0, 24 * 60 - 1),
    st.integers(0, 24 * 60 - 1),
    st.sets(st.sampled_from(DAYS), min_size=1),
    st.lists(st.integers(0, 14 * 24 * 60), min_size=1, max_size=5),
)
def test_a_window_is_its_minutes_after_each_of_its_days(
    start: int, end: int, days: set[str], minutes: list[int]
) -> None:
    """Whatever the earlier lookups and their order: the cached result of a minute is only that minute's."""
    if start == end:
        return
    between = f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"
    length = (end - start) % (24 * 60)
    one = window(between=between, days=sorted(days))
    for minute in minutes:
        begun = [day for day in range(-1, 15) if 0 <= minute - day * 24 * 60 - start < length]
        expected = any(DAYS[day % 7] in days for day in begun)
        assert one.holds(MONDAY.timestamp() + minute * 60 + 59) is expected


def test_a_window_shows_local_time() -> None:
    assert window(days=["mon"], zone="Asia/Tokyo").show(utc(0, "16:00")) == "Tue 01:00"
