"""Metrics that models define."""

import pytest

from runtimes.tensor.requests.custom_metrics import MAX_FAMILIES, CustomMetrics, MetricError, MetricHolder

pytestmark = pytest.mark.plain


def family(holder: MetricHolder, kind: str, name: str = "a") -> int:
    return int(holder.answer("metric family", {"name": name, "description": "d", "kind": kind}))


def metric(holder: MetricHolder, of: int, labels: dict[str, str], buckets: list[float] | None = None) -> int:
    return int(holder.answer("metric", {"family": of, "labels": labels, "buckets": buckets}))


def change(holder: MetricHolder, of: int, operation: str, value: float) -> None:
    holder.answer("change metric", {"metric": of, "change": operation, "value": value})


def test_processes_share_a_value_by_its_labels() -> None:
    metrics = CustomMetrics()
    one, other = metrics.holder(), metrics.holder()
    first, second = (metric(holder, family(holder, "counter"), {"x": "1"}) for holder in (one, other))
    change(one, first, "increment", 2)
    assert other.answer("metric value", {"metric": second}) == 2
    one.close()
    assert [each.name for each in metrics] == ["a"]
    other.close()
    assert not list(metrics)


@pytest.mark.parametrize(
    ("kind", "operation", "value"),
    [("counter", "increment", -1), ("counter", "set", 1), ("counter", "observe", 1), ("gauge", "observe", 1),
     ("histogram", "increment", 1), ("histogram", "set", 1)],
)  # fmt: skip
def test_operations_that_a_kind_lacks(kind: str, operation: str, value: float) -> None:
    holder = CustomMetrics().holder()
    number = metric(holder, family(holder, kind), {}, [1.0] if kind == "histogram" else None)
    with pytest.raises(MetricError):
        change(holder, number, operation, value)


@pytest.mark.parametrize("buckets", [None, [2.0, 1.0], [1.0, 1.0]])
def test_buckets_ascend(buckets: list[float] | None) -> None:
    holder = CustomMetrics().holder()
    with pytest.raises(MetricError):
        metric(holder, family(holder, "histogram"), {}, buckets)


def test_a_histogram_counts_each_bucket() -> None:
    metrics = CustomMetrics()
    holder = metrics.holder()
    number = metric(holder, family(holder, "histogram"), {}, [0.1, 1.0])
    for value in (0.05, 0.1, 0.5, 7):
        change(holder, number, "observe", value)
    [only] = next(iter(metrics)).values.values()
    assert (only.counts, only.value) == ([2, 1, 1], 7.65)


def test_a_value_outlives_no_family() -> None:
    holder = CustomMetrics().holder()
    of = family(holder, "gauge")
    number = metric(holder, of, {})
    holder.answer("release metric family", {"handle": of})
    with pytest.raises(MetricError, match="has been deleted"):
        change(holder, number, "set", 1)


def test_families_are_bounded_and_keep_their_kind() -> None:
    holder = CustomMetrics().holder()
    family(holder, "gauge")
    with pytest.raises(MetricError, match="is used by a gauge"):
        family(holder, "counter")
    for wrong in ("nv_gpu", "headrace_x", "a b", ""):
        with pytest.raises(MetricError):
            family(holder, "gauge", wrong)
    for i in range(MAX_FAMILIES - 1):
        family(holder, "gauge", f"m{i}")
    with pytest.raises(MetricError, match="no more are possible"):
        family(holder, "gauge", "one_more")
