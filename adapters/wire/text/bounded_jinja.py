"""A sandbox for Jinja templates that bounds the time and the memory of a rendering, for every template.

The sandbox of Jinja prevents access to Python's internals; this sandbox also prevents slow operations and large
results: every iteration, call, filter, comparison and arithmetic operation spends a part of a budget, before it runs
where its result may be large (`bounded_operations.py`).
"""

import sys
import types
import warnings
from collections.abc import Callable, Sized
from functools import partial, reduce
from typing import Any, NoReturn

import jinja2
from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, _PassArg, pass_context
from jinja2.visitor import NodeTransformer
from markupsafe import escape

from adapters.wire.text.bounded_operations import (
    FILTER_CHECKS,
    LIST_METHODS,
    OBJECT_METHODS,
    TEXT_METHODS,
    TemplateBudget,
    check_format,
    check_operation,
)

_COUNTED, _READ, _JOINED, _MADE, _ADDED = "_counted", "_read", "_joined", "_made", "_added"
"""Filters that the sandbox inserts: the iterations of a loop, the reading of a compared value, `~`, slices, `+`."""
_AT_A_GLANCE = frozenset(("attr", "count", "d", "default", "first", "items", "last", "length"))
"""Filters that do not read the elements of their value."""
_BY_ELEMENT = frozenset((
    "batch", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "join", "slice", "sum",
))  # fmt: skip
"""Filters that read the elements of their value, but not the elements of these."""
_COMPARING = frozenset(("dictsort", "groupby", "max", "min", "sort", "unique"))
"""Filters that compare the elements of their value."""
_READING_TESTS = frozenset((
    "in", "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">=", "<", "lt", "lessthan", "<=", "le",
    "lower", "upper", "divisibleby", "odd", "even",
))  # fmt: skip
_CALLED = (nodes.Macro, nodes.Block, nodes.CallBlock, nodes.For)
"""The parts of a template that a call may run: macros, blocks, and loops that are recursive."""
NODES_PER_STEP = 128
"""Nodes of a template, such as operations and constants, that run in one step."""
_SHORT = 256
"""Characters of a constant with which every comparison is fast."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Renders templates within a budget. No text is longer than `longest` characters."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self, longest: int, **options: Any) -> None:
        self.budget = TemplateBudget(longest)
        self._called = (1, 0)
        """The steps of the largest part of the template that a call runs, and the characters of its constant text."""
        super().__init__(finalize=pass_context(partial(self._shown)), **options)
        self.globals.pop("lipsum")
        self.filters |= dict.fromkeys(("escape", "e", "forceescape"), _escaped)
        self.filters |= {"safe": _plain, "join": self._join}
        self.bound_filters()
        self.tests |= {name: self._bounded_test(self.tests[name]) for name in _READING_TESTS}  # type: ignore[arg-type]

    def bound_filters(self) -> None:
        """Bound all filters. A subclass that adds filters calls it again."""
        self.filters |= {
            name: self._bounded(name, function)
            for name, function in self.filters.items()
            if not hasattr(function, "is_bounded")
        }
        self.filters |= {
            _COUNTED: pass_context(lambda _, items, steps, text: self.budget.counted(items, steps, text)),
            _READ: pass_context(lambda _, value: self._read(value)),
            _JOINED: pass_context(lambda _, items: self._join(items)),
            _MADE: pass_context(lambda _, value: self._made(value)),
            _ADDED: pass_context(partial(self._added)),
        }
        for name in (_COUNTED, _READ, _JOINED, _MADE, _ADDED):
            self.filters[name].is_bounded = True

    def rendered(self, template: jinja2.Template, values: dict[str, Any]) -> str:
        """Render a template. Raises any exception of the template, and `SecurityError` if it exceeds a bound."""
        self.budget.refill()
        pieces, size = [], 0
        for piece in template.generate(values):
            size += len(piece)
            if size > self.budget.longest:
                raise SecurityError("the prompt becomes too long")
            pieces.append(piece)
        return "".join(pieces)

    # ── before the rendering ──────────────────────────────────────────────────────────────────────────

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template, and insert the calls that charge the budget: loops, comparisons and texts that `~`
        joins."""
        tree = super()._parse(source, name, filename)
        called = [_cost(node) for node in tree.find_all(_CALLED)]
        self._called = tuple(map(max, zip(self._called, *called, strict=True)))
        inserted = _Inserted().visit(tree)
        assert isinstance(inserted, nodes.Template)
        return inserted

    def _compile(self, source: str, filename: str) -> types.CodeType:
        """Compile a template. Python warns of what a template may do, such as a slice of a number."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return super()._compile(source, filename)

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that spends its work. It has the context, so that the compiler does not evaluate it."""
        passed, check, budget = _PassArg.from_obj(function), FILTER_CHECKS.get(name), self.budget
        iterates = name in _BY_ELEMENT or name in _COMPARING
        unread = sys.maxsize if name in _AT_A_GLANCE else 1 if name in _BY_ELEMENT else 0

        @pass_context
        def bounded(context: Context, *arguments: Any, **options: Any) -> Any:
            if iterates:
                budget.spend(len(arguments[0]) if isinstance(arguments[0], Sized) else 1)
            for argument in arguments[unread:]:
                budget.read(argument)
            if check is not None:
                check(budget, arguments, options)
            if passed is not None:
                arguments = (*_with(context, passed, self), *arguments)
            return self._made(function(*arguments, **options))

        bounded.is_bounded = True  # type: ignore[attr-defined]
        return bounded

    def _bounded_test(self, test: Callable[..., Any]) -> Callable[..., Any]:
        passed = _PassArg.from_obj(test)

        @pass_context
        def bounded(context: Context, *arguments: Any) -> Any:
            for argument in arguments:
                self._read(argument)
            return test(*_with(context, passed, self), *arguments)

        return bounded

    # ── during the rendering ──────────────────────────────────────────────────────────────────────────

    def _read(self, value: Any) -> Any:
        self.budget.read(value)
        return value

    def _shown(self, _: Context, value: Any) -> Any:
        """A value that the template writes, also into a variable."""
        self.budget.make(len(value) if isinstance(value, str) else self.budget.read(value))
        return value

    def _made(self, value: Any) -> Any:
        """The result of a call or of a filter."""
        if isinstance(value, str):
            self.budget.make(len(value))
        elif isinstance(value, list | tuple | dict):
            self.budget.copy(len(value))
        elif isinstance(value, types.GeneratorType):
            return self.budget.counted(value)
        return value

    def _join(self, value: Any, d: str = "", attribute: str | int | None = None) -> str:
        """Jinja's `join`, whose parts are counted before they are joined."""
        if attribute is not None:
            value = map(partial(self._member, attribute), value)
        separator, parts, size = str(d), list[str](), 0
        for item in value:
            size += (len(item) if isinstance(item, str) else self.budget.read(item)) + len(separator)
            self.budget.spend()
            if size > self.budget.longest:
                raise SecurityError("`join` makes too much")
            parts.append(str(item))
        self.budget.make(size)
        return separator.join(parts)

    def _added(self, context: Context, terms: list[Any]) -> Any:
        """The sum of a chain of `+`."""
        if all(type(term) is str for term in terms):
            self.budget.make(sum(map(len, terms)))
            return "".join(terms)
        return reduce(partial(self.call_binop, context, "+"), terms)

    def _member(self, attribute: str | int, item: Any) -> Any:
        for name in attribute.split(".") if isinstance(attribute, str) else [attribute]:
            item = self.getitem(item, int(name) if isinstance(name, str) and name.isdigit() else name)
        return item

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An element of a list, or a member of an object. The hash of a tuple reads all of it."""
        if isinstance(argument, tuple):
            self.budget.read(argument)
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` of a template, within the budget."""
        formatted = super().wrap_str_format(value)
        if formatted is None:
            return None

        def bounded(*arguments: Any, **options: Any) -> str:
            check_format(self.budget, value.__self__, arguments, options)
            return formatted(*arguments, **options)

        return bounded

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_operation(self.budget, operator, left, right)
        return self.binop_table[operator](left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in the base class
        """Call an object that a template may call: its own macros and loops, the globals, and methods of texts and
        lists."""
        budget = __self.budget
        budget.spend()
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, LoopContext):
            args = (budget.counted(args[0], *__self._called), *args[1:]) if args else args
        elif isinstance(__obj, Macro | BlockReference):
            budget.run(*__self._called)
        elif isinstance(__obj, types.BuiltinMethodType) and owner is not None:
            if isinstance(owner, str) and __obj.__name__ == "join":
                (items,) = args
                return __self._join(items, owner)
            __self._check_method(owner, __obj.__name__, args, kwargs)
        elif isinstance(__obj, types.MethodType) and not isinstance(owner, LoopContext | Cycler | Joiner):
            raise SecurityError(f"a template does not call `{__obj.__name__}`")
        else:
            budget.read(list(args))
        return __self._made(super().call(__context, __obj, *args, **kwargs))

    def _check_method(self, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(owner, str) and (check := TEXT_METHODS.get(name)) is not None:
            check(self.budget, (owner, *args), kwargs)
        elif isinstance(owner, list | tuple) and name in LIST_METHODS:
            self.budget.read([owner, *args])
        elif isinstance(owner, dict) and name in OBJECT_METHODS:
            self.budget.read(list(args))
            self.budget.spend(len(owner) if name == "copy" else 1)
        else:
            raise SecurityError(f"a template does not call `{name}` of a {type(owner).__name__}")


class _Inserted(NodeTransformer):
    """Inserts the filters of the sandbox into a template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - as in the base class
        steps, text = _cost(node)
        self.generic_visit(node)
        cost: list[nodes.Expr] = [nodes.Const(steps), nodes.Const(text)]
        node.iter = nodes.Filter(node.iter, _COUNTED, cost, [], None, None, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        contains = any(operand.op in ("in", "notin") for operand in node.ops)
        if not contains and any(_is_short(side) for side in sides) and len(sides) == 2:
            return node  # a comparison with a short constant is fast
        node.expr = _filtered(node.expr, _READ)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, _READ)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _MADE) if isinstance(node.arg, nodes.Slice) else node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _filtered(node.key, _READ)  # the hash of a key reads all of it
        return node

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        """A chain of `+` as one operation: of texts, only the whole is made."""
        terms, rest = [node.right], node.left
        while isinstance(rest, nodes.Add):
            terms.append(rest.right)
            rest = rest.left
        terms.append(rest)
        visited = [self.visit(term) for term in reversed(terms)]
        return _filtered(nodes.List(visited, lineno=node.lineno), _ADDED)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)


def _filtered(node: nodes.Expr, name: str) -> nodes.Expr:
    """An expression with a filter of the sandbox. A short constant has nothing to spend."""
    if name == _READ and _is_short(node):
        return node
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _is_short(node: nodes.Node) -> bool:
    if isinstance(node, nodes.List | nodes.Tuple):
        return len(node.items) <= _SHORT and all(isinstance(each, nodes.Const) for each in node.items)
    return isinstance(node, nodes.Const) and not (isinstance(node.value, str) and len(node.value) > _SHORT)


def _cost(node: nodes.Node) -> tuple[int, int]:
    """The steps of one run of a part of a template, and the characters of its constant text."""
    text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
    return 1 + sum(1 for _ in node.find_all(nodes.Node)) // NODES_PER_STEP, text


def _with(context: Context, passed: _PassArg | None, environment: BoundedEnvironment) -> tuple[Any, ...]:
    """The first argument that a filter expects."""
    if passed is _PassArg.context:
        return (context,)
    if passed is _PassArg.eval_context:
        return (context.eval_ctx,)
    return (environment,) if passed is _PassArg.environment else ()


def _plain(value: Any) -> str:
    """`safe`: nothing is escaped."""
    return str(value)


def _escaped(value: Any) -> str:
    return str(escape(str(value)))


def refuse_call(value: Any) -> NoReturn:
    """Refuse a call in a language without calls."""
    if isinstance(value, Undefined):
        value()  # raises with the name
    raise SecurityError("a template calls no functions")
