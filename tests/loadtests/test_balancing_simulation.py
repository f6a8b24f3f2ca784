import json

import pytest

from config.schema.config import BalanceConfig
from loadtests.simulations.balancing import WAYS, main
from loadtests.simulations.fleet import ATTEMPTS, SLOTS, SimulatedFleet, Turn

pytestmark = pytest.mark.plain


def turns(count: int, gap: float, output: float) -> list[Turn]:
    return [Turn(i * gap, "acme", f"u{i}", memoryview(bytes(1600)), output) for i in range(count)]


@pytest.mark.benchmarks
def test_every_way_is_reported_and_a_seed_repeats_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--endpoints", "4", "--requests", "100"]
    main(few)
    first = capsys.readouterr().out
    main(few)
    assert capsys.readouterr().out == first
    main(["--endpoints", "20", "--requests", "1000"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report.keys() == WAYS.keys()
    for way in report.values():
        assert 0 < way["p50"] <= way["p99"] <= way["p99.9"]
        assert way["imbalance"] >= 1
    assert report["least_request"]["imbalance"] < report["round_robin"]["imbalance"]
    assert report["prefix_affinity"]["known"] > 2 * report["least_request"]["known"]
    assert report["load"]["imbalance"] < report["least_request"]["imbalance"]
    assert report["load"]["p99"] < report["least_request"]["p99"]
    assert report["load, near first"]["near"] > 0.7


def test_a_replica_computes_its_slots_at_once_and_queues_the_rest() -> None:
    fleet = SimulatedFleet(BalanceConfig(), [1.0], seed=1)
    for turn in turns(SLOTS + 1, gap=0.0, output=3.0):
        fleet.submit(turn)
    fleet.clock.run()
    assert fleet.first_chunk == pytest.approx([0.1] * SLOTS + [3.2])
    assert fleet.pools[0].endpoints[0].in_flight == 0


def test_a_killed_replica_breaks_begun_answers_and_the_rest_is_retried() -> None:
    fleet = SimulatedFleet(BalanceConfig(by="round_robin"), [1.0, 1.0], seed=1)
    for turn in turns(2 * SLOTS + 4, gap=0.0, output=50.0):
        fleet.submit(turn)
    fleet.kill(0, at=1.0, back_at=200.0)
    fleet.clock.run()
    assert fleet.broken == SLOTS
    assert fleet.failed == 0
    assert len(fleet.first_chunk) == 2 * SLOTS + 4


def test_with_every_replica_dead_each_request_fails_after_its_attempts() -> None:
    fleet = SimulatedFleet(BalanceConfig(panic="100%"), [1.0], seed=1)
    fleet.kill(0, at=0.0, back_at=100.0)
    for turn in turns(3, gap=1.0, output=1.0):
        fleet.submit(turn._replace(at=turn.at + 1.0))
    fleet.clock.run()
    assert (fleet.failed, fleet.first_chunk) == (3, [])
    assert ATTEMPTS > 1
