"""Checks a syntax tree: names, literals, conditionals and defaults."""

from dataclasses import replace

from config.expressions import functions, nodes, operators, types
from config.expressions.conversions import alike, cast, or_default, widened, widening
from config.expressions.operand import Evaluation, Operand, constant, folded
from config.expressions.types import BOOL, CompileError, Fault
from config.expressions.variables import element, member, reader
from config.problem import closest

MAX_DEPTH = 80
"""Depth of the syntax tree."""
_Choices = tuple[str, ...]


class Checker:
    """The check of one expression. It collects the references, and the parts that only an evaluation can check."""

    def __init__(self, variables: types.Variables) -> None:
        self._variables = variables
        self._depth = 0
        self.references: list[types.Path] = []
        self.unchecked: list[str] = []

    def operand(self, node: nodes.Node, choices: _Choices = ()) -> Operand:
        """Check a node. `choices` are words that it may use without quotes. Raises `CompileError`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CompileError(f"the expression is nested more than {MAX_DEPTH} deep", node.column)
        result = self._checked(node, choices)
        self._depth -= 1
        return result

    def value(self, node: nodes.Node, choices: _Choices = ()) -> Operand:
        """The same for a node whose value must be present."""
        return self.operand(node, choices).required(self.unchecked)

    def _checked(self, node: nodes.Node, choices: _Choices) -> Operand:
        match node:
            case nodes.LiteralNode():
                return constant(_literal_type(node.value), node.value, node.column)
            case nodes.NameNode():
                return self._name(node, choices)
            case nodes.ListNode():
                return self._list(node, choices)
            case nodes.IndexNode():
                base = self.operand(node.base)
                return element(base, self.value(node.index), node.column, self.unchecked)
            case nodes.MemberNode():
                return member(self.operand(node.base), node.name, node.column)
            case nodes.FunctionCallNode():
                arguments = [self.operand(argument) for argument in node.arguments]
                return functions.call(node.name, arguments, node.column, self.unchecked)
            case nodes.UnaryNode():
                return self._unary(node)
            case nodes.BinaryNode():
                return self._binary(node)
            case nodes.LogicalNode():
                operands = [self.value(part) for part in node.operands]
                return operators.logical(node.operator, operands, node.column, self.unchecked)
            case nodes.ConditionalNode():
                return self._conditional(node, choices)
            case nodes.DefaultNode():
                return self._default(node, choices)

    def _name(self, node: nodes.NameNode, choices: _Choices) -> Operand:
        resolved = self._variables.resolve(node.parts)
        if resolved is None:
            if len(node.parts) == 1 and node.parts[0] in choices:
                return constant(types.StringType(choices), node.parts[0], node.column)
            raise self._unknown(node, choices)
        path, variable = resolved
        self.references.append(path)
        fault: Fault | None = None
        absent = f"`{'.'.join(path)}` may be absent" if variable.optional else ""
        if variable.undeclared:
            absent, fault = f"`{'.'.join(path)}` has no value", "missing"
        operand = Operand(variable.type, reader(path, variable, node.column), node.column, absent, fault)
        for name in node.parts[len(path) :]:
            operand = member(operand, name, node.column)
        return operand

    def _unknown(self, node: nodes.NameNode, choices: _Choices) -> CompileError:
        depth = 0
        while depth < len(node.parts) and self._variables.is_namespace(node.parts[: depth + 1]):
            depth += 1
        if depth == len(node.parts):
            names = ", ".join(self._variables.names_below(node.parts)) or "…"
            prefix = ".".join(node.parts)
            return CompileError(f"`{prefix}` is a group of values: write `{prefix}.` and one of {names}", node.column)
        word, prefix = node.parts[depth], ".".join(node.parts[:depth])
        names_here = [*self._variables.names_below(node.parts[:depth]), *choices]
        message = f"`{prefix}` has no `{word}`" if prefix else f"there is no value `{word}`"
        near = closest(word, names_here)
        full = ".".join((*node.parts[:depth], near)) if near else None
        listed = "" if near or not names_here else f"; there are {', '.join(names_here[:16])}"
        return CompileError(message + listed, node.column, full)

    def _list(self, node: nodes.ListNode, choices: _Choices) -> Operand:
        items = [self.value(item, choices) for item in node.items]
        type_: types.ValueType | None = None
        for item in items:
            common = types.joined(type_, item.type) if type_ is not None else item.type
            if common is None:
                raise CompileError(f"this element is {item.type}, the elements before it are {type_}", item.column)
            type_ = common
        if type_ is not None and isinstance(type_, types.ListType):
            raise CompileError("the elements of a list are not lists", items[0].column)
        if isinstance(type_, types.TensorType | types.JsonType):
            raise CompileError(f"an element of a list is a single value, this is {type_}", items[0].column)
        runs = [widened(item, type_).run for item in items] if type_ else []
        result = Operand(types.ListType(type_, len(items)), lambda at: [run(at) for run in runs], node.column)
        return folded(result, *items)

    def _unary(self, node: nodes.UnaryNode) -> Operand:
        operand = self.value(node.operand)
        if node.operator == "not":
            return operators.negation(operand, node.column, self.unchecked)
        return operators.minus(operand, node.column)

    def _binary(self, node: nodes.BinaryNode) -> Operand:
        """Words of one side may be choices of the other side, which is therefore checked first."""
        if self._is_word(node.left) and not self._is_word(node.right):
            right = self.value(node.right)
            left = self.value(node.left, _choices_of(right))
        else:
            left = self.value(node.left)
            right = self.value(node.right, _choices_of(left))
        return operators.binary(node.operator, left, right, node.column, self.unchecked)

    def _is_word(self, node: nodes.Node) -> bool:
        return isinstance(node, nodes.NameNode) and self._variables.resolve(node.parts) is None

    def _conditional(self, node: nodes.ConditionalNode, choices: _Choices) -> Operand:
        condition = cast(self.value(node.condition), BOOL, self.unchecked)
        chosen, other = self.value(node.chosen, choices), self.value(node.other, choices)
        chosen, other = alike(chosen, other, self.unchecked)
        type_ = types.joined(chosen.type, other.type)
        if type_ is None:
            raise CompileError(f"the result is {chosen.type} or {other.type}: both must have one type", node.column)
        if condition.constant is not types.MISSING:
            return replace(widened(chosen if condition.constant else other, type_), column=node.column)
        test, yes, no = condition.run, widened(chosen, type_).run, widened(other, type_).run
        return Operand(type_, lambda at: yes(at) if test(at) else no(at), node.column)

    def _default(self, node: nodes.DefaultNode, choices: _Choices) -> Operand:
        operand = self.operand(node.operand)
        fallback = self.value(node.fallback, _choices_of(operand) or choices)
        if not operand.absent and not isinstance(operand.type, types.JsonType):
            raise CompileError("this value is always present: remove `default`", node.column)
        if isinstance(operand.type, types.JsonType):
            return or_default(operand, fallback, node.column)
        operand, fallback = alike(operand, fallback, self.unchecked)
        type_ = types.joined(operand.type, fallback.type)
        if type_ is None:
            raise CompileError(f"the default is {fallback.type}, the value is {operand.type}", fallback.column)
        run, instead, convert = operand.run, widened(fallback, type_).run, widening(operand.type, type_)

        def either(at: Evaluation) -> types.Value:
            value = run(at)
            return instead(at) if value is types.MISSING else convert(value) if convert else value

        return Operand(type_, either, node.column)


def _literal_type(value: bool | int | float | str) -> types.ValueType:
    if isinstance(value, bool):
        return types.BOOL
    if isinstance(value, str):
        return types.StringType()
    return types.NumberType(isinstance(value, int), value, value)


def _choices_of(operand: Operand) -> _Choices:
    type_ = operand.type.element if isinstance(operand.type, types.ListType) else operand.type
    return type_.choices if isinstance(type_, types.StringType) else ()
