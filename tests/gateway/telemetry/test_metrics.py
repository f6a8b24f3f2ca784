"""The families of requests: generative, tensors, exemplars, and the bounds of their labels."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.exposition import generate_latest

from adapters.errors import TransportError
from adapters.reason import reason
from adapters.types import Usage
from config.schema.money import Money
from config.schema.telemetry import MetricsConfig
from gateway.telemetry.metrics import OTHERS, Metrics
from gateway.telemetry.record import Record


def record(operation: str = "chat", usage: Usage | None = None, **fields: Any) -> Record:
    """A request from second 10 to second 14, with its first chunk at second 11."""
    one = Record("id", operation, "client", 10.0)
    one.tenant, one.model, one.pool, one.ended, one.usage = "acme", "m", "p", 14.0, usage
    one.trace.first_chunk = 11.0
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def samples(metrics: Metrics, family: str) -> dict[tuple[str, ...], float]:
    """The values of a family, by the suffix of the name and the values of the labels."""
    (metric,) = [each for each in metrics.collect() if each.name == family]
    return {
        (sample.name.removeprefix(family), *sample.labels.values()): sample.value
        for sample in metric.samples
        if sample.value
    }


def test_a_streamed_chat_is_measured_by_the_conventions() -> None:
    metrics = Metrics()
    metrics.count(record(usage=Usage(100, 7), stream=True))
    labels = ("chat", "headrace", "m")
    assert samples(metrics, "gen_ai_server_request_duration_seconds")["_sum", *labels, ""] == 4
    assert samples(metrics, "gen_ai_server_time_to_first_token_seconds")["_sum", *labels] == 1
    assert samples(metrics, "gen_ai_server_time_per_output_token_seconds")["_sum", *labels] == 0.5
    usage = samples(metrics, "gen_ai_client_token_usage")
    assert (usage["_sum", *labels, "input"], usage["_sum", *labels, "output"]) == (100, 7)
    assert usage["_bucket", *labels, "input", "256.0"] == 1
    assert ("_bucket", *labels, "input", "64.0") not in usage


def test_a_failure_has_its_kind_and_no_tokens() -> None:
    metrics = Metrics()
    metrics.count(record(error=TransportError("reset"), status=502))
    durations = samples(metrics, "gen_ai_server_request_duration_seconds")
    assert durations["_count", "chat", "headrace", "m", "transport"] == 1
    assert samples(metrics, "gen_ai_client_token_usage") == {}


@pytest.mark.parametrize(("operation", "model"), [("infer", "m"), ("chat", "")])
def test_other_requests_are_not_generative(operation: str, model: str) -> None:
    metrics = Metrics()
    metrics.count(record(operation, Usage(1, 1), model=model))
    assert samples(metrics, "gen_ai_server_request_duration_seconds") == {}


def test_a_tensor_request_has_rows_and_seconds_for_each() -> None:
    metrics = Metrics()
    metrics.count(record("infer", Usage(0, 0, rows=8)))
    assert samples(metrics, "headrace_tensor_request_rows")["_sum", "m"] == 8
    assert samples(metrics, "headrace_tensor_seconds_per_row")["_sum", "m"] == 0.5


def test_exemplars_name_exported_traces_alone() -> None:
    metrics = Metrics()
    metrics.count(record(usage=Usage(1, 1)))
    assert b"trace_id" not in generate_latest(metrics.registry)  # type: ignore[no-untyped-call]
    metrics.count(record(usage=Usage(1, 1), exported="ab" * 16))
    text = generate_latest(metrics.registry).decode()  # type: ignore[no-untyped-call]
    assert 'le="5.0",model="m",pool="p"} 2.0 # {trace_id="' + "ab" * 16 + '"} 4.0 ' in text


def test_tenants_without_series_share_a_label() -> None:
    metrics = Metrics()
    metrics.tenants.configure(MetricsConfig(tenants=("a*",)))
    for tenant in ("acme", "beta", "gamma", ""):
        metrics.count(record(tenant=tenant, usage=Usage(3, 0), cost=Money(5 * 10**11, "usd")))
    requests = samples(metrics, "headrace_requests")
    assert {labels[1]: count for labels, count in requests.items()} == {"acme": 1, OTHERS: 2, "": 1}
    assert samples(metrics, "headrace_tokens")["_total", OTHERS, "m", "prompt"] == 6
    assert samples(metrics, "headrace_spend_usd")["_total", OTHERS, "m"] == 1.0


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), max_size=400))
def test_series_are_bounded_and_no_request_is_lost(requests: list[tuple[int, int]]) -> None:
    metrics = Metrics()
    metrics.tenants.configure(MetricsConfig(max_series=100))
    for tenant, model in requests:
        refused = reason("limit", unit="requests", per="key")
        metrics.count(record(tenant=f"t{tenant}", model=f"m{model}", usage=Usage(2, 0), reason=refused))
    refusals = samples(metrics, "headrace_refusals")
    assert len(refusals) <= 101
    assert sum(refusals.values()) == len(requests)
    counted, tokens = samples(metrics, "headrace_requests"), samples(metrics, "headrace_tokens")
    assert len(counted) <= 101
    assert len(tokens) <= 101
    assert sum(counted.values()) == len(requests)
    assert sum(tokens.values()) == 2 * len(requests)


def test_ignored_fields_are_counted_under_bounded_names() -> None:
    metrics = Metrics()
    for ignored in (["metadata", "x_new"], ["x_newer"]):
        metrics.count(record(ignored=ignored))
    assert samples(metrics, "headrace_ignored_fields") == {("_total", "metadata"): 1, ("_total", "other"): 2}
