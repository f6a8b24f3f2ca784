"""Marks in the text that a chat template writes itself, so that the rest of a prompt is known to be its messages'.

The usual way is the reverse: marks in the messages. But a template may compute with a message: it searches it for
`</think>`, or writes its length. There the messages must be as they are.
"""

from collections.abc import Callable

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from adapters.wire.text.chat_jinja import ChatEnvironment

_SEARCHING = frozenset((
    "split", "rsplit", "partition", "rpartition", "startswith", "endswith", "find", "rfind", "index", "rindex", "count",
    "strip", "lstrip", "rstrip", "removeprefix", "removesuffix",
))  # fmt: skip
"""Methods that search a text for their arguments."""
_SEARCHING_FIRST = frozenset(("replace", "get"))
"""Methods that search for their first argument; the others may reach the prompt."""
_NAMING = frozenset(("trim", "selectattr", "rejectattr", "select", "reject", "map", "groupby", "sort", "attr", "sum"))
"""Filters whose arguments do not reach the prompt."""


class OwnMarks(ChatEnvironment):
    """Compiles templates whose constant texts are changed by `mark`, where they may reach the prompt."""

    def __init__(self, mark: Callable[[str], str]) -> None:
        self._mark = mark
        super().__init__()

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _Marking(self._mark).visit(super()._parse(source, name, filename))
        assert isinstance(tree, nodes.Template)
        return tree


class _Marking(NodeTransformer):
    def __init__(self, mark: Callable[[str], str]) -> None:
        self._mark = mark

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802 - as in the base class
        node.data = self._mark(node.data)
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:  # noqa: N802
        if isinstance(node.value, str):
            node.value = self._mark(node.value)
        return node

    def visit_Compare(self, node: nodes.Node) -> nodes.Node:  # noqa: N802
        return node  # true or false

    visit_Test = visit_Not = visit_Compare  # noqa: N815

    def visit_If(self, node: nodes.If | nodes.CondExpr) -> nodes.Node:  # noqa: N802
        test, node.test = node.test, nodes.Const(True)
        self.generic_visit(node)
        node.test = test
        return node

    visit_CondExpr = visit_If  # noqa: N815

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        node.node = self.visit(node.node)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        node.value = self.visit(node.value)
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        method = node.node.attr if isinstance(node.node, nodes.Getattr) else ""
        searched = len(node.args) if method in _SEARCHING else int(method in _SEARCHING_FIRST)
        node.node = self.visit(node.node)
        return self._visited(node, searched)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        if node.node is not None:
            node.node = self.visit(node.node)
        return self._visited(node, len(node.args) if node.name in _NAMING else 1 if node.name == "replace" else 0)

    def _visited(self, node: nodes.Call | nodes.Filter, searched: int) -> nodes.Node:
        """Mark the arguments after the first `searched` ones."""
        node.args[searched:] = [self.visit(one) for one in node.args[searched:]]
        for option in node.kwargs:
            option.value = self.visit(option.value)
        return node
