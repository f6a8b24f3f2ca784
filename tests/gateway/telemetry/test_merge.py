from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.merge import SampleTally


class Worker:
    """One of each kind."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("headrace_requests", "Requests.", ["tenant"], registry=self.registry)
        self.seconds = Histogram("headrace_seconds", "Seconds.", buckets=(1, 2), registry=self.registry)
        self.in_flight = Gauge("headrace_tenant_in_flight", "Now.", ["tenant"], registry=self.registry)
        self.healthy = Gauge("headrace_endpoint_healthy", "1 or 0.", ["endpoint"], registry=self.registry)
        self.age = Gauge("headrace_jwks_age_seconds", "Age.", ["issuer"], registry=self.registry)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


def samples(tally: SampleTally) -> dict[str, float]:
    families = text_string_to_metric_families(tally.exposition().decode())
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
        tally.take(serial, worker.exposition())
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
    tally.take(1, one.exposition())
    tally.take(2, other.exposition())
    tally.end(2)
    tally.take(3, Worker().exposition())  # its successor
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
        tally.take(1, worker.exposition())
    assert samples(tally)["headrace_requests_total,a"] == 3
