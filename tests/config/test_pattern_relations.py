import math
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.checks.routing import covers_when, token_range
from config.document import Node
from config.schema.text import covers, is_glob, may_overlap

globs = st.text("ab*?[]!", min_size=1, max_size=4)
NAMES = ["".join(letters) for length in range(4) for letters in product("ab", repeat=length)]


def matched(glob: str) -> set[str]:
    return {name for name in NAMES if fnmatchcase(name, glob)}


@settings(max_examples=500)
@given(globs, globs)
def test_covering_is_certain(wide: str, narrow: str) -> None:
    assert not covers(wide, narrow) or matched(wide) >= matched(narrow)


@settings(max_examples=500)
@given(globs, globs)
def test_overlap_is_never_denied(one: str, other: str) -> None:
    assert may_overlap(one, other) or not matched(one) & matched(other)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("*", "gpt-*", True),
        ("gpt-*", "gpt-4*", True),
        ("gpt-*", "gpt-4", True),
        ("gpt-?", "gpt-4", True),
        ("[ab]", "[ab]", True),
        ("gpt-4*", "gpt-*", False),
        ("gpt-?", "gpt-*", False),
        ("a", "b", False),
    ],
)
def test_covers(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("gpt-*", "gpt-4*", True), ("gpt-*", "llama-*", False), ("chat", "c*", True), ("c*", "vision", False)],
)
def test_may_overlap(one: str, other: str, expected: bool) -> None:
    assert may_overlap(one, other) is may_overlap(other, one) is expected


@pytest.mark.parametrize(("name", "expected"), [("a", False), ("a*", True), ("a?", True), ("[a]", True), ("a]", False)])
def test_is_glob(name: str, expected: bool) -> None:
    assert is_glob(name) is expected


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [(">4", (5, math.inf)), (">=4", (4, math.inf)), ("<4", (0, 3)), ("<= 4", (0, 4)), ("4", None), ("=4", None)],
)
def test_token_range(comparison: str, expected: tuple[float, float] | None) -> None:
    assert token_range(comparison) == expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ({}, {"stream": True}, True),
        (None, {}, True),
        ({"stream": None}, {}, True),
        ({"stream": True}, {}, False),
        ({"stream": True}, {"stream": False}, False),
        ({"tenant": ("a", "b-*")}, {"tenant": ("b-1", "a"), "stream": True}, True),
        ({"tenant": ("a",)}, {"tenant": ("a", "b")}, False),
        ({"tenant": ("a",)}, {"model": ("a",)}, False),
        ({"header": {"X-A": "v*"}}, {"header": {"x-a": "v1", "x-b": "w"}}, True),
        ({"header": {"x-a": "v1"}}, {"header": {"x-a": "v*"}}, False),
        ({"header": {"x-a": "*", "x-b": "*"}}, {"header": {"x-a": "1"}}, False),
        ({"prompt_tokens": ">100"}, {"prompt_tokens": ">=200"}, True),
        ({"prompt_tokens": ">100"}, {"prompt_tokens": ">=100"}, False),
        ({"prompt_tokens": "<9"}, {"prompt_tokens": ">9"}, False),
        ({"prompt_tokens": "<9"}, {}, False),
    ],
)
def test_covers_when(wide: Any, narrow: Any, expected: bool) -> None:
    assert covers_when(Node(wide), Node(narrow)) is expected
