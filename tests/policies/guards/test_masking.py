"""Texts behind rules: the result does not depend on the cuts, and no part of a forbidden span leaves."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.patterns import PatternError, Search, compiled, longest_match
from config.schema.guards import SecretsGuardConfig, WordsGuardConfig
from policies.guards.compiled import rules_of
from policies.guards.finders import PatternFinder, SecretFinder, UrlFinder, WordFinder
from policies.guards.masking import MOST_HELD, HeldText, Rule, RulesByView, TextTooLong, View, by_view, masked

ATOMS = [
    *("bad", "BAD", "ＢＡＤ", "b\u200bad", "b\\u0061d", "b\\\\u0061d", "\\nbad", " ", "word", "-", "xyz", "zx", "x"),
    *("aba", "ba", "123", "4", "-ab", "sk-" + "a" * 22, "sk-", "AKIA", "ABCDEFGHIJKLMNOP", "https://evil.com/p?q"),
    *("http", "://", "www.evil.com", "good.com", "e", "\u0301", "=", "\u0338", "\\", "\\u", "00", "61", "é", "зад"),
    *("bаd", "\n", "-----BEGIN RSA PRIVATE KEY-----", "MIIabc\\nxx", "-----END RSA PRIVATE KEY-----", ".", "한", "ﷺ"),
    *("\u1112\u1161\u11ab", "\U0001f600", "\\ud83d\\ude00", "\\ud83d", "//", "evil.com", "\\/"),
]
RULES = by_view(
    [
        Rule(0, WordFinder(["bad", "bad word", "ad wo"], whole=True), True, View(lower=True, lookalikes=True)),
        Rule(1, WordFinder(["xyz", "yzx", "aba"], whole=False), True, View(lower=True)),
        Rule(2, PatternFinder(r"\b[0-9]{3,5}-[a-c]{0,3}\b"), True),
        Rule(3, SecretFinder(), True),
        Rule(4, UrlFinder(["good.com"], ["evil.com"]), True, View(lower=True)),
        Rule(5, WordFinder(["e"], whole=True), False, View(lower=True)),
    ]
)


def words(*forbidden: str, **fields: object) -> RulesByView:
    guard = WordsGuardConfig.model_validate(
        {"name": "g", "kind": "words", "words": forbidden, "action": "mask", **fields}
    )
    return by_view(rules_of(guard, 0))


def whole(text: str, rules: RulesByView) -> tuple[str, list[int]]:
    reported: list[int] = []
    return masked(text, rules, reported.append), sorted(reported)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(ATOMS), max_size=12).map("".join), st.lists(st.integers(0, 200), max_size=12))
def test_cuts_make_no_difference(text: str, places: list[int]) -> None:
    reported: list[int] = []
    held = HeldText(RULES, reported.append)
    ends = [*sorted(place for place in places if place < len(text)), len(text)]
    left = "".join(held.feed(text[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)) + held.end()
    assert (left, sorted(reported)) == whole(text, RULES)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_a_text_without_a_match_is_the_same(text: str) -> None:
    assert whole(text, words("forbidden phrase")) == (text, [])


@settings(deadline=None)
@given(st.text("abc \\u00eé\u200b\n", max_size=30), st.text("abc \\u00eé\u200b\n", max_size=30))
def test_every_word_is_masked_wherever_it_stands(before: str, after: str) -> None:
    left, reported = whole(f"{before} secret {after}", words("secret"))
    assert "secret" not in left
    assert reported


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the bad one", "the […] one"),
        ("badly", "badly"),
        ("é" + "bad", "ébad"),
        ("bad bad", "[…] […]"),
        ("BAD, ｂａｄ", "[…], […]"),
        ("b\u200ba\u0301d", "b\u200ba\u0301d"),
        ("b\u00ada\u2060d", "[…]"),
        ("\\u0062ad", "[…]"),
        ("\\\\\\\\u0062ad", "[…]"),
        ("C:\\bad", "C:\\[…]"),
    ],
)
def test_forms_of_a_word(text: str, expected: str) -> None:
    assert whole(text, words("bad"))[0] == expected


@pytest.mark.parametrize("between", [" ", "\n", "  ", " \n  ", "\\n"])
def test_white_space_within_a_phrase_makes_no_difference(between: str) -> None:
    assert whole(f"the project{between}atlas!", words("project atlas"))[0] == "the […]!"


def test_lookalikes_count_as_an_option() -> None:
    cyrillic = "\u0455\u0435cret"
    assert whole(cyrillic, words("secret"))[0] == cyrillic
    assert whole(cyrillic, words("secret", lookalikes=True))[0] == "[…]"


def test_parts_of_words_and_words_of_scripts_without_spaces() -> None:
    assert whole("unbadly", words("bad", match="part"))[0] == "un[…]ly"
    assert whole("这是坏的", words("坏", match="part"))[0] == "这是[…]的"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-" + "aB3_" * 8,
        "AKIA" + "ABCD1234" * 2,
        "ghp_" + "a1B2c3D4e5F6" * 3,
        "github_pat_" + "a" * 30,
        "xoxb-123456789012-abc",
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nMIIEvQ\\n-----END PRIVATE KEY-----",
    ],
)
def test_keys_and_tokens(secret: str) -> None:
    rules = by_view(rules_of(SecretsGuardConfig.model_validate({"name": "g", "kind": "secrets", "action": "mask"}), 0))
    assert whole(f"it is {secret}, keep it", rules)[0] == "it is […], keep it"
    assert whole("ask-a-question-about-this-long-thing", rules)[0] == "ask-a-question-about-this-long-thing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://evil.com/x", "[…]"),
        ("https://good.com@evil.com/x", "[…]"),
        ("https://evil.com\\@good.com", "[…]"),
        ("HTTPS://A.Evil.COM:80", "[…]"),
        ("see www.evil.com now", "see […] now"),
        ("evil.com", "[…]"),
        ("notevil.com", "notevil.com"),
        ("https://notevil.com/", "https://notevil.com/"),
        ("// evil", "// evil"),
        ("https:/evil.com/x", "[…]"),
        ("https://ev%69l.com/x", "[…]"),
        ("**https://evil.com**", "**[…]"),
        ("https://evil.com,https://good.com and", "[…] and"),
        ("evil.com的", "[…]"),
        ("evil.com@good.com", "[…]"),
        ("intranet:8000/x", "[…]"),
        ("intranets", "intranets"),
    ],
)
def test_denied_hosts(text: str, expected: str) -> None:
    rules = by_view([Rule(0, UrlFinder([], ["evil.com", "intranet"]), True, View(lower=True))])
    assert whole(text, rules)[0] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://good.com/x and https://other.com", "https://good.com/x and […]"),
        ("https://sub.good.com", "https://sub.good.com"),
        ("https://good.com.other.com", "[…]"),
        ("![x](//other.com/leak)", "![x]([…]"),
        ("good.com other.com", "good.com other.com"),
        ("https://münchen.example", "[…]"),
        ("https:/other.com", "[…]"),
        ("**https://good.com**", "**https://good.com**"),
        ("it begins with https://, or http:// ", "it begins with https://, or http:// "),
        ("https://" + "a" * 400 + "@other.com", "[…]"),
    ],
)
def test_allowed_hosts(text: str, expected: str) -> None:
    rules = by_view([Rule(0, UrlFinder(["good.com"], []), True, View(lower=True))])
    assert whole(text, rules)[0] == expected


@pytest.mark.parametrize("part", ["/", "https://good.com/", "www.good.com/", "aevil.com/", "ask-", "http:/"])
def test_many_beginnings_without_a_space_take_linear_time(part: str) -> None:
    for finder in (UrlFinder(["good.com"], ["evil.com"]), SecretFinder()):
        searched, sizes = finder._search, [0]

        def counted(text: str, begin: int, search: Search = searched, sizes: list[int] = sizes) -> Any:
            match = search(text, begin)
            sizes.append(0 if match is None else match.end() - match.start())
            return match

        finder._search = counted
        text = "\n" + part * 1000
        assert finder.find(text, 1) is None or part == "http:/"
        assert sum(sizes) <= 4 * len(text)


def test_a_text_that_would_be_held_for_ever_is_refused() -> None:
    held = HeldText(RULES, lambda _: None)
    with pytest.raises(TextTooLong):
        held.feed("sk-" + "a" * MOST_HELD)
    held = HeldText(RULES, lambda _: None)
    held.feed("b" + "\u200b" * 1000)
    with pytest.raises(TextTooLong):
        held.feed("\u200b" * MOST_HELD + "ad")


def test_no_more_is_held_than_a_word_needs() -> None:
    held = HeldText(words("bad"), lambda _: None)
    assert held.feed("a harmless text") == "a harmless t"


@pytest.mark.parametrize(
    ("pattern", "longest"), [("a{1,9}", 9), (r"\pL{2}x?", 3), ("[[:alpha:]]{1,3}", 4), ("a|bcd", 3)]
)
def test_the_longest_match_of_a_pattern(pattern: str, longest: int) -> None:
    assert longest_match(pattern) == longest
    assert compiled(pattern)("x" + "abcdabcd", 1) is not None


@pytest.mark.parametrize("pattern", ["a+", "(a|b*)c", "(a{1,900}){1,9}", "a?"])
def test_patterns_without_a_longest_match_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        longest_match(pattern)


@pytest.mark.parametrize("pattern", ["(?<=a)b", "(a)\\1", "("])
def test_patterns_that_are_not_of_the_engine_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compiled(pattern)
