from typing import Any

from gateway.process.supervisor.states import merged, spent


def test_amounts_are_summed_and_of_views_the_worst_counts() -> None:
    def view(health: str, breaker: str, in_flight: int, error: str) -> dict[str, Any]:
        endpoint = {"pool": "up", "endpoint": "up/0", "health": health, "breaker": breaker, "in_flight": in_flight}
        return {"in_flight": in_flight, "connections": 2, "endpoints": [{**endpoint, "probe_error": error}]}

    merged_state = merged([view("healthy", "closed", 1, ""), view("unhealthy", "half_open", 2, "It timed out.")])
    assert merged_state == {
        "in_flight": 3,
        "connections": 4,
        "endpoints": [
            {
                "pool": "up", "endpoint": "up/0", "health": "unhealthy", "breaker": "half_open", "in_flight": 3,
                "probe_error": "It timed out.",
            }
        ],
    }  # fmt: skip


def test_entries_are_matched_by_name_wherever_they_stand() -> None:
    one = [{"tenant": "a", "in_flight": 1}, {"tenant": "b", "in_flight": 2}]
    two = [{"tenant": "b", "in_flight": 3}, {"tenant": "c", "in_flight": 4}]
    assert {entry["tenant"]: entry["in_flight"] for entry in merged([one, two])} == {"a": 1, "b": 5, "c": 4}


def test_limits_are_matched_by_position_and_the_least_that_is_left_counts() -> None:
    def view(left: float, subjects: int) -> list[dict[str, Any]]:
        limit = {"requests": "10/min", "concurrency": 8, "models": ["a", "b"], "per": "key"}
        return [{"model": "a", "limits": [{**limit, "subjects": subjects, "remaining": {"requests": left}}]}]

    [model] = merged([view(7, 2), view(3, 5), view(9, 1)])
    [limit] = model["limits"]
    assert limit == {**view(3, 5)[0]["limits"][0]}


def test_money_is_summed_and_stays_money() -> None:
    views = [
        [{"key": "k1", "amount": "0.75 usd"}],
        [{"key": "k2", "amount": "1 usd"}, {"key": "k1", "amount": "1 usd"}],
    ]
    assert merged(views) == [{"key": "k1", "amount": "1.75 usd"}, {"key": "k2", "amount": "1 usd"}]


def test_only_the_spend_of_ended_workers_is_preserved() -> None:
    def view(amount: str) -> list[dict[str, Any]]:
        return [{"tenant": "a", "in_flight": 1, "limits": [], "spent": [{"key": "k1", "amount": amount}]}]

    spend = spent([[], view("1 usd")])
    assert spent([spend, view("0.5 usd")]) == [{"tenant": "a", "spent": [{"key": "k1", "amount": "1.5 usd"}]}]


def test_reported_rates_are_summed() -> None:
    queues = [
        {"pool": "a", "waiting": 1, "by_tenant": {"x": 1}, "served_per_second": rate} for rate in (None, 2.0, 3.0)
    ]
    [merged_state] = merged([[queue] for queue in queues])
    assert merged_state == {"pool": "a", "waiting": 3, "by_tenant": {"x": 3}, "served_per_second": 5.0}
    assert merged([[queues[0]], [queues[0]]])[0]["served_per_second"] is None


def test_a_value_that_no_worker_reports_is_absent() -> None:
    issuer = {"issuer": "login", "keys": 0, "age_seconds": None, "error": ""}
    complete = {"issuer": "login", "keys": 2, "age_seconds": 9.0, "error": ""}
    assert merged([[issuer], [issuer]]) == [issuer]
    assert merged([[issuer], [complete]]) == [{"issuer": "login", "keys": 0, "age_seconds": 9.0, "error": ""}]


def test_one_view_is_itself() -> None:
    view = {"accepting": True, "endpoints": [{"pool": "a", "x": None}], "tenants": [], "texts": ["a", "b"]}
    assert merged([view]) == view
