"""Settings about further attempts that could never come to one."""

from collections.abc import Iterator
from contextlib import suppress

from config.document import Document
from config.node import Node
from config.problem import Problem
from config.references import targets
from config.route import TimeoutConfig
from config.units import format_duration, parse_duration


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Hedges and resumes without anybody else to ask, and hedges that come too late."""
    lone = {pool["name"].text for pool in root["pools"] if is_alone(pool)}
    for pool in root["pools"]:
        if "resume" in pool and is_alone(pool):
            message = "has no effect: another endpoint of the same pool carries on, and there is none"
            yield doc.problem_with_key(pool["resume"].place, message)
    for model in root["models"]:
        for route in model["routes"]:
            pools = [pool.text for pool in targets(route) if pool.text]
            if "hedge" in route and pools and lone.issuperset(pools):
                message = "has no effect: a hedge asks another endpoint of the same pool, and there is none"
                yield doc.problem_with_key(route["hedge"].place, message)
            yield from _late(doc, route)


def _late(doc: Document, route: Node) -> Iterator[Problem]:
    after, default = _seconds(route["hedge"]["after"]), TimeoutConfig()
    for name, usual in (("first_byte", default.first_byte), ("total", default.total)):
        end = _seconds(route["timeout"][name]) or usual
        if after is not None and after >= end:
            message = f"has no effect: timeout.{name} ends the first attempt before, after {format_duration(end)}"
            yield doc.problem(route["hedge"]["after"].place, message)
            break


def _seconds(node: Node) -> float | None:
    with suppress(ValueError):
        return parse_duration(node.value)
    return None


def is_alone(pool: Node) -> bool:
    """Whether it surely has one endpoint: others may be discovered later."""
    return "runtime" in pool or ("discover" not in pool and len(list(pool["endpoints"])) == 1)
