"""Templates of pipeline steps: texts that the operator writes, filled with values of a request or of other steps.

The language is Jinja's in the sandbox of chat templates (`chat_jinja.py`), reduced to the features that a prompt needs:
no attributes and no methods of Python's objects, no functions, macros and other files, only the listed filters. The
steps of a rendering, every text that it builds, and its result are bounded.
"""

from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext

from adapters.wire.text.bounded_jinja import refuse_call
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


class TemplateInvalid(Exception):
    """A template cannot be compiled. `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class TemplateFailed(Exception):
    """A template has no result for its values: one is absent, of an unusable type, or too large."""


class _StepEnvironment(ChatEnvironment):
    """The sandbox of chat templates without attributes and globals, and with the listed filters only."""

    def __init__(self) -> None:
        super().__init__(MAX_RESULT)
        self.undefined = jinja2.StrictUndefined
        self.keep_trailing_newline = False
        self.globals.clear()
        self.tests.pop("attribute", None)
        for name in [each for each in self.filters if each not in FILTERS and not each.startswith("_")]:
            del self.filters[name]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template, and refuse constructs that may recurse."""
        tree = super()._parse(source, name, filename)
        for refused in tree.find_all(_REFUSED):
            kind = type(refused).__name__.lower()
            raise jinja2.TemplateSyntaxError(f"a template of a step has no {kind}", refused.lineno)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Texts are not formatted by `%`."""
        if operator == "%" and isinstance(left, str):
            raise SecurityError("`%` is for numbers")
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
        refuse_call(__obj)


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
        except (SyntaxError, RecursionError, MemoryError):
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
