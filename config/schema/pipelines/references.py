"""The steps to which the parts of a pipeline refer."""

from collections.abc import Iterable, Iterator, Sequence

from config.expressions.names import names
from config.schema.pipelines.outputs import REQUEST
from config.schema.pipelines.pipeline import NodeConfig, StepConfig


def references(node: NodeConfig) -> frozenset[str]:
    """The steps outside of a node to which it refers: itself, in its conditions, and in all of its inner nodes.

    A name in a condition may also be an output of the node's own model, so a name that no step has is not an error.
    """
    referenced = set(steps_of(node.out.values()))
    referenced.update(steps_of(reference for _, reference in node.references()))
    referenced.update(path[0] for _, text in node.conditions() for path in names(text) if path[0] != REQUEST)
    for inner in node.nodes():
        referenced |= references(inner)
    return frozenset(referenced - {step.name for step in node.steps})


def needs(steps: Sequence[StepConfig]) -> list[frozenset[str]]:
    """For each step of a sequence, the others that it waits for: those to which it refers, and the guards before it.

    A guard of the answer waits for its subject: the last step before it that is not a guard of the request.
    """
    names = {step.name for step in steps}
    needed, gates, subject = [], set[str](), ""
    for step in steps:
        own = (references(step) & names) | gates
        if step.guard is not None and step.guard.on == "request":
            gates.add(step.name)
        else:
            own |= {subject} if step.guard is not None and subject else set()
            subject = step.name
        needed.append(frozenset(own))
    return needed


def steps_of(written: Iterable[str]) -> Iterator[str]:
    """The steps of references."""
    return (name for reference in written if (name := reference.partition(".")[0]) != REQUEST)
