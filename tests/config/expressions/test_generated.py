"""Generated expressions: well-typed ones agree with plain Python, ill-typed ones are refused, any text is survived."""

import os
from math import isnan, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.expressions import (
    BOOL,
    FLOAT,
    INT,
    MISSING,
    STRING,
    CompileError,
    Expression,
    ExpressionError,
    ValueType,
    compile_expression,
)
from config.expressions.types import MAX_INT
from tests.config.expressions.language import (
    COUNT,
    LAST,
    SAMPLES,
    VARIABLES,
    NotANumber,
    Sample,
    Values,
    compared,
    values,
)

EXAMPLES = int(os.environ.get("HEADRACE_EXPRESSIONS", "150"))
TYPES: dict[str, ValueType] = {"bool": BOOL, "int": INT, "float": FLOAT, "text": STRING}
PYTHON = {"bool": bool, "int": int, "float": float, "text": str}


def compiled(text: str, *expects: ValueType) -> Expression | CompileError:
    try:
        return compile_expression(text, VARIABLES, expects)
    except CompileError as refusal:
        error = refusal
    assert 1 <= error.column <= len(text) + 1
    assert str(error)
    return error


def evaluated(expression: Expression, at: Values) -> Any:
    """The value, or the error."""
    try:
        return expression.evaluate(at)
    except ExpressionError as error:
        return error


def expected(kind: str, sample: Sample, at: Values) -> Any:
    """The value, or None if it depends on NaN."""
    try:
        value = sample.compute(at)
    except NotANumber:
        return None
    return float(value) if kind == "float" else value


typed = st.sampled_from(sorted(SAMPLES)).flatmap(lambda kind: st.tuples(st.just(kind), SAMPLES[kind]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(typed, values)
def test_a_well_typed_expression_computes_the_same_as_python(pair: tuple[str, Sample], at: Values) -> None:
    agrees(*pair, at)


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("last", [nan, 0.0, 2.0**31, 2.0**63])
def test_an_integer_is_compared_with_an_element_as_in_python(sign: str, last: float) -> None:
    for sides in ((COUNT, LAST), (LAST, COUNT)):
        for count in (0, 1, 2**31, 2**31 + 1, MAX_INT):
            grid = np.array([[0, 0, 0], [0, 0, last]], np.float32)
            agrees("bool", compared(sign, *sides), {("count",): count, ("grid",): grid})


def agrees(kind: str, sample: Sample, at: Values) -> None:
    """The expression has the value that Python computes."""
    expression = compiled(sample.text, TYPES[kind])
    if isinstance(expression, CompileError):
        assert "NaN" in expression.message, sample.text  # a comparison of constants
        return
    assert not expression.unchecked
    value, computed = evaluated(expression, at), expected(kind, sample, at)
    if isinstance(value, ExpressionError):
        assert (value.fault, computed) == ("nan", None), sample.text
        return
    assert type(value) is PYTHON[kind]
    assert value == computed or (isinstance(value, float) and isnan(value) and isnan(computed)), sample.text
    if expression.constant is not MISSING:
        assert value == expression.constant or isnan(expression.constant)


WRONG = (
    """
{int} and {bool}|{bool} or {text}|not {float}|-{text}|{text} < {int}|{bool} < {bool}|{text} + {int}|{int} + {bool}
{float} / {text}|{int} in {text}|{text} in numbers|{int} in words|{int} if {text} else {int}|{int} if {bool} else {text}
lower({int})|any({bool})|sum({text})|max({bool}, {int})|len({int})|matches({text}, {int})|numbers[{text}]
numbers[{float}]|grid + {text}|{int}[0]|{text}.name|int({text})|contains({int}, {text})|{bool} == {int}
numbers == {text}|[{int}, {text}]|request.rank + {int}|request.metadata.tier == {text}|grid and {bool}|grid > {bool}
count default {int}|index(words, {int})|number({int}) default 0|has({int})|unknown + {int}|finish == "never"
(grid == ids) and {bool}|any(grid)|grid in numbers|softmax(numbers)|flag.x|numbers < words|request|finish < {int}
""".strip()
    .replace("\n", "|")
    .split("|")
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(WRONG), st.data())
def test_an_ill_typed_expression_is_refused_with_its_place(template: str, data: st.DataObject) -> None:
    parts = {kind: data.draw(strategy).text for kind, strategy in SAMPLES.items()}
    assert isinstance(compiled(template.format(**parts)), CompileError)


words = st.sampled_from(
    """( ) [ ] , . + - * / == != < <= > >= in not and or if else default true false 0 1 0.5 7e400 'a' "b" flag count
    score text finish stop request rank metadata numbers words grid ids one max min len sum any all argmax index has
    number int softmax is_nan contains mean x""".split()  # noqa: SIM905 - readable
)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(st.lists(words, max_size=14).map(" ".join) | st.text(max_size=30), values)
@example("(" * 200, {})
@example("-" * 400, {})
@example("not " * 300, {})
@example("1" + "+1" * 200, {})
@example("count" + "[0]" * 150, {})
@example("a.b." * 200, {})
@example("1 if true else " * 80 + "1", {})
@example("9" * 4000, {})
@example("request", {})
@example("\ud800", {})
@example("'\\ud800' == text", {("text",): "\ud800"})
@example("matches(text, 'a')", {("text",): "\ud800"})
def test_any_text_is_refused_or_evaluated(text: str, at: Values) -> None:
    expression = compiled(text)
    if isinstance(expression, Expression):
        evaluated(expression, at)


any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(typed, st.dictionaries(st.sampled_from(list(VARIABLES)), any_value))
def test_a_value_of_another_type_than_declared_is_an_expression_error(pair: tuple[str, Sample], at: Values) -> None:
    expression = compiled(pair[1].text, TYPES[pair[0]])
    if isinstance(expression, CompileError):
        return
    value = evaluated(expression, at)
    if isinstance(value, ExpressionError):
        assert value.fault in ("missing", "type", "nan", "shape")
    else:
        assert type(value) is PYTHON[pair[0]]
