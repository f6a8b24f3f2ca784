"""Well-typed expressions, generated together with functions that compute them in plain Python."""

from collections.abc import Callable
from math import inf, isnan, nan
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from config.expressions import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    STRING,
    ListType,
    StringType,
    TensorType,
    Variable,
    Variables,
)
from config.expressions.types import MAX_INT, MIN_INT

CHOICES = ("stop", "length", "tool_calls")
VARIABLES = Variables(
    {
        ("flag",): Variable(BOOL),
        ("count",): Variable(INT),
        ("score",): Variable(FLOAT),
        ("text",): Variable(STRING),
        ("finish",): Variable(StringType(CHOICES)),
        ("request", "rank"): Variable(INT, optional=True),
        ("request", "user"): Variable(STRING, optional=True),
        ("request", "metadata"): Variable(JSON, optional=True),
        ("numbers",): Variable(ListType(FLOAT)),
        ("words",): Variable(ListType(STRING)),
        ("grid",): Variable(TensorType("FP32", (2, 3))),
        ("ids",): Variable(TensorType("INT32", (3,))),
        ("one",): Variable(TensorType("FP64", (1, 1))),
    }
)
Values = dict[tuple[str, ...], Any]
Compute = Callable[[Values], Any]


class Sample(NamedTuple):
    """An expression, and the function that computes its value."""

    text: str
    compute: Compute


class NotANumber(Exception):
    """A decision depends on NaN."""


floats = st.floats(width=32) | st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.0, inf, -inf, nan])
ints = st.integers(-3, 3) | st.sampled_from([MIN_INT, MAX_INT, MAX_INT - 1]) | st.integers(MIN_INT, MAX_INT)
texts = st.text("aAbß ", max_size=4)
json = st.recursive(
    st.none() | st.booleans() | ints | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tier", "n"]), inner, max_size=2),
    max_leaves=5,
)
values = st.fixed_dictionaries(
    {
        ("flag",): st.booleans(),
        ("count",): ints,
        ("score",): floats,
        ("text",): texts,
        ("finish",): st.sampled_from(CHOICES),
        ("numbers",): st.lists(floats, max_size=4),
        ("words",): st.lists(texts, max_size=4),
        ("grid",): st.lists(floats, min_size=6, max_size=6).map(lambda v: np.array(v, np.float32).reshape(2, 3)),
        ("ids",): st.lists(st.integers(-9, 9), min_size=3, max_size=3).map(lambda v: np.array(v, np.int32)),
        ("one",): floats.map(lambda v: np.array([[v]], np.float64)),
    },
    optional={
        ("request", "rank"): ints,
        ("request", "user"): texts,
        ("request", "metadata"): json,
    },
)


def _read(path: str) -> Compute:
    key = tuple(path.split("."))
    return lambda at: at[key]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _saturated(value: int) -> int:
    return min(max(value, MIN_INT), MAX_INT)


def ordered(*values: Any) -> tuple[Any, ...]:
    """The values, which are Python's own; raises NotANumber for NaN."""
    assert not any(isinstance(value, np.generic) for value in values), "NumPy compares other numbers than Python"
    if any(isinstance(value, float) and isnan(value) for value in values):
        raise NotANumber
    return values


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def compared(sign: str, left: Sample, right: Sample) -> Sample:
    compare = _COMPARE[sign]
    return Sample(
        f"({left.text} {sign} {right.text})", lambda at: compare(*ordered(left.compute(at), right.compute(at)))
    )


def _divided(left: float, right: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(left) / np.float64(right))


_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": _divided,
}  # fmt: skip
_INTS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: _saturated(a + b), "-": lambda a, b: _saturated(a - b), "*": lambda a, b: _saturated(a * b),
}  # fmt: skip


def _infix(table: dict[str, Callable[[Any, Any], Any]], convert: Callable[[Any], Any]) -> Callable[..., Sample]:
    def make(sign: str, left: Sample, right: Sample) -> Sample:
        return Sample(
            f"({left.text} {sign} {right.text})",
            lambda at: table[sign](convert(left.compute(at)), convert(right.compute(at))),
        )

    return make


def _joined(left: Sample, right: Sample) -> Sample:
    return Sample(f"({left.text} + {right.text})", lambda at: left.compute(at) + right.compute(at))


def _chosen(condition: Sample, yes: Sample, no: Sample) -> Sample:
    text = f"({yes.text} if {condition.text} else {no.text})"
    return Sample(text, lambda at: yes.compute(at) if condition.compute(at) else no.compute(at))


def _either(word: str, parts: list[Sample]) -> Sample:
    reduce = any if word == "or" else all
    text = "(" + f" {word} ".join(part.text for part in parts) + ")"
    return Sample(text, lambda at: reduce(part.compute(at) for part in parts))


def _defaulted(path: str, fallback: Any) -> Sample:
    key = tuple(path.split("."))
    text = f"({path} default {_quoted(fallback) if isinstance(fallback, str) else fallback})"
    return Sample(text, lambda at: at.get(key, fallback))


def _member(fallback: Any) -> Sample:
    """A member of a JSON value as the type of its default."""

    def compute(at: Values) -> Any:
        metadata = at.get(("request", "metadata"))
        value = metadata.get("tier") if isinstance(metadata, dict) else None
        if isinstance(fallback, float) and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return value if type(value) is type(fallback) else fallback

    written = _quoted(fallback) if isinstance(fallback, str) else str(fallback).lower()
    return Sample(f"(request.metadata.tier default {written})", compute)


def _extreme(name: str, sample: Sample, empty: float) -> Sample:
    reduce = max if name == "max" else min

    def compute(at: Values) -> float:
        items = list(sample.compute(at))
        return reduce(ordered(*items)) if items else empty

    return Sample(f"({name}({sample.text}) default {empty})", compute)


def _elements(sign: str, limit: float, reduce: str) -> Sample:
    def compute(at: Values) -> bool:
        items = [float(item) for item in at[("grid",)].reshape(-1)]
        ordered(*items)
        return (any if reduce == "any" else all)([_COMPARE[sign](item, limit) for item in items])

    return Sample(f"{reduce}(grid {sign} {limit})", compute)


def _contained(items: Sample, item: Sample) -> Sample:
    def compute(at: Values) -> bool:
        value, values = item.compute(at), items.compute(at)
        return any(_COMPARE["=="](*ordered(value, each)) for each in values)

    return Sample(f"({item.text} in {items.text})", compute)


def _argmax(at: Values) -> int:
    items = [int(item) for item in at[("ids",)]]
    return items.index(max(items))


numbers_literal = st.lists(st.sampled_from([0.5, 1.0, 2.25]), min_size=1, max_size=3).map(
    lambda items: Sample(str(items), lambda at: items)
)
number_lists = st.just(Sample("numbers", _read("numbers"))) | numbers_literal
word_lists = st.just(Sample("words", _read("words"))) | st.lists(texts, min_size=1, max_size=3).map(
    lambda items: Sample("[" + ", ".join(map(_quoted, items)) + "]", lambda at: items)
)
COUNT = Sample("count", _read("count"))
LAST = Sample("grid[1][-1]", lambda at: float(at[("grid",)][1][2]))
_LEAF_INTS = (
    st.integers(0, 99).map(lambda n: Sample(str(n), lambda at: n))
    | st.just(COUNT)
    | st.integers(-5, 5).map(lambda n: _defaulted("request.rank", n))
    | st.just(Sample("len(text)", lambda at: len(at[("text",)])))
    | st.just(Sample("argmax(ids)", _argmax))
    | st.just(Sample("sum(ids)", lambda at: int(at[("ids",)].sum())))
    | st.just(Sample("len(numbers)", lambda at: len(at[("numbers",)])))
    | st.just(_member(0))
)
_LEAF_FLOATS = (
    st.sampled_from([0.0, 0.5, 1.5, 1e300]).map(lambda n: Sample(repr(n), lambda at: n))
    | st.just(Sample("score", _read("score")))
    | st.just(LAST)
    | st.builds(_extreme, st.sampled_from(["min", "max"]), st.just(Sample("numbers", _read("numbers"))), st.just(0.5))
    | st.just(_member(0.5))
)
_LEAF_TEXTS = (
    texts.map(lambda text: Sample(_quoted(text), lambda at: text))
    | st.just(Sample("text", _read("text")))
    | texts.map(lambda text: _defaulted("request.user", text))
    | st.just(Sample("lower(text)", lambda at: at[("text",)].lower()))
    | st.just(_member("x"))
)
_LEAF_BOOLS = (
    st.booleans().map(lambda value: Sample(str(value).lower(), lambda at: value))
    | st.just(Sample("flag", _read("flag")))
    | st.sampled_from(CHOICES).map(lambda word: Sample(f"finish == {word}", lambda at: at[("finish",)] == word))
    | st.just(Sample("has(request.user)", lambda at: ("request", "user") in at))
    | st.builds(_elements, st.sampled_from(["<", ">="]), st.sampled_from([0.0, 0.5]), st.sampled_from(["any", "all"]))
    | st.just(_member(True))
)


def _levels(depth: int) -> dict[str, st.SearchStrategy[Sample]]:
    """Strategies for each type, of at most this depth."""
    if depth == 0:
        return {"int": _LEAF_INTS, "float": _LEAF_FLOATS, "text": _LEAF_TEXTS, "bool": _LEAF_BOOLS}
    below = _levels(depth - 1)
    condition, signs = below["bool"], st.sampled_from(sorted(_COMPARE))
    integer, number, text = below["int"], below["int"] | below["float"], below["text"]
    negated = integer.map(lambda e: Sample(f"(-{e.text})", lambda at: _saturated(-e.compute(at))))
    made_floats = st.builds(_infix(_FLOATS, float), st.sampled_from(sorted(_FLOATS)), below["float"], number)
    joined = st.builds(_joined, text, text)
    made_bools = (
        st.builds(compared, signs, number, number)
        | st.builds(compared, signs, text, text)
        | st.builds(_either, st.sampled_from(["and", "or"]), st.lists(condition, min_size=2, max_size=3))
        | condition.map(lambda e: Sample(f"(not {e.text})", lambda at: not e.compute(at)))
        | st.builds(_contained, number_lists, number)
        | st.builds(_contained, word_lists, text)
    )
    return {
        "int": integer
        | negated
        | st.builds(_infix(_INTS, int), st.sampled_from(sorted(_INTS)), integer, integer)
        | st.builds(_chosen, condition, integer, integer),
        "float": below["float"] | made_floats | st.builds(_chosen, condition, below["float"], below["float"]),
        "text": text | joined | st.builds(_chosen, condition, text, text),
        "bool": condition | made_bools | st.builds(_chosen, condition, condition, condition),
    }


SAMPLES = _levels(2)
