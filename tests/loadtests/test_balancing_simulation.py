import json

import pytest

from config.schema.config import BalanceConfig
from loadtests.simulate_balancing import WAYS, main
from loadtests.simulated_fleet import ATTEMPTS, SLOTS, SimulatedFleet, Turn


def turns(count: int, gap: float, output: float) -> list[Turn]:
    return [Turn(i * gap, "acme", f"u{i}", memoryview(bytes(1600)), output) for i in range(count)]


def test_every_way_is_reported_and_the_same_seed_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--endpoints", "20", "--requests", "2000"]
    main(arguments)
    first = capsys.readouterr().out
    main(arguments)
    assert capsys.readouterr().out == first
    found = json.loads(first.splitlines()[-1])
    assert found.keys() == WAYS.keys()
    for way in found.values():
        assert 0 < way["p50"] <= way["p99"] <= way["p99.9"]
        assert way["imbalance"] >= 1
    assert found["least_request"]["imbalance"] < found["round_robin"]["imbalance"]
    assert found["prefix_affinity"]["known"] > 2 * found["least_request"]["known"]
    assert found["load"]["imbalance"] < found["least_request"]["imbalance"]
    assert found["load"]["p99"] < found["least_request"]["p99"]
    assert found["load, near first"]["near"] > 0.7


def test_a_replica_computes_what_it_can_at_once_and_lets_the_rest_wait() -> None:
    fleet = SimulatedFleet(BalanceConfig(), [1.0], seed=1)
    for turn in turns(SLOTS + 1, gap=0.0, output=3.0):
        fleet.submit(turn)
    fleet.clock.run()
    assert fleet.first_chunk == pytest.approx([0.1] * SLOTS + [3.2])
    assert fleet.pools[0].endpoints[0].in_flight == 0


def test_a_killed_replica_breaks_what_had_begun_and_the_rest_is_tried_elsewhere() -> None:
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
