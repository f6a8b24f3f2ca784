"""Secrets in texts: the markers of each form find every secret that the forms themselves find."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.telemetry.redaction.secrets import FORMS, SECRET, forms_in, pattern_of, secret_spans, without_secrets

EVERY = pattern_of((1 << len(FORMS)) - 1)
BEHIND = "(?<=://)"
SECRETS = (
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "hr-abcdefgh2345-" + "x" * 24,
    "sk-" + "a1" * 12, "pk_" + "a" * 20, "api-key-1234567890abcdef1", "ghp_" + "Z" * 20, "SG." + "q" * 20,
    "AKIA" + "A" * 16, "AIza" + "b" * 35, "eyJ" + "h" * 10 + "." + "p" * 10 + ".sig", "Bearer " + "t" * 20,
    "BASIC\t" + "u" * 16, "my_Access-Token = 'abcd1234'", "PASSWORD:hunter22", "x-signature=deadbeef",
    "https://user:pass@host/", "postgres://a:b@c",
)  # fmt: skip
WORDS = (
    *SECRETS, "risk-free", "token", "basic", "ask_", "asia", "signal: ", "://", "@", "a=b", "日本", "K", "ſ", " ", "",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(FORMS)))
@given(data=st.data())
@settings(max_examples=50)
def test_each_secret_of_a_form_has_a_marker(number: int, data: st.DataObject) -> None:
    form = FORMS[number][0]
    ahead, behind = ("://", "@") if form.startswith(BEHIND) else ("", "")
    written = form.removeprefix(BEHIND).removesuffix("(?=@)").removeprefix("(?<![A-Za-z0-9_-])")
    text = ahead + data.draw(st.from_regex(re.compile(written, re.ASCII), fullmatch=True)) + behind
    assert forms_in(text) >> number & 1


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8), st.from_regex(r"[ -~]{0,12}"))).map("".join))
@settings(max_examples=150)
def test_a_text_is_redacted_as_by_all_forms(text: str) -> None:
    assert without_secrets(text) == EVERY.sub(SECRET, text)
    assert list(secret_spans(text)) == [match.span() for match in EVERY.finditer(text)]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_removed(secret: str) -> None:
    for text in (secret, f"it is {secret} now", f"日本{secret}", secret + " " + secret):
        assert SECRET in without_secrets(text)
        assert secret.split()[-1][-8:] not in without_secrets(text) or "://" in secret


def test_a_text_without_markers_is_not_searched() -> None:
    assert forms_in("the quick brown fox, and its 12 friends: a + b = c") == 0
