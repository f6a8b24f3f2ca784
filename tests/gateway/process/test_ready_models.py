"""Which pools must have an endpoint so that a model is ready."""

from typing import Any

import pytest

from gateway.features.rollouts.live import LiveComparisons
from gateway.process.data_plane import _has_endpoint
from tests.support.gateways import config

ROLLOUT = {"name": "move", "from": {"pool": "old"}, "to": {"pool": "new"}, "steps": [{"weight": "20%", "for": "1h"}]}
POOLS = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("old", "new", "spare")]


def is_ready(route: dict[str, Any], alive: set[str], shares: tuple[float, ...] = ()) -> bool:
    settings = config(pools=POOLS, models=[{"name": "chat", "routes": [route]}])
    rollouts = LiveComparisons(b"s" * 32)
    rollouts.configure(settings)
    for live in rollouts.by_name.values() if shares else ():
        live.put_shares(shares)
    return _has_endpoint(settings.models[0], alive, rollouts.by_name)


@pytest.mark.parametrize(
    ("shares", "ready"),
    [((), {"old"}), ((1.0, 0.0), {"old"}), ((0.8, 0.2), {"old", "new"}), ((0.0, 1.0), {"new"})],
)
def test_a_rollout_needs_an_arm_that_receives_requests(shares: tuple[float, ...], ready: set[str]) -> None:
    for pool in ("old", "new"):
        assert is_ready({"rollout": ROLLOUT}, {pool}, shares) is (pool in ready)
        assert is_ready({"rollout": ROLLOUT, "fallback": ["spare"]}, {pool}, shares) is (pool in ready)
    assert is_ready({"rollout": ROLLOUT, "fallback": ["spare"]}, {"spare"}, shares)


def test_another_route_needs_any_of_its_pools() -> None:
    split = {"arms": [{"pool": "old", "weight": 1}, {"pool": "new", "weight": 1}]}
    for pool in ("old", "new", "spare"):
        assert is_ready({"split": split, "fallback": ["spare"]}, {pool})
    assert not is_ready({"to": "old"}, {"new"})
