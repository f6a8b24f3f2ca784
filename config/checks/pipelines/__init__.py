"""Checks the pipelines of the file. Each yields problems with the line of the mistake.

graph.py       models and references exist; steps that can never run, cycles, depth and width
inert.py       fields without effect, steps that can only fail
leaves.py      inputs and models of nodes that contain no others; Python files and their functions
types.py       datatypes, shapes and conditions that do not fit, where the file declares them
walk.py        the pipelines of a file, and their nodes with their places
"""

from collections.abc import Iterator

from config.checks.pipelines import graph, inert, leaves, types
from config.document import Document, Node
from config.problem import Problem


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every mistake of a pipeline whose own section is valid."""
    yield from graph.check_names(doc, root)
    yield from graph.check(doc, root)
    yield from types.check_conditions(doc, root)
    yield from types.check(doc, root)
    yield from leaves.check(doc, root)
    yield from leaves.check_code(doc, root)
    yield from inert.check(doc, root)
