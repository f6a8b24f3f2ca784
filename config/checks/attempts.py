"""Finds settings for further attempts that can never occur."""

from collections.abc import Iterator
from contextlib import suppress

from config.document import Document
from config.node import Node
from config.problem import Problem
from config.schema.units import format_duration, parse_duration


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report hedges that are too late."""
    for model in root["models"]:
        for route in model["routes"]:
            yield from _late(doc, route)


def _late(doc: Document, route: Node) -> Iterator[Problem]:
    delay = route["hedge"]["after"]
    with suppress(ValueError):  # a percentile
        after = parse_duration(delay.value)
        first_byte = route["timeout"]["first_byte"].read(float) or 0.0
        # A text that is not streamed may begin after `first_byte`.
        for name, least in (("whole", first_byte), ("total", 0.0)):
            end = route["timeout"][name].read(float)
            if end is not None and after >= max(end, least):
                message = f"has no effect: timeout.{name} ends the first attempt before, after {format_duration(end)}"
                yield doc.problem(delay.place, message)
                break


def is_alone(pool: Node) -> bool:
    """Whether a pool certainly has one endpoint only; discovery may add others."""
    return "runtime" in pool or ("discover" not in pool and len(list(pool["endpoints"])) == 1)
