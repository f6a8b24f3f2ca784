"""Settings of queues that would have no effect."""

from pathlib import Path

import pytest

from config.loader import load
from tests.config.conftest import RIGHT, Complaints

QUEUED = RIGHT.replace("  - name: spare\n", "    queue: {max: 100, max_in_flight: 8}\n  - name: spare\n")
ROUTE = "        fallback: [spare]\n"
SPARE = "    endpoints: [http://10.0.0.7:8000]\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max: 100, max_in_flight: 8", ""),
        ("max: 100", "timeout: 2m, lower_priorities: 10%"),
        (ROUTE, f"{ROUTE}        when_full: fallback\n        priority: low\n"),
        ("models: [chat]", "models: [chat]\n    share: 2.5\n    priority: high"),
    ],
)
def test_settings_that_are_accepted(complaints: Complaints, old: str, new: str) -> None:
    assert complaints(QUEUED.replace(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("max: 100", "max: 0", "5: pools[0].queue.max: must be at least 1, got 0"),
        ("max: 100", "maximum: 5", '5: pools[0].queue.maximum: unknown field (did you mean "max"?)'),
        ("max: 100", "lower_priorities: 60%", "pools[0].queue: lower priorities have at most 50% of a turn each"),
        ("in_flight: 8", "in_flight: 300", "pools[0].queue.max_in_flight: has no effect: max_connections allows 256"),
        (
            "in_flight: 8}",
            "in_flight: 8}\n    max_connections: 4",
            "5: pools[0].queue.max_in_flight: has no effect: max_connections allows 4",
        ),
        (
            "max: 100",
            "timeout: 20m",
            "pools[0].queue.timeout: has no effect: timeout.total ends every request before, after 10m",
        ),
        (
            ROUTE,
            "        when_full: fallback\n",
            "models[0].routes[0].when_full: has no effect without a fallback",
        ),
        (
            ROUTE,
            f"{ROUTE}        when_full: elsewhere\n",
            "models[0].routes[0].when_full: expected wait or fallback",
        ),
        (
            "models: [chat]",
            "models: [chat]\n    priority: highest",
            'tenants[0].priority: expected high or normal or low or batch (did you mean "high"?)',
        ),
        ("models: [chat]", "models: [chat]\n    share: 0", "tenants[0].share: "),
    ],
)
def test_settings_that_are_refused(complaints: Complaints, old: str, new: str, problem: str) -> None:
    (line,) = complaints(QUEUED.replace(old, new))
    assert problem in line


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("models: [chat]", "models: [chat]\n    share: 3", "tenants[0].share: has no effect: no pool has a `queue`"),
        ("models: [chat]", "models: [chat]\n    priority: low", "tenants[0].priority: has no effect: no pool has a"),
        (ROUTE, f"{ROUTE}        priority: low\n", "routes[0].priority: has no effect: none of its pools has a"),
        (ROUTE, f"{ROUTE}        when_full: fallback\n", "routes[0].when_full: has no effect: none of its pools has"),
    ],
)
def test_settings_of_a_queue_without_a_queue_are_reported(
    complaints: Complaints, old: str, new: str, place: str
) -> None:
    (line,) = complaints(RIGHT.replace(old, new))
    assert place in line
    assert "a full pool refuses at once" in line


def test_a_queue_behind_a_route_is_one_of_its_fallbacks_too(complaints: Complaints) -> None:
    text = RIGHT.replace(SPARE, f"{SPARE}    queue: {{}}\n").replace(ROUTE, f"{ROUTE}        priority: low\n")
    assert complaints(text) == []


def test_how_many_an_endpoint_has_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(
        """\
version: 1
pools:
  - {name: plain, endpoints: [http://10.0.0.1:8000], max_connections: 20}
  - {name: queued, endpoints: [http://10.0.0.1:8000], max_connections: 20, queue: {}}
  - {name: capped, endpoints: [http://10.0.0.1:8000], queue: {max_in_flight: 8}}
  - {name: bundled, runtime: {kind: llm, model: m, max_num_seqs: 4}}
  - {name: runtime, runtime: {kind: llm, model: m, max_num_seqs: 4}, queue: {}}
models:
  - {name: chat, routes: [{to: plain}]}
tenants:
  - {name: acme, models: [chat]}
"""
    )
    assert [pool.max_in_flight for pool in load(path).pools] == [20, 20, 8, 256, 4]
