"""Finds settings for further attempts that can never occur."""

from collections.abc import Iterator
from contextlib import suppress

from config.document import Document
from config.node import Node
from config.problem import Problem
from config.schema.route import TimeoutConfig
from config.schema.units import format_duration, parse_duration


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report hedges that are too late."""
    for model in root["models"]:
        for route in model["routes"]:
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
    """Whether a pool certainly has one endpoint only; discovery may add others."""
    return "runtime" in pool or ("discover" not in pool and len(list(pool["endpoints"])) == 1)
