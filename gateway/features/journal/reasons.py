"""Why a request was routed as it was, as data: the route, its conditions, the choice of its arm."""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.call import CallTrace, StepTrace
from config.schema.config import Config, RouteConfig
from gateway.features.explain.graphs import graphs_of
from gateway.features.journal.lines import MOST_TEXT
from gateway.telemetry.record import Record
from policies.routing.decision import Decision

_MOST_REASONS = 4096
_json = msgspec.json.Encoder().encode
_UNNAMED: dict[str, Any] = {"kind": "", "condition": None, "parent": None}
_MOST_PARTS = 64
"""Attempts, steps and events of one record; further ones are cut."""


class Reasons:
    """The reasons of decisions under one configuration. A decision is shared by its requests: so are its reasons."""

    def __init__(self, config: Config) -> None:
        self._models = {model.name: (index, model) for index, model in enumerate(config.models)}
        self._config = config
        self._made: dict[int, tuple[Decision, msgspec.Raw]] = {}
        self._nodes = {(graph["model"], node["id"]): node for graph in graphs_of(config) for node in graph["nodes"]}
        self._branches = _branches_of(self._nodes)

    def of(self, decision: Decision) -> msgspec.Raw:
        """The reasons of a decision, as JSON."""
        made = self._made.get(id(decision))
        if made is None:
            if len(self._made) >= _MOST_REASONS:
                self._made.clear()
            made = self._made[id(decision)] = decision, msgspec.Raw(_json(self._describe(decision)))
        return made[1]

    def of_step(self, step: StepTrace) -> str:
        """Why a step of a pipeline answered as it did; empty for a step that no condition concerns."""
        node, branches = (step.pipeline, step.name), self._branches.get((step.pipeline, step.name), ())
        if step.blocked:
            return "a guard blocked it"
        if step.branch is not None and step.branch < len(branches):
            return branches[step.branch]
        condition = self._nodes.get(node, _UNNAMED)["condition"]
        if condition is None:
            return ""
        return f"not {condition}" if step.outcome == "rejected" else str(condition)

    def _describe(self, decision: Decision) -> dict[str, Any]:
        described: dict[str, Any] = {"route": decision.route, "pools": list(decision.pools)}
        index, model = self._models.get(decision.model, (0, None))
        if decision.name is not None:
            described["name"] = decision.name
        if model is not None and model.pipeline is not None:
            described["pipeline"] = model.name
            described["line"] = self._config.line_at(("models", index, "pipeline"))
        if model is not None and decision.route < len(model.routes):
            route = model.routes[decision.route]
            if (line := self._config.line_of(index, decision.route)) is not None:
                described["line"] = line
            described |= _conditions(route)
        if decision.arm is not None:
            described["arm"] = decision.arm
            comparison = decision.comparison
            described["by"] = "split" if comparison is None else f"comparison {comparison.name}"
        if decision.rewrite is not None:
            described["rewrite"] = True
        if decision.priority is not None:
            described["priority"] = decision.priority
        return described


def _branches_of(nodes: Mapping[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """The conditions of the branches of each switch, in the order of the file."""
    branches: dict[tuple[str, str], list[str]] = {}
    for (model, _), node in nodes.items():
        parent = nodes.get((model, node["parent"] or ""), _UNNAMED)
        if parent["kind"] == "switch":
            branches.setdefault((model, node["parent"]), []).append(node["condition"] or "")
    return branches


def _conditions(route: RouteConfig) -> dict[str, Any]:
    """The conditions that the request met."""
    if route.otherwise:
        return {"when": "no other route matches"}
    when = route.when.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"when": when or "every request"}


def detail_of(record: Record, reasons: Reasons) -> dict[str, Any]:
    """The parts of a record that no search compares. Times are milliseconds after the begin of the request."""
    trace, detail = record.trace, dict[str, Any]()
    if record.decision is not None:
        detail["decision"] = reasons.of(record.decision)
    if record.reason is not None:
        detail["reason"] = record.reason.describe()
    if trace.attempts:
        detail["attempts"] = _attempts(trace, record.started)
    if trace.events:
        detail["events"] = [[name, subject[:MOST_TEXT]] for name, subject in trace.events[:_MOST_PARTS]]
    if trace.steps:
        detail["steps"] = [_step(step, record.started, reasons) for step in trace.steps[:_MOST_PARTS]]
    if trace.queue_seconds:
        detail["queue_ms"] = round(trace.queue_seconds * 1000, 3)
    if trace.first_chunk:
        detail["overhead_ms"] = round(record.overhead * 1000, 3)
    if (usage := record.usage) is not None and not usage.exact:
        detail["estimated"] = True
    if usage is not None and usage.cache_write_tokens:
        detail["cache_write_tokens"] = usage.cache_write_tokens
    if record.shadowed:
        detail["shadow_limits"] = [f"{unit} per {per}" for unit, per in record.shadowed]
    if record.ignored:
        detail["ignored"] = [name[:MOST_TEXT] for name in list(record.ignored)[:_MOST_PARTS]]
    if record.guards:
        detail["guards"] = [[*key, count] for key, count in list(record.guards.items())[:_MOST_PARTS]]
    detail["client"] = record.client
    return detail


def _attempts(trace: CallTrace, started: float) -> list[list[Any]]:
    sent = zip(trace.attempts, trace.sent_at, strict=False)
    return [[endpoint, round((at - started) * 1000, 3)] for endpoint, at in list(sent)[:_MOST_PARTS]]


def _step(step: StepTrace, started: float, reasons: Reasons) -> dict[str, Any]:
    made: dict[str, Any] = {"step": step.name, "pipeline": step.pipeline, "outcome": step.outcome}
    made["ms"] = round(step.seconds * 1000, 3)
    if step.started:
        made["at_ms"] = round((step.started - started) * 1000, 3)
    if why := reasons.of_step(step):
        made["why"] = why[:MOST_TEXT]
    if step.endpoint:
        made["endpoint"] = step.endpoint
    if step.error:
        made["error"] = step.error
    if step.usage is not None:
        made |= {"prompt_tokens": step.usage.prompt_tokens, "completion_tokens": step.usage.completion_tokens}
        made["rows"] = step.usage.rows
    if step.cost is not None:
        made["cost"] = str(step.cost)
    return made
