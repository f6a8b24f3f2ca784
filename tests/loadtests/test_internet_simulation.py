"""The simulation of scaling and balancing together: requests are served once, and the peers keep their bounds."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.simulations import internet
from loadtests.simulations.internet import GATEWAYS, Part, Way
from loadtests.simulations.placements import HeadracePlacement, KnativePlacement, RayServePlacement
from loadtests.simulations.regions import Outcome, Placement, Replica, SimulatedRegion
from loadtests.simulations.scaling_rules import RayServe

pytestmark = pytest.mark.plain

PLACES = 3
MINUTE = 60.0


class Steady:
    """A rule that never changes the replicas."""

    tick = 5.0

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def desired(self, facts: object, now: float) -> int:
        return self._replicas


def placements(seed: int) -> list[Placement]:
    ours = [HeadracePlacement(by, PLACES, seed) for by in ("load", "least_request")]
    return [*ours, RayServePlacement(PLACES, seed), KnativePlacement(PLACES, GATEWAYS, seed)]


def region(placement: Placement, replicas: int, seed: int = 1) -> SimulatedRegion:
    return SimulatedRegion(
        Steady(replicas), placement, gateways=4, places=PLACES, start=10.0, replicas=replicas, seed=seed
    )


@settings(deadline=None, max_examples=40)
@given(
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=60), services=st.lists(st.floats(0.01, 20), min_size=60),
    replicas=st.integers(1, 6), way=st.integers(0, 3), seed=st.integers(0, 5),
)  # fmt: skip
def test_each_request_is_served_once_and_never_early(
    gaps: list[float], services: list[float], replicas: int, way: int, seed: int
) -> None:
    arrivals = np.cumsum(gaps).tolist()
    simulated = region(placements(seed)[way], replicas, seed)
    outcome = simulated.run(arrivals, services)
    assert (outcome.waits >= 0).all()
    assert outcome.imbalance >= 1
    work = sum(services[: len(gaps)])
    assert outcome.replica_seconds * PLACES >= work - 1e-6, "no replica computes more than its places"
    assert outcome.replica_seconds == pytest.approx(replicas * max(
        arrival + wait + service for arrival, wait, service in zip(arrivals, outcome.waits, services, strict=False)
    ))  # fmt: skip


def test_one_replica_is_a_queue() -> None:
    """Three places, each for ten seconds: the fourth and fifth wait for the first and second."""
    outcome = region(HeadracePlacement("load", PLACES, 1), 1).run([0.0, 1.0, 2.0, 3.0, 4.0], [10.0] * 5)
    assert outcome.waits.tolist() == [0, 0, 0, 7, 7]


def test_reports_show_the_load_of_other_gateways() -> None:
    placement = HeadracePlacement("load", PLACES, 1)
    busy, idle = Replica(1, 0.0), Replica(2, 0.0)
    busy.running, busy.queue = PLACES, busy.queue.__class__(range(5))
    for replica in (busy, idle):
        replica.note(10.0)
    assert {placement.place(gateway, [busy, idle], 0, 12.0) for gateway in range(GATEWAYS)} == {idle}


@pytest.mark.parametrize("peer", [RayServePlacement(PLACES, 1), KnativePlacement(PLACES, GATEWAYS, 1)])
def test_a_full_replica_receives_nothing_from_peers(peer: Placement) -> None:
    full = Replica(1, 0.0)
    full.running = PLACES
    assert isinstance(peer.place(0, [full], 0, 0.0), float)
    full.running -= 1
    assert peer.place(0, [full], 0, 0.0) is full


def test_a_rule_changes_the_replicas() -> None:
    rule = RayServe(PLACES, 1, 5)
    simulated = SimulatedRegion(
        rule, RayServePlacement(PLACES, 1), gateways=4, places=PLACES, start=10.0, replicas=1, seed=1
    )
    outcome = simulated.run([float(second) for second in range(200)], [9.0] * 200)
    assert (outcome.peak, outcome.cold) == (5, 0)
    assert outcome.starts >= 4


@pytest.mark.parametrize("way", [Way("load", 0.5), Way("least_request", 0.5), Way("knative"), Way("ray-serve")])
def test_the_same_seed_gives_the_same_figures(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internet, "WARM", MINUTE)
    part = Part(0, 3, None, (12.0, 12.0 + 1 / 6), seed=4)
    given = internet.requests(internet.mean_service(None, 4), part)
    first, second = (internet.simulate(way, part, given) for _ in range(2))
    assert _figures(first) == _figures(second)
    assert len(first.waits) > 100
    assert first.peak <= 3


@pytest.mark.benchmarks
def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internet, "WARM", MINUTE)
    assert internet.main(["--regions", "2", "--minutes", "10", "--sizes", "2", "--processes", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "100 gateways, 4 endpoints at most"
    ways = [line.split(" |")[0].split(",")[0] for line in printed[3:9]]
    assert ways == ["| knative", "| headrace", "| headrace", "| ray-serve", "| headrace", "| headrace"]
    assert set(json.loads(printed[9])["ratios"]) >= {"load/knative: replica_hours", "least_request/ray-serve: p99"}


def test_a_folder_of_servegen_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no client with requests"):
        internet.requests(1.0, Part(0, 3, tmp_path, (0.0, 1.0), seed=1))


def _figures(outcome: Outcome) -> tuple[object, ...]:
    return outcome.replica_seconds, outcome.waits.tolist(), outcome.imbalance, outcome.starts, outcome.peak
