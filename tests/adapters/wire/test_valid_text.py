"""What the checks of clients' texts admit, compared with Python's own parser."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.wire.body import open_body
from adapters.wire.decoding import (
    LONGEST_ID,
    LONGEST_NUMBER,
    MOST_DIGITS,
    check_json,
    is_id,
    whole_number,
    without_lone_surrogates,
)

TOKENS = st.sampled_from([
    b"{", b"}", b"[", b"]", b":", b",", b'"', b'"a"', b"\\", b"\\\\", b"\\ud83d", b"\\ude00", b"\\ud800", b"\\u0000",
    b"\xff", "é".encode(), b"\xed\xa0\x80", b"1", b"1" * MOST_DIGITS, b"-0.5e9", b"null", b"nul", b" ", b"01",
    b"-", b"1e999", b"\\x", b"\0", b"x" * MOST_DIGITS,
])  # fmt: skip


@given(st.lists(TOKENS, max_size=12).map(b"".join))
@example(b'"\\\\ud800"')
@example(b'"\\ud83d\\\\\\ude00"')
@example(b"[" * 5_000 + b"]" * 5_000)
@example(b"1" * (MOST_DIGITS + 1))
def test_every_server_can_decode_an_admitted_body(value: bytes) -> None:
    try:
        fields = open_body(b'{"x":' + value + b"}")
    except CallerError:
        return
    decoded: Any = {name: json.loads(bytes(raw)) for name, raw in fields.items()}
    json.dumps(decoded, ensure_ascii=False).encode()


@given(st.text(), st.integers(0, 3 * MOST_DIGITS), st.integers(0, 2 * MOST_DIGITS))
def test_texts_of_any_length_are_admitted(text: str, before: int, digits: int) -> None:
    check_json(json.dumps({"x": "y" * before + "1" * digits + text, "n": 10**18}, ensure_ascii=False).encode())
    check_json(json.dumps({"x": [int("1" * min(digits + 1, MOST_DIGITS)), text]}).encode())


@given(st.integers(0, 3 * MOST_DIGITS), st.integers(1, 2 * MOST_DIGITS), st.sampled_from(["", "-", "1.", "1e"]))
def test_a_longer_number_is_refused_wherever_it_stands(before: int, more: int, start: str) -> None:
    with pytest.raises(CallerError, match="4,300 digits"):
        check_json(f'{{"x": "{"y" * before}", "n": {start}{"1" * (MOST_DIGITS + more)}}}'.encode())


@given(st.text(st.sampled_from("0123456789²٣１+-_ .e\0"), max_size=LONGEST_NUMBER + 3))
@example("9" * 5_000)
def test_a_whole_number_has_few_ascii_digits(text: str) -> None:
    number = whole_number(text, 1, 500)
    plain = 0 < len(text) <= LONGEST_NUMBER and set(text) <= set("0123456789")
    assert number == (int(text) if plain and 1 <= int(text) <= 500 else None)


def test_an_id_is_short_and_printable() -> None:
    assert all(map(is_id, ("a", "é", "x" * LONGEST_ID)))
    assert not any(map(is_id, ("", "x" * (LONGEST_ID + 1), "a\0b", "\ud800", "a\n")))


ESCAPED = st.lists(
    st.sampled_from([
        "a", "\\\\", "\\n", '\\"', "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\uDE00", "\\udC00",
        "ud83d", "\u00e9", "\\\\u",
    ]),
    max_size=12,
).map("".join)  # fmt: skip


@given(ESCAPED, ESCAPED)
def test_half_of_a_surrogate_pair_is_replaced_and_nothing_else(key: str, text: str) -> None:
    body = f'{{"{key}":"{text}"}}'.encode()
    try:
        decoded: dict[str, str] = json.loads(body)
    except ValueError:
        return  # an escape of another kind is not valid
    replaced = {_replaced(name): _replaced(value) for name, value in decoded.items()}
    assert msgspec.json.decode(without_lone_surrogates(body)) == replaced
    if decoded == replaced:
        assert without_lone_surrogates(body) == body
    assert msgspec.json.decode(open_body(body)[next(iter(replaced))]) == next(iter(replaced.values()))


def _replaced(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
