"""Reads the body of `POST /v1/feedback`: a request's id, or an experiment and a subject, and values of metrics."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from adapters.errors import CallerError, TooLarge
from adapters.wire import decoding
from config.problem import closest
from config.schema.experiment import FeedbackMetricConfig

MOST_BYTES = 16_384
MOST_VALUES = 32
_FIELDS = ("id", "experiment", "subject", "metric", "value", "values")


class FeedbackReport(NamedTuple):
    """Values of one request or of one subject. Either `id` or `experiment` and `subject` are not empty."""

    id: str
    experiment: str
    subject: str
    values: Mapping[str, float]
    """In [0, 1], by the name of the metric."""


def read_report(body: bytes, metrics: Mapping[str, FeedbackMetricConfig]) -> FeedbackReport:
    """Decode and check a report. Raises `CallerError`."""
    if len(body) > MOST_BYTES:
        raise too_long()
    fields = _fields(body)
    id, experiment, subject = (_text(fields, name) for name in ("id", "experiment", "subject"))
    if bool(id) == bool(experiment and subject):
        raise CallerError("Give `id`, the `x-request-id` of an answer, or `experiment` and `subject`.", param="id")
    if id and (experiment or subject):
        raise CallerError("Give either `id`, or `experiment` and `subject`.", param="experiment")
    written = _written(fields)
    return FeedbackReport(id, experiment, subject, {name: _value(name, value, metrics) for name, value in written})


def too_long() -> TooLarge:
    """The error of a report with too many bytes."""
    return TooLarge(f"A report has {MOST_BYTES} bytes at most.")


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(body)
    except decoding.MALFORMED_JSON:
        raise CallerError("The body is not JSON.", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise CallerError("The body is not a JSON object.", code="invalid_json")
    for name in fields:
        if name not in _FIELDS:
            near = closest(name[:128], _FIELDS)
            hint = f" Did you mean `{near}`?" if near else ""
            raise CallerError(f"Unknown field `{name[:128]}`.{hint}", param=name[:128])
    return fields


def _text(fields: Mapping[str, Any], name: str) -> str:
    text = fields.get(name, "")
    if not isinstance(text, str) or len(text) > 1024:
        raise CallerError(f"`{name}` is a text of 1024 characters at most.", param=name)
    return text


def _written(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The values of either form."""
    values, metric = fields.get("values"), fields.get("metric")
    if (values is None) == (metric is None) or (metric is None and "value" in fields):
        raise CallerError("Give `metric` and `value`, or `values` with a value for each metric.", param="metric")
    if values is None:
        if not isinstance(metric, str):
            raise CallerError("`metric` is the name of a metric.", param="metric")
        if "value" not in fields:
            raise CallerError("`value` is missing.", param="value")
        return [(metric, fields["value"])]
    if not isinstance(values, dict) or not 0 < len(values) <= MOST_VALUES:
        raise CallerError(f"`values` is an object with 1 to {MOST_VALUES} metrics.", param="values")
    return list(values.items())


def _value(name: str, value: object, metrics: Mapping[str, FeedbackMetricConfig]) -> float:
    metric = metrics.get(name)
    if metric is None:
        near = closest(name[:128], metrics)
        hint = f" Did you mean `{near}`?" if near else ""
        raise CallerError(f"There is no metric `{name[:128]}`.{hint}", code="unknown_metric", param="metric")
    scaled = metric.scaled(value)
    if scaled is None:
        raise CallerError(f"A value of `{name}` is {metric.expected}.", code="invalid_value", param="value")
    return scaled
