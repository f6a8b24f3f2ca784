"""Counts and times of a model, in the form in which Triton's clients read them."""

import pytest

from runtimes.histogram import Histogram
from runtimes.tensor.statistics import BOUNDS, MAX_RESPONSES, ModelStatistics

pytestmark = pytest.mark.plain


def reported(statistics: ModelStatistics) -> dict[str, dict[str, int]]:
    parts: dict[str, dict[str, int]] = statistics.report("m", "1")["inference_stats"]
    return parts


def test_times_of_a_batch_count_for_each_of_its_requests() -> None:
    statistics = ModelStatistics()
    statistics.executed(4, 8, queued=0.004, computed=0.002)
    parts = reported(statistics)
    assert parts["queue"] == {"count": 4, "ns": 4_000_000}
    assert parts["compute_infer"] == {"count": 4, "ns": 8_000_000}
    assert parts["compute_input"] == {"count": 4, "ns": 0}
    assert parts["compute_output"] == {"count": 4, "ns": 0}


def test_rows_and_executions_are_counted_apart_and_by_batch_size() -> None:
    statistics = ModelStatistics()
    for rows in (8, 1, 8):
        statistics.executed(1, rows, queued=0, computed=0.001)
    entry = statistics.report("m", "3")
    assert (entry["name"], entry["version"]) == ("m", "3")
    assert (entry["inference_count"], entry["execution_count"]) == (17, 3)
    sizes = {one["batch_size"]: one["compute_infer"] for one in entry["batch_stats"]}
    assert sizes == {1: {"count": 1, "ns": 1_000_000}, 8: {"count": 2, "ns": 2_000_000}}


def test_ends_of_requests() -> None:
    statistics = ModelStatistics()
    statistics.succeeded(0.25)
    statistics.failed(0.5, "REJECTED")
    statistics.failed(0.25, "BACKEND")
    parts = reported(statistics)
    assert parts["success"] == {"count": 1, "ns": 250_000_000}
    assert parts["fail"] == {"count": 2, "ns": 750_000_000}
    assert statistics.report("m", "1")["last_inference"] > 1_600_000_000_000


def test_the_cache() -> None:
    statistics = ModelStatistics()
    statistics.cache_hit(0.001)
    statistics.cache_missed(0.002)
    parts = reported(statistics)
    assert parts["cache_hit"] == {"count": 1, "ns": 1_000_000}
    assert parts["cache_miss"] == {"count": 1, "ns": 2_000_000}


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (BOUNDS[0], 0), (BOUNDS[1], 1), (1000.0, len(BOUNDS))])
def test_a_bucket_holds_its_upper_end(seconds: float, bucket: int) -> None:
    histogram = Histogram(BOUNDS)
    histogram.add(seconds)
    assert histogram.counts.index(1) == bucket


def test_our_own_fields_are_beside_tritons() -> None:
    entry = ModelStatistics().report("m", "1", memory=4096, extra={"quantization": {"to": "int8"}})
    assert entry["memory_usage"] == [{"type": "CPU", "id": 0, "byte_size": 4096}]
    assert entry["quantization"] == {"to": "int8"}


def test_responses_of_a_decoupled_model_are_counted_by_their_place() -> None:
    statistics = ModelStatistics()
    statistics.response(0).add(0.001)
    statistics.response(0).add(0.002)
    statistics.response(1).add(0.004)
    statistics.response(1).missed(cancelled=False)
    statistics.response(2).missed(cancelled=True)
    statistics.response(2).empty += 1
    reported = statistics.report("m", "1")["response_stats"]
    assert reported["0"]["success"] == {"count": 2, "ns": 3_000_000}
    assert reported["1"]["compute_infer"] == {"count": 1, "ns": 4_000_000}
    assert (
        reported["1"]["fail"]["count"],
        reported["2"]["cancel"]["count"],
        reported["2"]["empty_response"]["count"],
    ) == (1, 1, 1)


def test_responses_beyond_a_bound_are_counted_as_one() -> None:
    statistics = ModelStatistics()
    for place in range(10 * MAX_RESPONSES):
        statistics.response(place).add(0)
    reported = statistics.report("m", "1")["response_stats"]
    assert len(reported) == MAX_RESPONSES
    assert reported[str(MAX_RESPONSES - 1)]["success"]["count"] == 9 * MAX_RESPONSES + 1
