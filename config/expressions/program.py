"""Compiles expressions, and evaluates them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from config.expressions.checker import Checker
from config.expressions.conversions import as_type
from config.expressions.operand import Evaluation, Operand
from config.expressions.parser import parse
from config.expressions.types import MISSING, CompileError, Path, Value, ValueType, Variables


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression."""

    text: str
    type: ValueType
    references: tuple[Path, ...]
    """The variables that an evaluation may need, without duplicates."""
    unchecked: tuple[str, ...]
    """Conditions that only an evaluation can check, such as the number of elements of a tensor."""
    constant: Value
    """The value, if it is the same for all values of the variables; `MISSING` otherwise."""
    _root: Operand = field(repr=False)

    def evaluate(self, values: Mapping[Path, Value]) -> Value:
        """The value of the expression. An absent variable, or one with the value None or `MISSING`, is missing.

        Raises `ExpressionError` and nothing else. The result is `MISSING` only if `compile_expression` allowed it.
        """
        return self._root.run(Evaluation({path: values.get(path) for path in self.references}))


def compile_expression(
    text: str, variables: Variables, expects: ValueType | Iterable[ValueType] = (), *, may_be_missing: bool = False
) -> Expression:
    """Check and compile an expression. Raises `CompileError`.

    `expects` is the required type of the result, or several of them; empty for any type. An integer is accepted where a
    float is required, and a tensor of one element where a boolean, a number or a text is required. With
    `may_be_missing` the result may be `MISSING` if it refers to an optional variable without a default.
    """
    checker = Checker(variables)
    operand = checker.operand(parse(text))
    if not may_be_missing:
        operand = operand.required(checker.unchecked)
    expected = tuple(expects) if isinstance(expects, Iterable) else (expects,)
    if expected:
        operand = _converted(checker, operand, expected)
    references, unchecked = tuple(dict.fromkeys(checker.references)), tuple(dict.fromkeys(checker.unchecked))
    return Expression(text, operand.type, references, unchecked, operand.constant, operand)


def _converted(checker: Checker, operand: Operand, expected: tuple[ValueType, ...]) -> Operand:
    """The operand as the first of the expected types to which it converts."""
    for type_ in expected:
        converted = as_type(operand, type_, checker.unchecked)
        if converted is not None:
            return converted
    listed = " or ".join(map(str, expected))
    raise CompileError(f"the result is {operand.type}; {listed} is required", operand.column)


__all__ = ["MISSING", "Expression", "compile_expression"]
