"""Finds rollouts that cannot end, or whose steps move nothing."""

from collections.abc import Iterator

from config.document import Document
from config.node import Node
from config.problem import Problem


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every invalid step."""
    for model in root["models"]:
        for rollout in (route["rollout"] for route in model["routes"] if "rollout" in route):
            yield from _steps(doc, rollout)


def _steps(doc: Document, rollout: Node) -> Iterator[Problem]:
    last, warmup = 0.0, rollout["warmup"].read(float) or 0.0
    for step in rollout["steps"]:
        weight, least = step["weight"].read(float), step["for"].read(float)
        if weight is not None:
            if weight <= last:
                yield doc.problem(
                    step["weight"].place, "does not rise: each step has a larger weight than the one before"
                )
            last = max(last, weight)
        if least is not None and least <= warmup:
            yield doc.problem(step["for"].place, "is over before the warm-up ends: no event would count")
    whole = [step for step in rollout["steps"] if step["weight"].read(float) == 1.0]
    if whole and "on_if" in rollout and len(list(rollout["steps"])) == 1:
        message = "can never be proven: at 100% there are no requests of `from` to compare with"
        yield doc.problem_with_key(rollout["on_if"].place, message)
