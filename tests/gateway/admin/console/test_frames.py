"""Frames of the live screen: bounded, with failing endpoints first and the replicas of pools."""

from typing import Any

from gateway.admin.console.live import MOST_ENDPOINTS, frame_of
from tests.gateway.admin.console.hostile import HOSTILE


def endpoint(number: int, **changes: Any) -> dict[str, Any]:
    fine = {"pool": "main", "endpoint": f"main/{number}", "health": "healthy", "breaker": "closed", "in_flight": 1}
    return {**fine, **changes}


def test_a_frame_is_bounded_and_has_the_failing_endpoints() -> None:
    endpoints = [endpoint(number) for number in range(3 * MOST_ENDPOINTS)]
    endpoints.append(endpoint(9999, health="unhealthy", probe_error=HOSTILE))
    (pool,) = frame_of({"accepting": True, "in_flight": 3, "endpoints": endpoints}, 1.0)["pools"]
    assert pool["endpoints"][0]["probe_error"] == HOSTILE
    assert (len(pool["endpoints"]), pool["size"], pool["in_flight"]) == (MOST_ENDPOINTS, len(endpoints), len(endpoints))


def test_a_frame_of_no_worker_is_empty() -> None:
    assert frame_of({}, 1.0) == {"at": 1.0, "accepting": False, "in_flight": 0, "pools": [], "workers": []}


def test_a_frame_has_the_replicas_of_a_pool_at_zero_and_the_reason() -> None:
    scale = {
        "pool": "main", "replicas": 0, "ready": 0, "starting": 0, "desired": 0, "min": 0, "max": 2,
        "reason": "no request for 600 s", "failure": "", "start_seconds": 3.5,
    }  # fmt: skip
    (pool,) = frame_of({"accepting": True, "endpoints": [], "replicas": [scale]}, 1.0)["pools"]
    assert (pool["pool"], pool["size"], pool["endpoints"]) == ("main", 0, [])
    assert (pool["replicas"]["desired"], pool["replicas"]["reason"]) == (0, "no request for 600 s")
