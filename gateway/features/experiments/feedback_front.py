"""`POST /v1/feedback`: values that clients report for requests of experiments and rollouts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from adapters.errors import CallerError, NotFound, TooLarge
from adapters.http1.message import Request, Response
from adapters.wire import decoding
from config.problem import closest
from config.schema.experiment import FeedbackMetricConfig
from gateway.auth.keys import Principal
from gateway.features.experiments.inbox import FeedbackInbox
from gateway.features.rollouts.values import ValueRow, period_of
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.openai import require_json
from gateway.fronts.paths import FEEDBACK as PATH
from gateway.telemetry import Record
from policies.rollouts.live import LiveComparison
from policies.rollouts.signed_ids import GENERATIONS

MOST_BYTES = 16_384
MOST_VALUES = 32
_FIELDS = ("id", "experiment", "subject", "metric", "value", "values")
_UNKNOWN = "Unknown path. This gateway serves /v1/feedback."
_UNIT = 2**63 - 1


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


class ReportedUnit(msgspec.Struct, frozen=True):
    """The arm that a report is about."""

    live: LiveComparison
    generation: int
    unit: int
    arm: int
    stratum: int
    at: float


class FeedbackFront:
    """The handler of `/v1/feedback`. Without an inbox no file has metrics."""

    def __init__(self, door: Door, inbox: FeedbackInbox | None) -> None:
        self._door = door
        self._inbox = inbox
        self._create = DoorPath("/v1/feedback", self._report)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._create]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = self._create if http.target == PATH else None
        return await self._door.serve(http, route, _UNKNOWN, errors.openai_response)

    async def _report(self, principal: Principal, http: Request, record: Record) -> Response:
        inbox = self._inbox
        require_json(http)
        if int(http.headers.get("content-length") or 0) > MOST_BYTES:
            raise too_long()
        body = await http.read()
        if inbox is None:
            raise _unknown()
        report = read_report(body, inbox.live.metrics)
        assigned = await self._assigned(inbox, report, principal)
        now = inbox.wall()
        for name in report.values:
            within = inbox.live.metrics[name].within
            if now > assigned.at + within:
                message = f"`{name}` is accepted for {within:g} s after the request."
                raise CallerError(message, code="feedback_late", param="metric")
        await inbox.put([_row(assigned, name, value) for name, value in report.values.items()])
        answer = {"object": "feedback", "comparison": assigned.live.name, "metrics": list(report.values)}
        return self._door.respond(record, msgspec.json.encode(answer))

    async def _assigned(self, inbox: FeedbackInbox, report: FeedbackReport, principal: Principal) -> ReportedUnit:
        """The request or the subject of a report. One error for all that this tenant does not have."""
        if report.id:
            signed = inbox.live.signed(report.id, principal.tenant)
            if signed is None:
                raise _unknown()
            live, id = signed
            if live.generation and id.generation != live.generation % GENERATIONS:
                message = "The arms of the request's experiment have changed since: its values do not count."
                raise CallerError(message, code="feedback_late", param="id")
            return ReportedUnit(live, id.generation, id.subject & _UNIT, id.arm, id.stratum, id.at)
        named = inbox.live.by_name.get(report.experiment)
        if named is None or named.signer is None or not named.generation:
            raise _unknown()
        unit = named.subject_of(f"{principal.tenant}\0{report.subject}")
        row = await inbox.subject(named.name, named.generation, unit)
        if row is None:
            raise _unknown()
        arm, stratum, at = row
        return ReportedUnit(named, named.generation % GENERATIONS, unit, arm, stratum, at)


def _row(assigned: ReportedUnit, metric: str, value: float) -> ValueRow:
    period = period_of(assigned.stratum, has_baseline=assigned.live.kind == "experiment")
    return ValueRow(
        assigned.live.name,
        assigned.generation,
        metric,
        assigned.unit,
        period,
        assigned.arm,
        assigned.stratum,
        value,
        assigned.at,
    )


def _unknown() -> NotFound:
    message = "No experiment of yours has a request of this id, or this subject."
    return NotFound(message, code="feedback_unknown", param="id")
