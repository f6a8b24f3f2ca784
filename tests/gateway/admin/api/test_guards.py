"""`/admin/guards`: the sums of verdicts by guard, from the metrics of the process."""

from prometheus_client import CollectorRegistry

from gateway.admin.api.guards import counted
from gateway.telemetry import Record
from gateway.telemetry.metrics import Metrics


def test_the_verdicts_and_the_times_of_each_guard_are_summed() -> None:
    metrics = Metrics()
    for seconds in (0.25, 0.75):
        record = Record("r", "chat", "127.0.0.1", 0.0)
        record.guards = {("words", "block", "enforce", "prompt"): 2, ("judge", "error", "enforce", "answer"): 1}
        record.guard_seconds = [("judge", seconds)]
        metrics.count(record)
    verdicts, times = counted(metrics.registry)
    assert verdicts == {
        "words": [{"action": "block", "mode": "enforce", "on": "prompt", "texts": 4}],
        "judge": [{"action": "error", "mode": "enforce", "on": "answer", "texts": 2}],
    }
    assert times == {"judge": {"judged": 2, "mean_seconds": 0.5}}


def test_without_a_verdict_there_are_no_sums() -> None:
    assert counted(CollectorRegistry()) == ({}, {})
