"""All causes of what somebody asks about, the most important first."""

import re
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

from gateway.admin.diagnosis.conditions import conditions
from gateway.admin.diagnosis.delays import slow_requests
from gateway.admin.diagnosis.evidence import Evidence
from gateway.admin.diagnosis.failures import failures
from gateway.admin.diagnosis.finding import Finding, plain
from gateway.admin.diagnosis.refusals import refusals
from gateway.features.journal.lines import MICROS, time_of

_COMMAND = re.compile(r"`(headrace (?:audit|explain|keys|requests|rollout|top|usage|why)\b(?![^`]*--config)[^`]*)`")
"""Commands that would read the bundled file without `--config`, and so another gateway's state."""


def findings(evidence: Evidence) -> list[Finding]:
    """Severe defects first, then by the requests that a cause explains."""
    made = list(chain(refusals(evidence), failures(evidence), slow_requests(evidence), conditions(evidence)))
    file = plain(evidence.state.get("configuration", {}).get("file") or "FILE")
    causes = [
        each._replace(steps=tuple(_COMMAND.sub(rf"`\1 --config {file}`", step) for step in each.steps)) for each in made
    ]
    return sorted(causes, key=lambda each: (-each.severe, -each.requests))


def report(evidence: Evidence) -> dict[str, Any]:
    """As JSON, with what was examined."""
    query, rows = evidence.question.query, evidence.rows
    causes = findings(evidence)
    return {
        "from": time_of(query.begin),
        "to": time_of(min(query.end, int(time.time() * MICROS))),
        "examined": {"requests": len(rows), "failed": len(evidence.failed), "most": query.limit},
        "explained": sum(each.requests for each in causes if each.name != "requests_not_stored"),
        "causes": [each.describe() for each in causes],
        "summary": _summary(causes, evidence),
    }


def _summary(causes: Sequence[Finding], evidence: Evidence) -> str:
    if not causes:
        noun = "request" if len(evidence.rows) == 1 else "requests"
        return f"Nothing is wrong that the gateway can see: {len(evidence.rows)} {noun}, none failed."
    return causes[0].sentence
