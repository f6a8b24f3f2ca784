"""The bench of transports: its table, and a few requests of each of our own transports."""

import pytest

from loadtests.bench_transports import CASES, Case, Point, measure, table

pytestmark = pytest.mark.plain


def test_ratios_are_of_rounds_beside_each_other() -> None:
    ours, other = CASES[3], CASES[4]
    lines = table({ours: [Point(10.0, 100.0), Point(20.0, 50.0)], other: [Point(30.0, 40.0), Point(40.0, 20.0)]})
    assert lines.splitlines()[2:] == [
        "| front side (server) | ours, HTTP/1.1 | 15.0 | 75 | 1 |",
        "| front side (server) | aiohttp | 35.0 | 30 | 2.50 (2.00 to 3.00) |",
    ]


def test_each_comparison_has_one_baseline() -> None:
    for case in CASES:
        assert len([one for one in CASES if one.baseline and one.family == case.family]) == 1, case


@pytest.mark.benchmarks
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.baseline], ids=lambda case: f"{case.name}, {case.role}"
)
def test_our_transports_are_measured(case: Case) -> None:
    point = measure(case, 64, 4)
    assert point.cpu_us > 0
    assert point.rps > 0
