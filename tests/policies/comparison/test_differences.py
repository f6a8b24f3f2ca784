"""JSON values, field by field, against equality and against removed paths."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from config.schema.copies import JsonComparisonConfig
from policies.comparison.differences import differing_fields

LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=12
)
EVERYTHING = JsonComparisonConfig()


def typed(value: Any) -> Any:
    """A value in which a boolean is not a number."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return (isinstance(value, bool), value)


@given(VALUES, VALUES)
def test_values_differ_in_a_field_or_are_equal(first: Any, second: Any) -> None:
    assert (differing_fields(first, second, EVERYTHING) == {}) == (typed(first) == typed(second))
    assert differing_fields(first, first, EVERYTHING) == {}


@given(st.dictionaries(st.sampled_from("abc"), VALUES), st.dictionaries(st.sampled_from("abc"), VALUES))
def test_an_ignored_path_covers_all_below_it(first: dict[str, Any], second: dict[str, Any]) -> None:
    ignoring = JsonComparisonConfig(ignore=("$.a",))
    one, other = ({name: value for name, value in each.items() if name != "a"} for each in (first, second))
    assert differing_fields(first, second, ignoring) == differing_fields(one, other, EVERYTHING)


def test_paths_name_fields_and_not_items() -> None:
    first = {"id": 1, "items": [{"score": 0.5, "at": 1}, {"score": 0.7, "at": 2}]}
    second = {"id": 2, "items": [{"score": 0.6, "at": 3}, {"score": 0.8, "at": 4}], "extra": 1}
    assert differing_fields(first, second, EVERYTHING) == {
        "$.id": "another number",
        "$.items[*].score": "another number",
        "$.items[*].at": "another number",
        "$.extra": "only the shadow has it",
    }
    ignoring = JsonComparisonConfig(ignore=("$.id", "$.items[*].at", "$.extra"), atol=0.11)
    assert differing_fields(first, second, ignoring) == {}


def test_numbers_have_tolerances_and_booleans_are_no_numbers() -> None:
    assert differing_fields(1, 1.0, EVERYTHING) == {}
    assert differing_fields(100, 101, JsonComparisonConfig(rtol=0.01)) == {}
    assert differing_fields(True, 1, EVERYTHING) == {"$": "a value of another type"}


def test_a_deep_value_is_compared_without_recursion() -> None:
    first: Any = 1
    second: Any = 2
    for _ in range(5000):
        first, second = [first], [second]
    assert list(differing_fields(first, second, EVERYTHING)) == ["$" + "[*]" * 16]
