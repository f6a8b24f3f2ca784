"""Finds settings of queues that do not exist, and queues that never fill or never time out."""

from collections.abc import Iterable, Iterator

from config.checks.references import targets, within
from config.document import Document
from config.node import Node
from config.problem import Problem
from config.schema.units import format_duration

AT_ONCE = "a full pool refuses at once"


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every field of queues without effect."""
    queued = {pool["name"].text for pool in root["pools"] if "queue" in pool or _follows_demand(pool)}
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


def _follows_demand(pool: Node) -> bool:
    """Whether a pool has a queue because its replicas follow the demand."""
    replicas = pool["runtime"]["replicas"] if "runtime" in pool else pool["scale"]
    least, most = replicas["min"].value, replicas["max"].value
    return least == 0 or (most is not None and most != (1 if least is None else least))


def _cap(doc: Document, pool: Node) -> Iterator[Problem]:
    node = pool["queue"]["max_in_flight"]
    cap, most = node.read(int), pool["max_connections"].read(int)
    if cap is not None and most is not None and cap > most:
        yield doc.problem(node.place, f"has no effect: max_connections allows {most}")


def _timeout(doc: Document, root: Node, pool: Node) -> Iterator[Problem]:
    """Report a queue's timeout that is longer than any request may take."""
    if "queue" not in pool:
        return
    routes = (route for model in root["models"] for route in model["routes"] if pool["name"].text in _pools(route))
    totals = [total for route in routes if (total := route["timeout"]["total"].read(float)) is not None]
    timeout = pool["queue"]["timeout"]
    if totals and (timeout.read(float) or 0) > max(totals):
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
