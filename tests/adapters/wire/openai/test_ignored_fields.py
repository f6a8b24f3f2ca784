"""Fields that a model has no use for, and `allowed_tools` as plain tools."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import CHANGED, MAX_LISTED, OTHER, IgnoredFields, allowed_tools, label


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def choice(*names: str, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool(name) for name in names]}}


@given(st.sets(st.text(min_size=1, max_size=3), max_size=6), st.data(), st.sampled_from(["auto", "required"]))
def test_the_allowed_tools_remain_in_their_order(names: set[str], data: st.DataObject, mode: str) -> None:
    tools = sorted(names)
    allowed = data.draw(st.sets(st.sampled_from(tools))) if tools else set[str]()
    fields = allowed_tools({"tools": [tool(n) for n in tools], "tool_choice": choice(*allowed, mode=mode), "seed": 1})
    assert fields == {"tools": [tool(n) for n in tools if n in allowed], "tool_choice": mode, "seed": 1}


@given(st.recursive(st.none() | st.text(max_size=3), lambda inner: st.dictionaries(st.text(max_size=3), inner)))
def test_any_other_choice_stays(value: Any) -> None:
    fields = {"tools": [tool("a")], "tool_choice": value}
    assert allowed_tools(fields) is fields


def test_a_tool_that_is_not_there_is_refused() -> None:
    with pytest.raises(CallerError) as refused:
        allowed_tools({"tools": [tool("a")], "tool_choice": choice("b")})
    assert refused.value.param == "tool_choice"


def test_the_list_is_bounded_and_has_no_name_twice() -> None:
    hints = IgnoredFields()
    for i in range(100):
        hints.ignore(f"f{i // 2}")
    assert len(hints.ignored) == len(set(hints.ignored)) == MAX_LISTED


def test_an_empty_stop_ends_no_answer() -> None:
    hints = IgnoredFields()
    assert (hints.stops(None), hints.stops("a"), hints.stops(["a"]), hints.ignored) == ([], ["a"], ["a"], [])
    assert (hints.stops(""), hints.stops(["", "b"]), hints.ignored) == ([], ["b"], ["stop"])


@given(st.text(max_size=80))
def test_a_listed_name_is_safe_in_a_header_and_as_a_label(name: str) -> None:
    hints = IgnoredFields()
    hints.ignore(name)
    (listed,) = hints.ignored
    assert listed == (name if listed != OTHER else OTHER)
    assert listed.isascii()
    assert listed.isprintable()
    assert not set(listed) & set(' ,;"')
    assert label(listed) in {OTHER, name}
    assert label("some_new_field") == OTHER != label("context_management")


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_a_field_that_changes_the_answer_is_refused_unless_it_requests_nothing(name: str) -> None:
    hints = IgnoredFields()
    for neutral in (b"null", b"[ ]", *CHANGED[name][1]):
        hints.sift({name: Raw(neutral)}, ())
    hints.sift({name: Raw(b"7")}, (name,))
    assert hints.ignored == []
    with pytest.raises(CallerError) as refused:
        hints.sift({name: Raw(b"7")}, ())
    assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")


@given(
    st.dictionaries(st.from_regex(r"x_[a-z]{1,8}", fullmatch=True), st.sampled_from(["1", '"a"', "[1]"]), max_size=5)
)
def test_every_other_field_is_ignored_and_refused_on_a_strict_route(fields: dict[str, str]) -> None:
    raw = {name: Raw(value.encode()) for name, value in fields.items()}
    hints = IgnoredFields()
    hints.sift(raw, ())
    assert hints.ignored == list(fields)
    if fields:
        with pytest.raises(CallerError):
            IgnoredFields(strict=True).sift(raw, ())
