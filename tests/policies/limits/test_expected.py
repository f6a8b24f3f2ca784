import pytest

from policies.limits.expected import WEIGHT, DeviceTime


def test_no_time_is_expected_before_a_report() -> None:
    assert DeviceTime().expected("m", 8) == 0


def test_reported_time_counts_by_the_row() -> None:
    time = DeviceTime()
    time.record("m", 4, 8.0)
    assert time.expected("m", 1) == 2.0
    assert time.expected("m", 10) == 20.0
    assert time.expected("another", 1) == 0


def test_the_mean_follows_the_reports() -> None:
    time = DeviceTime()
    time.record("m", 1, 10.0)
    time.record("m", 1, 20.0)
    assert time.expected("m", 1) == pytest.approx(10.0 + WEIGHT * 10.0)
    for _ in range(200):
        time.record("m", 1, 20.0)
    assert time.expected("m", 1) == pytest.approx(20.0, rel=1e-3)


def test_a_request_without_rows_is_one() -> None:
    time = DeviceTime()
    time.record("m", 0, 3.0)
    assert time.expected("m", 0) == 3.0
