"""Warnings, each with its line: settings that are valid but probably a mistake.

Unused parts are valid: in an outage, one edit must be enough to move traffic elsewhere.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil

from config.checks import bus, guards, runtimes
from config.checks.metering import UNITS, amount, globs_of, is_shadow, limits_of
from config.checks.pipelines.walk import model_names, model_of, pipelines
from config.checks.references import pool_of, targets, within
from config.checks.routing import covers_when, is_alone
from config.document import Document, Node, names
from config.place import written
from config.problem import Problem
from config.schema.text import covers, is_glob, may_overlap

_HOURS = {"hour": 1, "day": 24, "month": 744}
_LOOKS_LIKE_PERCENT = range(80, 121)


def advise(doc: Document, root: Node) -> Iterator[Problem]:
    """Every warning about a file without errors."""
    for problem in _all(doc, root):
        yield replace(problem, is_warning=True)


def _all(doc: Document, root: Node) -> Iterator[Problem]:
    yield from _unused_pools(doc, root)
    yield from _lone(doc, root)
    yield from bus.advice(doc, root)
    yield from guards.advice(doc, root)
    yield from runtimes.advice(doc, root)
    own = model_names(root)
    called = {model_of(name, own) for pipeline in pipelines(root) for name in pipeline.config.models()}
    for model in root["models"]:
        yield from _shadowed(doc, model)
        yield from _bracketed(doc, model["name"])
        yield from _nobodys(doc, root, model, called)
        for target in (target for route in model["routes"] for target in within(route)):
            yield from _split(doc, target["split"])
    for tenant in root["tenants"]:
        yield from _globs(doc, root, tenant["models"])
        for holder in (*tenant["keys"], *tenant["certificates"]):
            yield from _globs(doc, root, holder["scopes"]["models"])
        yield from _loose(doc, list(limits_of(tenant)))


def _unused_pools(doc: Document, root: Node) -> Iterator[Problem]:
    routes = [route for model in root["models"] for route in model["routes"]]
    used = {pool.text for route in routes for pool in targets(route)}
    used |= {pool_of(route["shadow"]["to"]).text for route in routes}
    for pool in root["pools"]:
        if pool["name"].text not in used:
            yield doc.problem(pool["name"].place, "no route leads here")


def _lone(doc: Document, root: Node) -> Iterator[Problem]:
    for pool in root["pools"]:
        for name in ("breaker", "outliers"):
            if name in pool and is_alone(pool):
                message = "has no effect while the pool has one endpoint: the last endpoint is never ejected"
                yield doc.problem_with_key(pool[name].place, message)
        if "resume" in pool and is_alone(pool):
            message = "has no effect while the pool has one endpoint: another endpoint would continue the stream"
            yield doc.problem_with_key(pool["resume"].place, message)
    lone = {pool["name"].text for pool in root["pools"] if is_alone(pool)}
    for route in (route for model in root["models"] for route in model["routes"] if "hedge" in route):
        pools = [pool.text for pool in targets(route) if pool.text]
        if pools and lone.issuperset(pools):
            message = (
                "has no effect while its pools have one endpoint: a hedge goes to another endpoint of the same pool"
            )
            yield doc.problem_with_key(route["hedge"].place, message)


def _shadowed(doc: Document, model: Node) -> Iterator[Problem]:
    routes = list(model["routes"])
    for i, route in enumerate(routes):
        for j, earlier in enumerate(routes[:i]):
            if covers_when(earlier["when"], route["when"]):
                line = doc.line(earlier.place)
                yield doc.problem(route.place, f"is never reached: routes[{j}] on line {line} matches all its requests")
                break


def _bracketed(doc: Document, name: Node) -> Iterator[Problem]:
    """Report a glob that looks like a name with a suffix in brackets."""
    if (suffix := re.search(r"\[\d+[A-Za-z]+\]$", name.text or "")) is not None:
        message = f"is a glob, in which {suffix[0]} stands for one character of it: a name with brackets is an alias"
        yield doc.problem(name.place, message)


def _nobodys(doc: Document, root: Node, model: Node, called: set[str | None]) -> Iterator[Problem]:
    name = model["name"].text or ""
    tenants = any(may_overlap(glob, name) for tenant in root["tenants"] for glob in tenant["models"].texts())
    if not tenants and name not in called:
        yield doc.problem(model["name"].place, "no tenant may use this model, and no pipeline calls it")


def _split(doc: Document, split: Node) -> Iterator[Problem]:
    weights = [arm["weight"] for arm in split["arms"]]
    for weight in weights:
        if weight.value == 0:
            yield doc.problem(weight.place, "is parked: it receives no request")
    total = sum(weight.value for weight in weights if isinstance(weight.value, int | float))
    if round(total) in _LOOKS_LIKE_PERCENT and abs(total - 100) >= 0.5:
        yield doc.problem(split["arms"].place, f"weights look like percentages and add up to {total:g}")


def _globs(doc: Document, root: Node, globs: Node) -> Iterator[Problem]:
    model_names = names(root["models"])
    for glob in globs:
        if is_glob(glob.text or "") and not any(may_overlap(glob.text or "", name) for name in model_names):
            yield doc.problem(glob.place, "matches no model")


def _loose(doc: Document, limits: list[Node]) -> Iterator[Problem]:
    for limit, unit in product(limits, UNITS):
        for other in limits:
            if other.place != limit.place and _applies_wherever(other, limit) and _is_tighter(other[unit], limit[unit]):
                place = written(other[unit].place)
                yield doc.problem(limit[unit].place, f"never refuses anything: {place} refuses the same or sooner")
                break


def _applies_wherever(other: Node, limit: Node) -> bool:
    """Whether all usage of one of `limit`'s subjects is charged to a single subject of the other limit."""
    if is_shadow(other):
        return False
    if other["count"].read(str) == "host" != limit["count"].read(str):
        return False  # each host has the other limit, and all hosts share this one
    if other["per"].read(str) not in ("tenant", limit["per"].read(str)):
        return False
    return all(any(covers(glob, model) for glob in globs_of(other)) for model in globs_of(limit))


def _is_tighter(other: Node, limit: Node) -> bool:
    """Whether the other limit never permits more than this one."""
    theirs, ours = amount(other), amount(limit)
    if theirs is None or ours is None:
        return False
    (less, often), (more, seldom) = theirs, ours
    if isinstance(often, float) and isinstance(seldom, float):  # a burst, and a rate
        return less <= more and less / often <= more / seldom
    if often is None or seldom is None:
        return often is seldom and less <= more
    return less * ceil(_HOURS[str(seldom)] / _HOURS[str(often)]) <= more
