"""A graph of steps, prepared for its runs: the part that some outputs need, and the consumers of each value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import pairwise

from config.graph import GraphStep, cycle, needed, predecessors

PLANS = 64
"""Plans of one graph that are stored: one for each combination of outputs that requests name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of a graph that produces some outputs."""

    steps: tuple[GraphStep, ...]
    outputs: frozenset[str]
    waits: tuple[int, ...]
    """The values that each step waits for."""
    consumers: Mapping[str, tuple[int, ...]]
    """The steps that wait for each value."""
    producers: Mapping[str, int]
    """The number of steps that may produce each value."""
    checks: int
    """Steps without outputs."""
    chain: tuple[GraphStep, ...] = ()
    """All steps in order, if each needs the one before it: they need no bookkeeping."""
    sources: frozenset[str] = frozenset()
    """Values that the steps of a chain need from the request."""


class Dataflow:
    """A graph, and its plans. Raises `ValueError` for a cycle."""

    def __init__(self, steps: Iterable[GraphStep]) -> None:
        self.steps = tuple(steps)
        if circle := cycle(predecessors(self.steps)):
            raise ValueError(f"the steps {', '.join(circle)} need each other's outputs")
        self.plan = lru_cache(PLANS)(self._plan)

    def _plan(self, outputs: frozenset[str]) -> Plan:
        steps = needed(self.steps, outputs)
        consumers: dict[str, list[int]] = {}
        producers: dict[str, int] = {}
        waits = []
        for index, step in enumerate(steps):
            values = {*step.inputs, *step.optional}
            waits.append(len(values))
            for value in values:
                consumers.setdefault(value, []).append(index)
            for value in set(step.outputs):
                producers[value] = producers.get(value, 0) + 1
        by_value = {value: tuple(indexes) for value, indexes in consumers.items()}
        checks = sum(not step.outputs for step in steps)
        sources = frozenset(value for step in steps for value in step.inputs if value not in producers)
        return Plan(steps, outputs, tuple(waits), by_value, producers, checks, _chain(steps), sources)


def _chain(steps: tuple[GraphStep, ...]) -> tuple[GraphStep, ...]:
    """The steps in their only possible order; empty if there are several."""
    edges = predecessors(steps)
    by_name = {step.name: step for step in steps}
    order = [by_name[name] for name in TopologicalSorter(edges).static_order()]
    produced = [value for step in steps for value in step.outputs]
    is_chain = len(set(produced)) == len(produced) and all(
        before.name in edges[after.name] for before, after in pairwise(order)
    )
    return tuple(order) if is_chain else ()
