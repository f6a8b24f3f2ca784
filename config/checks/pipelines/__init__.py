"""Checks the pipelines of the file. Each yields problems with the line of the mistake.

code.py        Python files without their function, or with a mistake in their syntax
conditions.py  conditions that are invalid or never change, branches that never run
graph.py       steps that can never run, cycles, depth and width
inert.py       fields without effect, steps that can only fail
leaves.py      inputs and models of nodes that contain no others
names.py       models and references exist
types.py       datatypes and shapes that do not fit, where the file declares them
walk.py        the pipelines of a file, and their nodes with their places
"""

from collections.abc import Iterator

from config.checks.pipelines import code, conditions, graph, inert, leaves, names, types
from config.document import Document
from config.node import Node
from config.problem import Problem


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every mistake of a pipeline whose own section is valid."""
    yield from names.check(doc, root)
    yield from graph.check(doc, root)
    yield from conditions.check(doc, root)
    yield from types.check(doc, root)
    yield from leaves.check(doc, root)
    yield from code.check(doc, root)
    yield from inert.check(doc, root)
