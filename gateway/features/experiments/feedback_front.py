"""`POST /v1/feedback`: values that clients report for requests of experiments and rollouts."""

import msgspec

from adapters.errors import CallerError, NotFound
from adapters.http1.message import Request, Response
from gateway.auth.keys import Principal
from gateway.features.experiments.inbox import FeedbackInbox
from gateway.features.experiments.reports import MOST_BYTES, FeedbackReport, read_report, too_long
from gateway.features.rollouts.values import ValueRow, period_of
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.openai import require_json
from gateway.fronts.paths import FEEDBACK as PATH
from gateway.telemetry import Record
from policies.rollouts.live import LiveComparison
from policies.rollouts.signed_ids import GENERATIONS

_UNKNOWN = "Unknown path. This gateway serves /v1/feedback."
_UNIT = 2**63 - 1


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
