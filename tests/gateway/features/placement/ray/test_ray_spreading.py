"""Which replicas require nodes of their own."""

from typing import Any

import pytest

from gateway.features.placement.ray import spreading
from gateway.features.placement.ray.spreading import OWN_NODE_SECONDS, PREFIX, Group

OWN = {f"{PREFIX}pool_1a2b": 1.0}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(spreading, "time", clock)
    return clock


def spec(number: int, strategy: str = "spread") -> dict[str, Any]:
    return {"name": f"pool/{number}", "group": "pool_1a2b", "strategy": strategy, "resources": {"CPU": 2.0}}


def nodes(*names: str, cpus: float = 2.0) -> list[dict[str, Any]]:
    return [{"NodeID": name, "Resources": {"CPU": cpus}} for name in names]


def test_as_many_replicas_as_nodes_require_nodes_of_their_own_and_the_others_share() -> None:
    group, present = Group(), nodes("a", "b")
    assert [group.requirement(spec(number), present) for number in range(3)] == [OWN, OWN, {}]
    assert not any(group.must_share(spec(number), present) for number in range(3))


def test_a_node_that_is_too_small_for_a_replica_is_no_node_for_it() -> None:
    group, present = Group(), [*nodes("a"), *nodes("head", cpus=0)]
    assert [group.requirement(spec(number), present) for number in range(2)] == [OWN, {}]


def test_a_replica_that_waits_shares_a_node_when_its_node_is_lost_or_another_is_on_it() -> None:
    group, present = Group(), nodes("a", "b")
    group.requirement(spec(0), present)
    group.requirement(spec(1), present)
    assert group.must_share(spec(1), nodes("a"))
    assert not group.must_share(spec(0), nodes("a"))
    group.placed("pool/0", "a")
    assert not group.must_share(spec(1), present)
    group.placed("pool/2", "b")
    assert group.must_share(spec(1), present)
    group.leave("pool/2")
    assert not group.must_share(spec(1), present)


def test_a_replica_shares_a_node_when_the_other_nodes_stay_full(clock: Clock) -> None:
    group = Group()
    group.requirement(spec(0), nodes("a"))
    clock.now = OWN_NODE_SECONDS
    assert not group.must_share(spec(0), nodes("a"))
    clock.now += 0.1
    assert group.must_share(spec(0), nodes("a"))


def test_strict_spread_never_shares_and_pack_always_does() -> None:
    group = Group()
    assert [group.requirement(spec(number, "strict_spread"), nodes("a")) for number in range(2)] == [OWN, OWN]
    assert not group.must_share(spec(1, "strict_spread"), nodes("a"))
    assert group.requirement(spec(0, "pack"), nodes("a", "b")) == {}
