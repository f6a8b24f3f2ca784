"""Finds settings of queues that do not exist, and queues that never fill or never time out."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from config.checks.references import targets, within
from config.document import Document
from config.node import Node
from config.problem import Problem
from config.schema.pool import PoolConfig
from config.schema.route import TimeoutConfig
from config.schema.units import format_duration, parse_duration

AT_ONCE = "a full pool refuses at once"
MAX_CONNECTIONS = PoolConfig.model_fields["max_connections"].default


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every field of queues without effect."""
    queued = {pool["name"].text for pool in root["pools"] if "queue" in pool}
    for pool in root["pools"]:
        yield from _cap(doc, pool)
        yield from _timeout(doc, root, pool)
    for model in root["models"]:
        for route in model["routes"]:
            waits = any(target in queued for target in _pools(route))
            yield from _route(doc, route, waits=waits)
    for tenant in root["tenants"] if not queued else ():
        for name in ("share", "priority"):
            if name in tenant:
                yield doc.problem_with_key(tenant[name].place, f"has no effect: no pool has a `queue`, {AT_ONCE}")


def _cap(doc: Document, pool: Node) -> Iterator[Problem]:
    cap, connections = pool["queue"]["max_in_flight"], pool["max_connections"]
    most = connections.value if isinstance(connections.value, int) else MAX_CONNECTIONS
    if isinstance(cap.value, int) and cap.value > most:
        yield doc.problem(cap.place, f"has no effect: max_connections allows {most}")


def _timeout(doc: Document, root: Node, pool: Node) -> Iterator[Problem]:
    """Report a queue's timeout that is longer than any request may take."""
    timeout, name = pool["queue"]["timeout"], pool["name"].text
    totals = [
        _seconds(route["timeout"]["total"]) or TimeoutConfig().total
        for model in root["models"]
        for route in model["routes"]
        if name in _pools(route)
    ]
    if totals and (_seconds(timeout) or 0) > max(totals):
        message = f"has no effect: timeout.total ends every request before, after {format_duration(max(totals))}"
        yield doc.problem(timeout.place, message)


def _route(doc: Document, route: Node, *, waits: bool) -> Iterator[Problem]:
    for name in ("priority", "when_full"):
        if name in route and not waits:
            message = f"has no effect: none of its pools has a `queue`, {AT_ONCE}"
            yield doc.problem_with_key(route[name].place, message)
    if waits and "when_full" in route and not any(list(target["fallback"]) for target in within(route)):
        yield doc.problem_with_key(route["when_full"].place, "has no effect without a fallback")


def _pools(route: Node) -> Iterable[str | None]:
    return [target.text for target in targets(route)]


def _seconds(node: Node) -> float | None:
    with suppress(ValueError):
        return parse_duration(node.value)
    return None
