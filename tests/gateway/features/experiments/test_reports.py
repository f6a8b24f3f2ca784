"""Bodies of reports: every wrong one is refused with its field, and none does harm."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError, TooLarge
from config.schema.experiment import FeedbackMetricConfig
from gateway.features.experiments.feedback_front import MOST_BYTES, read_report

METRICS = {
    metric.name: metric
    for metric in (
        FeedbackMetricConfig(name="solved"),
        FeedbackMetricConfig(name="thumb", type="thumbs"),
        FeedbackMetricConfig(name="stars", type="number", min=1, max=5),
    )
}


def read(**fields: Any) -> Any:
    return read_report(json.dumps(fields).encode(), METRICS)


@pytest.mark.parametrize(
    ("metric", "value", "scaled"),
    [
        ("solved", True, 1),
        ("solved", False, 0),
        ("thumb", "up", 1),
        ("thumb", "down", 0),
        ("stars", 1, 0),
        ("stars", 4.0, 0.75),
    ],
)
def test_a_value_is_scaled(metric: str, value: object, scaled: float) -> None:
    assert read(id="r", metric=metric, value=value).values == {metric: scaled}


def test_several_metrics_and_a_subject() -> None:
    report = read(experiment="e", subject="ann", values={"solved": True, "stars": 5})
    assert (report.id, report.experiment, report.subject) == ("", "e", "ann")
    assert report.values == {"solved": 1.0, "stars": 1.0}


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"id": "r", "metric": "solved", "value": 1}, "invalid_value", "value"),
        ({"id": "r", "metric": "solved", "value": "true"}, "invalid_value", "value"),
        ({"id": "r", "metric": "solved", "value": None}, "invalid_value", "value"),
        ({"id": "r", "metric": "thumb", "value": "sideways"}, "invalid_value", "value"),
        ({"id": "r", "metric": "thumb", "value": []}, "invalid_value", "value"),
        ({"id": "r", "metric": "stars", "value": 0.99}, "invalid_value", "value"),
        ({"id": "r", "metric": "stars", "value": 5.01}, "invalid_value", "value"),
        ({"id": "r", "metric": "stars", "value": True}, "invalid_value", "value"),
        ({"id": "r", "metric": "stars", "value": 10**400}, "invalid_value", "value"),
        ({"id": "r", "metric": "star", "value": 1}, "unknown_metric", "metric"),
        ({"id": "r", "metric": 1, "value": 1}, "invalid_request", "metric"),
        ({"id": "r", "metric": "solved"}, "invalid_request", "value"),
        ({"id": "r"}, "invalid_request", "metric"),
        ({"id": "r", "value": True}, "invalid_request", "metric"),
        ({"id": "r", "metric": "solved", "value": True, "values": {"solved": True}}, "invalid_request", "metric"),
        ({"id": "r", "values": {}}, "invalid_request", "values"),
        ({"id": "r", "values": {f"m{i}": 1 for i in range(33)}}, "invalid_request", "values"),
        ({"metric": "solved", "value": True}, "invalid_request", "id"),
        ({"id": "", "metric": "solved", "value": True}, "invalid_request", "id"),
        ({"id": 5, "metric": "solved", "value": True}, "invalid_request", "id"),
        ({"id": "r", "experiment": "e", "metric": "solved", "value": True}, "invalid_request", "experiment"),
        ({"id": "r", "experiment": "e", "subject": "s", "metric": "solved", "value": True}, "invalid_request", "id"),
        ({"experiment": "e", "metric": "solved", "value": True}, "invalid_request", "id"),
        ({"experiment": "e", "subject": "s" * 1025, "metric": "solved", "value": True}, "invalid_request", "subject"),
        ({"id": "r", "metrics": "solved", "value": True}, "invalid_request", "metrics"),
    ],
)
def test_a_wrong_report_is_refused_with_its_field(fields: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(CallerError) as refused:
        read(**fields)
    assert (refused.value.code, refused.value.param) == (code, param)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 16_000, b'{"id": "\\ud800", "metric": 1}', b"NaN"]
)
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError):
        read_report(body, METRICS)


def test_a_long_report_is_refused() -> None:
    with pytest.raises(TooLarge):
        read_report(b" " * (MOST_BYTES + 1), METRICS)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from(["id", "experiment", "subject", "metric", "value", "values", "x"]), JSON))
def test_any_report_is_read_or_refused(fields: dict[str, Any]) -> None:
    try:
        report = read(**fields)
    except CallerError:
        return
    assert all(0 <= value <= 1 for value in report.values.values())
