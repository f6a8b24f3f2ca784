import pytest

from loadtests.bench_workers import Point, bound, report

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [(1, 2, 10_000), (2, 2, 16_000), (2, 4, 20_000), (4, 4, 32_000), (4, 100, 40_000)],
)
def test_workers_or_cores_are_the_bound(workers: int, cores: int, expected: float) -> None:
    assert bound(workers, cores, gateway_cpu=100e-6, bench_cpu=25e-6) == pytest.approx(expected)


def test_ratios_are_those_of_single_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    one = [Point(rps, 100e-6, 25e-6) for rps in (1000, 2000, 4000)]
    two = [Point(rps, 100e-6, 25e-6) for rps in (1500, 3000, 7000)]
    report({1: one, 2: two}, cores=2)
    last = capsys.readouterr().out.splitlines()[-1]
    assert '"rps/2_workers_to_1": 1.5' in last
    assert '"rps_bound/2_workers_to_1": 1.6' in last
