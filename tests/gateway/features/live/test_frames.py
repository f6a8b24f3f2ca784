"""Frames of the live screen: bounded, with failing endpoints first, the replicas of pools, all gateways together."""

from typing import Any

from gateway.features.live.frames import MOST_ENDPOINTS, ReplicaView, frame_of, summary_of

HOSTILE = "<img src=x onerror=alert(1)>"


def endpoint(number: int, **changes: Any) -> dict[str, Any]:
    fine = {"pool": "main", "endpoint": f"main/{number}", "health": "healthy", "breaker": "closed", "in_flight": 1}
    return {**fine, **changes}


def view(name: str, state: dict[str, Any], silent: float = 0.0) -> ReplicaView:
    return ReplicaView(name, name, summary_of({"accepting": True, "in_flight": 1, **state}), silent)


def recent(**sums: Any) -> dict[str, Any]:
    return {"all": sums, "models": [{"name": "chat", **sums}], "tenants": [], "pools": [{"name": "", **sums}]}


def test_a_summary_is_bounded_and_has_the_failing_endpoints() -> None:
    endpoints = [endpoint(number) for number in range(3 * MOST_ENDPOINTS)]
    endpoints.append(endpoint(9999, health="unhealthy", probe_error=HOSTILE))
    (pool,) = summary_of({"accepting": True, "in_flight": 3, "endpoints": endpoints})["pools"]
    assert pool["endpoints"][0]["probe_error"] == HOSTILE
    assert (len(pool["endpoints"]), pool["size"], pool["in_flight"]) == (MOST_ENDPOINTS, len(endpoints), len(endpoints))


def test_a_frame_of_no_worker_is_empty() -> None:
    frame = frame_of([ReplicaView("a", "a", summary_of({}))], None, 1.0)
    assert (frame["accepting"], frame["pools"], frame["workers"], frame["rates"]["models"]) == (False, [], [], [])
    assert frame["rates"]["all"] == {
        "requests": 0, "failures": 0, "refused": 0, "tokens": 0, "rows": 0, "p50": None, "p95": None,
        "first_p50": None, "first_p95": None, "money": {},
    }  # fmt: skip


def test_a_summary_has_the_replicas_of_a_pool_at_zero_and_the_reason() -> None:
    scale = {
        "pool": "main", "replicas": 0, "ready": 0, "starting": 0, "desired": 0, "min": 0, "max": 2,
        "reason": "no request for 600 s", "failure": "", "start_seconds": 3.5,
    }  # fmt: skip
    (pool,) = summary_of({"accepting": True, "endpoints": [], "replicas": [scale]})["pools"]
    assert (pool["pool"], pool["size"], pool["endpoints"]) == ("main", 0, [])
    assert (pool["replicas"]["desired"], pool["replicas"]["reason"]) == (0, "no request for 600 s")


def test_a_frame_of_all_replicas_adds_their_figures_and_has_the_worst_view_of_an_endpoint() -> None:
    fine, ill = [endpoint(1), endpoint(2)], [endpoint(1, health="unhealthy", in_flight=4), endpoint(2)]
    queue = {"pool": "main", "waiting": 2, "by_priority": {"high": 2}, "served_per_second": 1.5}
    a = view("a", {"endpoints": fine, "queues": [queue], "recent": recent(requests=10, failures=5, durations={"0": 9})})
    b = view("b", {"endpoints": ill, "queues": [queue], "recent": recent(requests=20, durations={"24": 1})})
    frame = frame_of([a, b], None, 1.0)
    (pool,) = frame["pools"]
    first, second = pool["endpoints"]
    assert (first["health"], first["in_flight"], first["seen_by"], first["of"]) == ("unhealthy", 5, 1, 2)
    assert "seen_by" not in second
    assert (pool["size"], pool["in_flight"], pool["queue"]["waiting"]) == (2, 7, 4)
    assert (frame["rates"]["all"]["requests"], frame["rates"]["all"]["failures"]) == (6.0, 1.0)
    assert frame["rates"]["all"]["p50"] == 1.0
    assert 9 < frame["rates"]["all"]["p95"] < 11  # not the mean of two quantiles
    assert not frame["own"]
    assert [each["requests"] for each in frame["replicas"]] == [2.0, 4.0]


def test_a_frame_of_one_replica_has_its_own_figures_and_names_the_others() -> None:
    a, b = view("a", {"recent": recent(requests=10)}), view("b", {"recent": recent(requests=20)})
    for chosen, requests, own in (("a", 2.0, True), ("b", 4.0, False)):
        frame = frame_of([a, b], chosen, 1.0)
        assert (frame["rates"]["all"]["requests"], frame["own"], len(frame["replicas"])) == (requests, own, 2)
    assert frame_of([a, b], "gone", 1.0)["rates"]["all"]["requests"] == 0


def test_a_silent_replica_is_named_but_not_counted() -> None:
    a, b = view("a", {"recent": recent(requests=10)}), view("b", {"recent": recent(requests=20)}, silent=30.0)
    frame = frame_of([a, b], None, 1.0)
    assert frame["rates"]["all"]["requests"] == 2.0
    assert [each["silent"] for each in frame["replicas"]] == [0.0, 30.0]


def test_an_endpoint_with_an_account_has_its_pause_and_the_least_that_is_left() -> None:
    quotas = {"requests": {"limit": 10, "left": 2}, "tokens": {"limit": 100, "left": 90}}
    models = {"m1": {"rest_seconds": 7.5, "quotas": quotas}, "m2": {"rest_seconds": 0.0, "quotas": {}}}
    endpoints = [endpoint(1, models=models), endpoint(2)]
    (pool,) = summary_of({"accepting": True, "in_flight": 1, "endpoints": endpoints})["pools"]
    accounts = [each.get("account") for each in pool["endpoints"]]
    assert accounts == [{"rest_seconds": 7.5, "resting": ["m1"], "left": 0.2}, None]
