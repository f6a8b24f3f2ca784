"""The language by example: results, columns, suggestions, bounds."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from config.expressions import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    MISSING,
    STRING,
    CompileError,
    ExpressionError,
    ListType,
    NumberType,
    StringType,
    TensorType,
    ValueType,
    Variable,
    Variables,
    compile_expression,
)
from config.expressions.types import MAX_INT

VARIABLES = Variables(
    {
        ("finish",): Variable(StringType(("stop", "length", "tool_calls", "content_filter"))),
        ("refusal",): Variable(BOOL),
        ("answer",): Variable(STRING),
        ("logprob", "p10"): Variable(NumberType(False, -inf, 0.0), optional=True),
        ("request", "user"): Variable(STRING, optional=True),
        ("request", "metadata"): Variable(JSON, optional=True),
        ("request", "prompt_tokens"): Variable(NumberType(True, 0, inf)),
        ("labels",): Variable(ListType(STRING)),
        ("scores",): Variable(ListType(FLOAT)),
        ("toxicity", "score"): Variable(TensorType("FP32", (1, 1))),
        ("det", "boxes"): Variable(TensorType("FP32", (None, 4))),
        ("det", "odd name"): Variable(TensorType("INT64", (2,))),
        ("det", "names"): Variable(TensorType("BYTES", (None,))),
        ("raw",): Variable(TensorType()),
    },
    {("probed",): Variable(TensorType())},
)
VALUES: dict[tuple[str, ...], Any] = {
    ("finish",): "stop",
    ("refusal",): False,
    ("answer",): "The answer is 42.",
    ("logprob", "p10"): -1.0,
    ("request", "metadata"): {"tier": "gold", "n": [1, 2, 3], "deep": {"er": True}, "none": None},
    ("request", "prompt_tokens"): 40,
    ("labels",): ["clean", "toxic"],
    ("scores",): [0.25, 0.75],
    ("toxicity", "score"): np.array([[0.9]], np.float32),
    ("det", "boxes"): np.array([[0.125, 0.25, 0.5, 0.75]], np.float32),
    ("det", "odd name"): np.array([7, 8]),
    ("det", "names"): np.array([b"cat", "d\u00f6g".encode()], object),
    ("raw",): np.array([3]),
    ("probed", "x"): np.array([0.5]),
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("(logprob.p10 default -9) > -1.5 and finish == stop and not refusal", True),
        ("finish in [stop, length] and finish not in [tool_calls]", True),
        ('request.metadata.tier default "none" == "gold"', True),
        ("request.metadata.tier default 3", 3),
        ("request.metadata.n[1] default 0", 2),
        ("request.metadata.n[9] default 0", 0),
        ("request.metadata.none default 5", 5),
        ("sum(request.metadata.n default [0.0])", 6.0),
        ('request.metadata["deep"].er default false', True),
        ('request.user default "nobody"', "nobody"),
        ('"toxic" in labels', True),
        ('any(labels == "toxic") and not all(labels == "toxic")', True),
        ('labels[-1] + "!"', "toxic!"),
        ("max(scores) - min(scores)", 0.5),
        ("sum(scores) if has(logprob.p10) else 0", 1.0),
        ("mean([1, 2])", 1.5),
        ("toxicity.score >= 0.8", True),
        ("any(det.boxes > 0.7)", True),
        ("sum(det.boxes > 0.2)", 3),
        ("det.boxes[0][1] * 4 == 1", True),
        ("det.boxes[5][1] default 9", 9.0),
        ("len(det.boxes)", 1),
        ("argmax(det.boxes)", 3),
        ("max(softmax(det.boxes * 0)) == 0.25", True),
        ('det["odd name"][0]', 7),
        ("sum(det['odd name'] - 7)", 1.0),
        ('any(det.names == "cat")', True),
        ('det.names[1] default ""', "d\u00f6g"),
        ("raw > 2 and probed.x < 1", True),
        ('matches(lower(answer), "answer is [0-9]+")', True),
        ('starts_with(answer, "The") and ends_with(answer, ".") and contains(answer, "42")', True),
        ('number("  -1.5e3 ") default 0', -1500.0),
        ("number(answer) default -1", -1.0),
        ('index(labels, "toxic")', 1),
        ('index(labels, "other")', -1),
        ("9223372036854775807 + 1 == 9223372036854775807", True),
        ("1 / 0 > 1e300 and -1 / 0 < -1e300", True),
        ("is_nan(0 / 0)", True),
        ("int(-2.75) + abs(-3)", 1),
        ("request.prompt_tokens / 16 > 2", True),
        ("1 - 2 - 3 * 2 == -7", True),
        ("not true or true", True),
        ("'it\\'s' == \"it's\"", True),
        ("1 if refusal else 2 if finish == length else 3", 3),
    ],
)
def test_results(text: str, result: object) -> None:
    expression = compile_expression(text, VARIABLES, [BOOL, FLOAT, STRING] if result is True else ())
    value = expression.evaluate(VALUES)
    assert (type(value), value) == (type(result), result)


@pytest.mark.parametrize(
    ("text", "column", "message", "suggestion"),
    [
        ("finish == stpo", 11, "there is no value `stpo`", "stop"),
        ('finish == "stpo"', 11, "is not one of stop, length", "stop"),
        ("request.promt_tokens > 3", 1, "`request` has no `promt_tokens`", "request.prompt_tokens"),
        ("1 + request", 5, "write `request.` and one of user, metadata", None),
        ("maxx(scores)", 1, "no function `maxx`", "max"),
        ("logprob.p10 > -1.5", 1, "`logprob.p10` may be absent: add a default", None),
        ('request.metadata.tier == "gold"', 1, "`tier` may be absent", None),
        ("any(det.boxes)", 5, "any(x > 0.5)", None),
        ("not answer", 5, "true or false", None),
        ("det.boxes > 0.5 and refusal", 11, "reduce it with any", None),
        ("1 < 2 < 3", 7, "write `a < b and b < c`", None),
        ("refusal && true", 9, "`&&` is not an operator", "and"),
        ("finish = stop", 8, "`=` is not an operator", "=="),
        ("x > .5", 5, "write `0.5`", None),
        ("answer in 'abc'", 11, "use contains", None),
        ("'abc", 1, "no closing quote", None),
        ("'a\\qb'", 3, "is not an escape", None),
        ("len(3)", 5, "requires a text, a list", None),
        ("len(answer, 1)", 1, "write len(", None),
        ('matches(answer, "(a")', 17, "the pattern is invalid", None),
        ('matches(answer, "(?=a)")', 17, "the pattern is invalid", None),
        ("matches(answer, answer)", 17, "a text in quotes", None),
        ("refusal default true", 9, "remove `default`", None),
        ("99999999999999999999", 1, "at most 64 bits", None),
        ("0 / 0 > 1", 7, "not a number (NaN)", None),
        ("[1, 'a']", 5, "the elements before it are an integer", None),
        ("answer.x", 1, "only JSON values have members", None),
        ("answer @ 3", 8, "unexpected character", None),
        ("", 1, "the expression is empty", None),
        ("1 2", 3, "where an operator or the end is expected", None),
    ],
)
def test_an_error_has_column_and_suggestion(text: str, column: int, message: str, suggestion: str | None) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(text, VARIABLES)
    assert message in caught.value.message
    assert (caught.value.column, caught.value.suggestion) == (column, suggestion)


@pytest.mark.parametrize(
    ("text", "expects"),
    [("scores", BOOL), ("1.5", INT), ("'a'", FLOAT), ("det.boxes", STRING), ("labels", ListType(FLOAT))],
)
def test_a_result_of_another_type_is_refused(text: str, expects: ValueType) -> None:
    with pytest.raises(CompileError, match="is required"):
        compile_expression(text, VARIABLES, expects)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("labels[7]", "range"),
        ("max(scores)", "empty"),
        ("raw > 2", "shape"),
        ("max(det.boxes) > 0.5", "empty"),
        ("toxicity.score > 0.5", "nan"),
        ("min(scores[0] default 0, 0 / 0) > 1", "nan"),
        ("answer == 'x'", "type"),
        ("refusal", "missing"),
    ],
)
def test_a_value_without_a_result_is_an_expression_error(text: str, fault: str) -> None:
    values = {
        ("labels",): ["a"],
        ("scores",): [],
        ("raw",): np.array([1, 2]),
        ("det", "boxes"): np.zeros((0, 4), np.float32),
        ("toxicity", "score"): np.array([[nan]], np.float32),
        ("answer",): 7,
    }
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, VARIABLES, [BOOL, FLOAT, STRING]).evaluate(values)
    assert caught.value.fault == fault
    assert caught.value.column


@pytest.mark.parametrize(
    "boxes",
    [
        np.zeros((2, 5), np.float32),
        np.zeros((4,), np.float32),
        np.zeros((1, 4), np.int32),
        np.zeros((1, 4), np.complex64),
        [[1.0, 2.0, 3.0, 4.0]],
        np.zeros((1, 4), object),
    ],
)
def test_a_tensor_other_than_declared_is_refused(boxes: object) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression("any(det.boxes > 0)", VARIABLES).evaluate({("det", "boxes"): boxes})
    assert caught.value.fault in ("shape", "type")


def test_checks_left_to_the_evaluation_are_listed() -> None:
    assert compile_expression("toxicity.score > 0.5", VARIABLES, BOOL).unchecked == ()
    assert compile_expression("max(det.boxes) default 0", VARIABLES).unchecked == ()
    assert len(compile_expression("max(det.boxes)", VARIABLES).unchecked) == 1
    assert len(compile_expression("raw > 0.5", VARIABLES, BOOL).unchecked) == 2
    assert len(compile_expression("labels[0]", VARIABLES).unchecked) == 1


def test_references_are_listed_once() -> None:
    expression = compile_expression("refusal or refusal or request.metadata.a.b default true", VARIABLES)
    assert expression.references == (("refusal",), ("request", "metadata"))


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("(logprob.p10 default -1) > -1", MISSING),
        ("(logprob.p10 default -1) > 0", False),
        ("(logprob.p10 default -1) > 0.5", False),
        ("request.prompt_tokens >= 0", True),
        ("request.prompt_tokens < 0 and refusal", False),
        ("refusal or 1 < 2", True),
        ("not (1 < 2)", False),
        ("refusal", MISSING),
        ("2 if 1 < 2 else 3", 2),
    ],
)
def test_a_result_that_no_value_changes_is_constant(text: str, constant: object) -> None:
    assert compile_expression(text, VARIABLES).constant == constant


def test_a_missing_result_is_allowed_on_demand() -> None:
    expression = compile_expression("request.user", VARIABLES, may_be_missing=True)
    assert expression.evaluate({}) is MISSING
    assert expression.evaluate({("request", "user"): "eve"}) == "eve"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("any(raw > 3)", ("raw",), np.zeros(5_000_000)),
        ("sum(raw * 2 + raw)", ("raw",), np.zeros(2_000_000)),
        ("max(scores) > 3", ("scores",), [0.0] * 5_000_000),
        ('matches(answer, "a*b")', ("answer",), "a" * 1_000_000),
        ("starts_with(lower(answer), 'a')", ("answer",), "a" * 5_000_000),
        (" + ".join(["answer"] * 12) + " == 'x'", ("answer",), "a" * 100_000),
        ("contains(labels, answer)", ("labels",), ["a" * 1000] * 1_000_000),
    ],
)
def test_the_work_of_an_evaluation_is_bounded(text: str, path: tuple[str, ...], value: object) -> None:
    expression = compile_expression(text, VARIABLES)
    with pytest.raises(ExpressionError) as caught:
        expression.evaluate({("answer",): "a" * 1000, path: value})
    assert caught.value.fault == "size"


def test_pythons_objects_are_out_of_reach() -> None:
    for text in (
        "answer.__class__",
        "labels.append",
        "raw.shape",
        "finish.choices",
        "__import__('os')",
        "max.__globals__",
    ):
        with pytest.raises(CompileError):
            compile_expression(text, VARIABLES)
    expression = compile_expression('request.metadata.__class__ default "none"', VARIABLES)
    assert expression.evaluate({("request", "metadata"): object()}) == "none"


def test_integers_of_tensors_saturate() -> None:
    variables = Variables({("big",): Variable(TensorType("UINT64", (2,)))})
    values: dict[tuple[str, ...], Any] = {("big",): np.array([2**64 - 1, 2**64 - 1], np.uint64)}
    assert compile_expression("sum(big)", variables).evaluate(values) == MAX_INT
    assert compile_expression("big[0]", variables).evaluate(values) == MAX_INT
    assert compile_expression("all(big > 9223372036854775807)", variables).evaluate(values) is True
