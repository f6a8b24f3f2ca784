from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client import Histogram as ClientHistogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.families import Families, decode, encode
from gateway.telemetry.histogram import TRACE, Histogram
from gateway.telemetry.merge import SampleTally


class Worker:
    """One of each kind."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("headrace_requests", "Requests.", ["tenant"], registry=self.registry)
        self.seconds = ClientHistogram("headrace_seconds", "Seconds.", buckets=(1, 2), registry=self.registry)
        self.in_flight = Gauge("headrace_tenant_in_flight", "Now.", ["tenant"], registry=self.registry)
        self.healthy = Gauge("headrace_endpoint_healthy", "1 or 0.", ["endpoint"], registry=self.registry)
        self.age = Gauge("headrace_jwks_age_seconds", "Age.", ["issuer"], registry=self.registry)

    def encoded(self) -> bytes:
        return encode(self.registry)


def samples(tally: SampleTally) -> dict[str, float]:
    families = text_string_to_metric_families(generate_latest(tally.registry).decode())
    values = {}
    for sample in (sample for family in families for sample in family.samples):
        if not sample.name.endswith("_created"):
            values[sample.name + "".join(f",{v}" for v in sample.labels.values())] = sample.value
    return values


def two() -> tuple[Worker, Worker]:
    one, other = Worker(), Worker()
    one.requests.labels("a").inc(3)
    other.requests.labels("a").inc(4)
    other.requests.labels("b").inc(5)
    for value in (0.5, 1.5):
        one.seconds.observe(value)
    other.seconds.observe(9)
    one.in_flight.labels("a").set(2)
    other.in_flight.labels("a").set(1)
    one.healthy.labels("up/0").set(1)
    other.healthy.labels("up/0").set(0)
    one.age.labels("login").set(10)
    other.age.labels("login").set(30)
    return one, other


def test_workers_count_as_one() -> None:
    tally = SampleTally()
    for serial, worker in enumerate(two()):
        tally.take(serial, worker.encoded())
    assert samples(tally) == {
        "headrace_requests_total,a": 7,
        "headrace_requests_total,b": 5,
        "headrace_seconds_bucket,1.0": 1,
        "headrace_seconds_bucket,2.0": 2,
        "headrace_seconds_bucket,+Inf": 3,
        "headrace_seconds_count": 3,
        "headrace_seconds_sum": 11,
        "headrace_tenant_in_flight,a": 3,
        "headrace_endpoint_healthy,up/0": 0,
        "headrace_jwks_age_seconds,login": 30,
    }


def test_counters_of_a_worker_outlive_it_and_gauges_do_not() -> None:
    tally = SampleTally()
    one, other = two()
    tally.take(1, one.encoded())
    tally.take(2, other.encoded())
    tally.end(2)
    tally.take(3, Worker().encoded())  # its successor
    after = samples(tally)
    assert (after["headrace_requests_total,a"], after["headrace_requests_total,b"]) == (7, 5)
    assert after["headrace_seconds_count"] == 3
    assert after["headrace_tenant_in_flight,a"] == 2
    assert after["headrace_endpoint_healthy,up/0"] == 1
    tally.end(1)
    tally.end(3)
    tally.end(4)  # an unknown worker
    assert samples(tally)["headrace_requests_total,a"] == 7


def test_the_latest_of_a_worker_counts_once() -> None:
    tally = SampleTally()
    worker = Worker()
    for _ in range(3):
        worker.requests.labels("a").inc()
        tally.take(1, worker.encoded())
    assert samples(tally)["headrace_requests_total,a"] == 3


values = st.floats(0, 10)
observed = st.lists(st.tuples(values, st.sampled_from(["", "aa", "bb"])), max_size=20)


def histogram_of(observed: list[tuple[float, str]]) -> HistogramMetricFamily:
    histogram = Histogram((1.0, 2.0, 5.0))
    for value, trace_id in observed:
        histogram.observe(value, trace_id)
    family = HistogramMetricFamily("headrace_seconds", "Seconds.", labels=("model",))
    family.add_metric(("m",), histogram.buckets(), histogram.sum)
    return family


@given(observed)
def test_families_are_equal_after_the_way_to_the_supervisor(observed: list[tuple[float, str]]) -> None:
    family = histogram_of(observed)
    assert decode(encode(Families([family]))) == [family]


@given(st.lists(observed, min_size=1, max_size=4))
def test_the_newest_exemplar_of_each_range_is_exposed(workers: list[list[tuple[float, str]]]) -> None:
    tally = SampleTally()
    families = [histogram_of(observed) for observed in workers]
    for serial, family in enumerate(families):
        tally.take(serial, encode(Families([family])))
    text = openmetrics.generate_latest(tally.registry).decode()  # type: ignore[no-untyped-call]
    (merged,) = openmetrics_families(text)  # type: ignore[no-untyped-call]
    for sample in merged.samples:
        same = [each for family in families for each in family.samples if matches(each, sample)]
        assert sample.value == sum(each.value for each in same)
        times = [float(each.exemplar.timestamp or 0) for each in same if each.exemplar]
        if sample.name.endswith("_bucket") and times:
            assert sample.exemplar is not None
            assert float(sample.exemplar.timestamp) == max(times)
            assert sample.exemplar.labels[TRACE] in ("aa", "bb")
        else:
            assert sample.exemplar is None


def matches(one: Any, other: Any) -> bool:
    return bool((one.name, one.labels) == (other.name, other.labels))
