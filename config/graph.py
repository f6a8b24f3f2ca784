"""A static graph of steps, and facts about it: predecessors, cycles, steps that outputs need.

A step names the values that it needs and those that it produces; a value connects its producers to its consumers. All
functions are pure. `adapters.dataflow` runs such a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter


@dataclass(frozen=True, slots=True)
class GraphStep:
    """One node of a graph.

    Several steps may produce one value, such as the branches of a switch: the first that produces it wins, and the
    value is absent if none of them does.
    """

    name: str
    inputs: tuple[str, ...] = ()
    """Values that the step needs. If one is absent, the step is skipped."""
    outputs: tuple[str, ...] = ()
    """Values that it produces. A step without outputs is a check: it runs before any result is complete."""
    optional: tuple[str, ...] = ()
    """Values that it waits for, and runs without if they are absent."""
    required: bool = True
    """Whether its failure fails the whole graph; otherwise its outputs are absent."""


def predecessors(steps: Iterable[GraphStep]) -> dict[str, tuple[str, ...]]:
    """By step: the steps that produce its inputs, in their order."""
    steps = tuple(steps)
    producers: dict[str, list[str]] = {}
    for step in steps:
        for value in step.outputs:
            producers.setdefault(value, []).append(step.name)
    return {
        step.name: tuple(dict.fromkeys(name for value in _needs(step) for name in producers.get(value, ())))
        for step in steps
    }


def cycle(edges: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The nodes of one cycle, each a predecessor of the next and the last of the first; empty if there is no cycle.

    `edges` has the predecessors of each node.
    """
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return tuple(error.args[1][:-1])
    return ()


def needed(steps: Sequence[GraphStep], outputs: Iterable[str]) -> tuple[GraphStep, ...]:
    """The steps that these outputs depend on, in the order of `steps`, with all steps that have no outputs."""
    values = set(outputs)
    chosen = {step.name for step in steps if not step.outputs}
    for step in steps:
        if step.name in chosen:
            values.update(_needs(step))
    while more := [step for step in steps if step.name not in chosen and not values.isdisjoint(step.outputs)]:
        chosen.update(step.name for step in more)
        values.update(value for step in more for value in _needs(step))
    return tuple(step for step in steps if step.name in chosen)


def _needs(step: GraphStep) -> tuple[str, ...]:
    return step.inputs + step.optional
