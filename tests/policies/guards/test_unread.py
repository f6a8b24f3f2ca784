"""Bodies that are clear as they are encoded: no text, key or number of one has anything for a rule to find."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.guards.finders import PatternFinder, SecretFinder, UrlFinder, WordFinder
from policies.guards.masking import Rule, RulesByView, View, by_view, masked
from policies.guards.unread import is_clear

SEPARATELY = [
    by_view([Rule(0, WordFinder(["bad", "two words", '"q"', "nbad"], whole=True), True, View(True, True))]),
    by_view([Rule(0, WordFinder(["bad", "xyz", "12", "e3"], whole=False), True, View(True))]),
    by_view([Rule(0, SecretFinder(), True)]),
    by_view([Rule(0, UrlFinder(["good.com"], []), True, View(lower=True))]),
    by_view([Rule(0, UrlFinder([], ["evil.com", "1.5"]), True, View(lower=True))]),
    by_view([Rule(0, PatternFinder("^bad$"), True)]),
]
ATOMS = [
    *("bad", "BAD", "ｂａｄ", "nbad", "two", "words", " ", "\n", "\t", '"', "q", "\\", "n", "u0062ad", "/", "é", "зад"),
    *("sk-" + "a" * 22, "https:", "//", "evil.com", "good.com", "x", "y", "z", "b\u00adad", "Σ", ":", "bаd", "\x07"),
]
TEXTS = st.lists(st.sampled_from(ATOMS), max_size=8).map("".join)
VALUES: Any = st.recursive(
    TEXTS | st.integers(-200, 2000) | st.sampled_from([1.5, 1e12, 1e30, 0.12]) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        with suppress(ValueError):
            yield from texts_of(json.loads(value))  # arguments of tools
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (*texts_of(key), *texts_of(each))
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


@settings(max_examples=500, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from(SEPARATELY))
def test_a_body_that_is_clear_has_nothing_to_find(value: Any, is_ascii: bool, rules: RulesByView) -> None:
    body = json.dumps(value, ensure_ascii=is_ascii).encode()
    if is_clear(rules, (body,)):
        reported: list[int] = []
        for text in texts_of(value):
            masked(text, rules, reported.append)
        assert reported == []


@pytest.mark.parametrize(
    "body",
    [
        b'"an ordinary text"',
        b'[{"role":"user","content":"with a line\\nfeed, a \\"quote\\" and a \\/"}]',
        '"é, зад and 漢字"'.encode(),
    ],
)
def test_ordinary_bodies_are_clear(body: bytes) -> None:
    assert all(is_clear(rules, (body,)) for rules in (SEPARATELY[0], SEPARATELY[2], SEPARATELY[3]))


@pytest.mark.parametrize(
    "body", [b'"b\\u0061d"', b'"C:\\\\nbad"', b'"\xff"', b'"the bad one"', '"ｂａｄ"'.encode(), b'"\\nbad"']
)
def test_a_body_in_doubt_is_not_clear(body: bytes) -> None:
    assert not is_clear(SEPARATELY[0], (body,))


def test_a_rule_of_numbers_or_lines_leaves_no_body_clear() -> None:
    assert not any(is_clear(rules, (b'"x"',)) for rules in (SEPARATELY[1], SEPARATELY[4], SEPARATELY[5]))
