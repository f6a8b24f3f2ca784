"""Random JSON schemas, of the keywords that people use."""

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]
_names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)


def schemas(depth: int = 2) -> st.SearchStrategy[Schema]:
    """Objects with their properties, lists, unions and one definition, `depth` deep."""
    inner = _schemas(depth)
    return st.one_of(inner, inner.map(_referring))


def _schemas(depth: int) -> st.SearchStrategy[Schema]:
    leaves = st.one_of(_strings(), _integers(), _numbers(), _constants(), st.just({"type": "boolean"}))
    if depth == 0:
        return leaves
    inner = _schemas(depth - 1)
    return st.one_of(leaves, _objects(inner), _lists(inner), _unions(inner))


def _strings() -> st.SearchStrategy[Schema]:
    lengths = st.tuples(st.integers(0, 5), st.integers(5, 9)).map(
        lambda ends: {"minLength": ends[0], "maxLength": ends[1]}
    )
    patterns = st.sampled_from(["^[a-z]{2,4}$", "^\\d{3}-\\d{2}$", "^(ab|cd)*$"]).map(lambda text: {"pattern": text})
    formats = st.sampled_from(["date", "time", "date-time", "uuid", "ipv4"]).map(lambda name: {"format": name})
    return st.one_of(lengths, patterns, formats).map(lambda more: {"type": "string", **more})


def _integers() -> st.SearchStrategy[Schema]:
    ends = st.tuples(st.integers(-1000, 50), st.integers(50, 10**6))
    return ends.map(lambda ends: {"type": "integer", "minimum": ends[0], "maximum": ends[1]})


def _numbers() -> st.SearchStrategy[Schema]:
    ends = st.tuples(st.integers(-100, 0), st.integers(1, 100))
    return ends.map(lambda ends: {"type": "number", "minimum": ends[0], "exclusiveMaximum": ends[1]})


def _constants() -> st.SearchStrategy[Schema]:
    values = st.one_of(_names, st.integers(-99, 99), st.booleans(), st.none())
    return st.one_of(
        values.map(lambda value: {"const": value}),
        st.lists(values, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    )


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(_names, inner, max_size=3))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    more = draw(st.sampled_from([{"additionalProperties": False}, {}]))
    return {"type": "object", "properties": properties, "required": required, **more}


def _lists(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    ends = st.tuples(st.integers(0, 2), st.integers(2, 4))
    return st.builds(
        lambda items, ends: {"type": "array", "items": items, "minItems": ends[0], "maxItems": ends[1]}, inner, ends
    )


def _unions(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})


def _referring(schema: Schema) -> Schema:
    items = {"$ref": "#/$defs/one"}
    return {"type": "array", "items": items, "minItems": 1, "maxItems": 2, "$defs": {"one": schema}}
