"""No secret of a text leaves it, and each text comes back as it was."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import default_path
from gateway.admin.drafts.placeholders import Placeholders

KEY = b"k" * 32
SIGNS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-+%"
passwords = st.text(SIGNS, min_size=8, max_size=40).map(lambda text: f"Zq{text}")
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
hosts = st.from_regex(r"[a-z]{1,10}(\.[a-z]{1,10}){0,2}(:[0-9]{2,5})?", fullmatch=True)


def written(password: str, digest: str, host: str, quote: str, newline: str) -> str:
    lines = [
        "version: 1 # Straße 水",
        f"state: {{database: {quote}postgresql://head:{password}@{host}/x{quote}}}",
        f"# redis: redis://:{password}@{host}",
        "auth:",
        f"  pepper: {quote}{password}{quote}",
        "pools:",
        f"  - {{name: a, endpoints: [http://{host}], key: {quote}{password}{quote}}}",
        "  - {name: b, endpoints: [http://b], key: '${B_KEY}'}",
        "tenants:",
        f"  - {{name: acme, models: ['*'], keys: [{{id: aaaaaaaaaaaa, hash: {quote}{digest}{quote}}}]}}",
        f"api_key: {password}",
    ]
    return newline.join(lines)


@given(passwords, hashes, hosts, st.sampled_from(["", '"', "'"]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_text_without_its_secrets_is_restored_exactly(
    password: str, digest: str, host: str, quote: str, newline: str, valid: bool
) -> None:
    text = written(password, digest, host, quote, newline) + ("" if valid else "\n}: [")
    placeholders = Placeholders(KEY, [text])
    redacted = placeholders.redact(text)
    assert password not in redacted
    assert digest not in redacted
    assert "${B_KEY}" in redacted
    assert redacted.count("\n") == text.count("\n")
    assert placeholders.restore(redacted, "f.yaml") == (text, [])
    assert password not in placeholders.hide(f"the value {password} is wrong")


@given(st.text(max_size=400))
def test_any_text_is_restored_exactly(text: str) -> None:
    placeholders = Placeholders(KEY, [text])
    assert placeholders.restore(placeholders.redact(text), "f.yaml")[0] == text


@pytest.mark.parametrize(
    "path", [default_path(), *sorted((default_path().parent / "examples").glob("*.yaml"))], ids=lambda path: path.name
)
def test_examples_have_no_false_secret(path: Path) -> None:
    text = path.read_text()
    redacted = Placeholders(KEY).redact(text)
    assert re.sub(r"redacted-[0-9a-f]{24}", "", redacted).count("\n") == text.count("\n")
    changed = [b for a, b in zip(text.splitlines(), redacted.splitlines(), strict=True) if a != b]
    assert [line for line in changed if "hash:" not in line and "://" not in line] == []


def test_a_password_is_not_restored_for_another_host() -> None:
    text = "a: redis://:Secret-Password@one\nb: {pepper: 'Another-Secret'}\nauth: {pepper: Third-Secret}\n"
    placeholders = Placeholders(KEY, [text])
    draft = placeholders.redact(text).replace("@one", "@two")
    _, problems = placeholders.restore(draft, "f.yaml")
    assert [(p.line, p.message.partition(":")[0]) for p in problems] == [(1, "belongs to another field, URL or host")]
    name = re.search(r"redacted-\w+", placeholders.redact(text).splitlines()[2])
    assert name is not None
    _, problems = placeholders.restore(f"{placeholders.redact(text)}name: {name[0]}\n", "f.yaml")
    assert {p.line for p in problems} == {3, 4}


def test_an_unresolved_placeholder_is_reported_with_its_line() -> None:
    draft = f"version: 1\nstate: {{database: 'postgresql://a:redacted-{'0' * 24}@b/c'}}\n"
    restored, problems = Placeholders(KEY, ["version: 1"]).restore(draft, "f.yaml")
    assert restored == draft
    assert [(p.line, p.path) for p in problems] == [(2, f"redacted-{'0' * 24}")]


def test_a_file_may_contain_the_form_of_a_placeholder() -> None:
    text = f"name: redacted-{'a' * 24}\n"
    placeholders = Placeholders(KEY, [text])
    assert placeholders.restore(placeholders.redact(text), "f.yaml") == (text, [])
