"""Templates of pipeline steps: texts that the operator writes, filled with values of a request or of other steps.

The language is Jinja's in the sandbox of chat templates (`chat_jinja.py`), reduced to what a prompt needs: no
attributes and no methods of Python's objects, no functions, macros and other files, only the listed filters. The steps
of a rendering, every text that it builds, and its result are bounded.
"""

from collections.abc import Iterable, Mapping, Sized
from typing import Any

import jinja2
from jinja2 import Undefined, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext
from jinja2.visitor import NodeTransformer

from adapters.wire.text.chat_jinja import ChatEnvironment

MAX_TEMPLATE = 65_536
"""Characters of a template."""
MAX_RESULT = 1024 * 1024
"""Characters of a result, and of the result of one filter."""
FILTERS = frozenset({
    "default", "first", "float", "int", "items", "join", "last", "length", "list", "lower", "replace", "round", "sort",
    "string", "tojson", "trim", "truncate", "unique", "upper",
})  # fmt: skip
_LOOP = frozenset({"index", "index0", "first", "last", "length"})
_REFUSED = (
    nodes.Macro, nodes.CallBlock, nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block,
)  # fmt: skip
_INTERNAL = "_counted"
"""The filter by which the sandbox counts the iterations of loops."""


class TemplateInvalid(Exception):
    """A template cannot be compiled. `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class TemplateFailed(Exception):
    """A template has no result for its values: one is absent, of an unusable type, or too large."""


class _StepEnvironment(ChatEnvironment):
    """The sandbox of chat templates without attributes, globals and unbounded filters."""

    def __init__(self) -> None:
        super().__init__()
        self.undefined = jinja2.StrictUndefined
        self.keep_trailing_newline = False
        self.globals.clear()
        self.tests.pop("attribute", None)
        for name in [each for each in self.filters if each not in FILTERS and each != _INTERNAL]:
            del self.filters[name]
        self.filters["join"] = _join
        self.filters["replace"] = _replace

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template, refuse what may recurse, and bound the texts that `~` joins."""
        tree = super()._parse(source, name, filename)
        for refused in tree.find_all(_REFUSED):
            kind = type(refused).__name__.lower()
            raise jinja2.TemplateSyntaxError(f"a template of a step has no {kind}", refused.lineno)
        return _JoinConcat().visit(tree)  # type: ignore[no-any-return]

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Bound the text that `+` makes. Texts are not formatted by `%`."""
        if operator == "%" and isinstance(left, str):
            raise SecurityError("`%` is for numbers")
        sizes = [len(side) for side in (left, right) if isinstance(side, Sized)]
        if operator == "+" and sum(sizes) > MAX_RESULT:
            raise SecurityError("`+` makes too much")
        if operator in "+%":
            return self.binop_table[operator](left, right)
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A member of an object, or a counter of a loop. Attributes of Python's other objects do not exist."""
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An element of a list or a member of an object."""
        if isinstance(obj, Mapping) and isinstance(argument, str) and argument in obj:
            return obj[argument]
        if isinstance(obj, list | str) and isinstance(argument, int | slice) and not isinstance(argument, bool):
            try:
                return obj[argument]
            except IndexError:
                pass
        return self.undefined(obj=obj, name=str(argument)[:64])

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in the base class
        """Refuse a call: a template has no functions except filters."""
        if isinstance(__obj, Undefined):
            return __obj()  # raises with the name
        raise SecurityError("a template calls no functions")


class _JoinConcat(NodeTransformer):
    """Replaces `a ~ b` by `[a, b] | join`, whose result is bounded."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802 - as in the base class
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes, lineno=node.lineno), "join", [], [], None, None, lineno=node.lineno)


class StepTemplate:
    """One compiled template. Raises `TemplateInvalid`."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_TEMPLATE:
            raise TemplateInvalid(f"a template has at most {MAX_TEMPLATE} characters, not {len(source)}", 1)
        environment = _StepEnvironment()
        try:
            tree = environment.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            """The names of the values that the template reads."""
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateInvalid(str(error.message), error.lineno) from None
        except RecursionError:
            raise TemplateInvalid("the template is nested too deep", 1) from None
        self._environment = environment

    def render(self, values: Mapping[str, Any]) -> str:
        """The text. `values` are JSON values. Raises `TemplateFailed`."""
        try:
            text = self._environment.rendered(self._template, dict(values))
        except jinja2.TemplateError as error:
            raise TemplateFailed(str(error) or type(error).__name__) from None
        except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise TemplateFailed(f"the template cannot use a value: {str(error)[:200]}") from None
        if len(text) > MAX_RESULT:
            raise TemplateFailed(f"the text has more than {MAX_RESULT} characters")
        return text


def _join(items: Iterable[Any], separator: str = "") -> str:
    parts, size = [], 0
    for item in items:
        parts.append(str(item))
        size += len(parts[-1]) + len(separator)
        if size > MAX_RESULT:
            raise SecurityError("`join` makes too much")
    return separator.join(parts)


def _replace(text: str, old: str, new: str) -> str:
    text, old, new = str(text), str(old), str(new)
    if len(text) + text.count(old) * len(new) > MAX_RESULT:
        raise SecurityError("`replace` makes too much")
    return text.replace(old, new)
