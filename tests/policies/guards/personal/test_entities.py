"""Personal data in texts: valid values are masked, and numbers that are none stay."""

import json
import re

import pytest

from policies.guards.finders import Finder
from policies.guards.masking import HeldText, Rule, by_view
from policies.guards.personal.entities import ENTITIES, EntityFinder
from tests.support.personal import NAMED, VALUES, masker, placeholders

CASES = [
    *((kind, "", value) for kind, values in VALUES.items() for value in values),
    *((kind, *pair) for kind, pair in NAMED.items()),
]


@pytest.mark.parametrize(("kind", "word", "value"), CASES)
def test_a_valid_value_is_masked_alone_and_in_a_sentence(kind: str, word: str, value: str) -> None:
    for before, after in (("", ""), ("see ", ", please"), ("(", ")."), ("한글 ", " 😀"), ("a\n", "\nb")):
        one = placeholders()
        masked = masker(one).masked(f"{before}{word}{value}{after}")
        assert masked == f"{before}{word}{one.of(kind.upper(), value)}{after}"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (kind, value)
        for kind in ("card", "iban", "steuerid", "nir", "nif", "cpf", "sin", "abn", "pesel")
        for value in VALUES[kind]
    ],
)
def test_another_check_digit_is_another_number(kind: str, value: str) -> None:
    place = max(match.start() for match in re.finditer(r"\d", value))
    wrong = value[:place] + str((int(value[place]) + 1) % 10) + value[place + 1 :]
    assert EntityFinder(kind).all(wrong) == []


@pytest.mark.parametrize(
    "text",
    [
        "std::begin and a::b::c", "at 12:30:45", "1.2.3 and 1.2.3.4.5", "999.1.1.1", "666-12-3456",
        "a@b", "user@localhost", "@name", "call 12345", "in 2024-01-01 00:00:00", "id 1234567890123456",
        "email_address = phone_number", "111222333", "2.000.000 and 1,234,567.89",
    ],
)  # fmt: skip
def test_other_texts_stay(text: str) -> None:
    assert masker(placeholders()).masked(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "ｂｏｂ＠ｅｘａｍｐｌｅ．ｃｏｍ",
        "bob\u200b@exam\u2060ple.com",
        "bob\\u0040example.com",
        "bob\\\\u0040example.com",
    ],
)
def test_other_forms_of_a_value_are_masked_whole(text: str) -> None:
    one = placeholders()
    masked = masker(one).masked(f"to {text}!")
    (name,) = one.values
    assert masked == f"to <{name}>!"
    assert one.values[name] == text


@pytest.mark.parametrize("entity", ENTITIES)
def test_a_mask_for_ever_does_not_depend_on_the_chunks(entity: str) -> None:
    word, value = NAMED.get(entity, ("", VALUES.get(entity, ("",))[0]))
    text = f"{'so much before ' * 30}{word}{value}, {'and after ' * 40}"
    finder: Finder = EntityFinder(entity)
    rule = by_view([Rule(0, finder, masks=True)])
    for size in (1, 2, 7, 20, 333):
        held = HeldText(rule, lambda _: None)
        out = "".join(held.feed(text[at : at + size]) for at in range(0, len(text), size)) + held.end()
        assert out == text.replace(value, "[…]")


def test_a_card_with_a_number_after_it_is_masked() -> None:
    one = placeholders()
    assert masker(one).masked("4111 1111 1111 1111 123") == f"{one.of('CARD', '4111 1111 1111 1111')} 123"


def test_many_digits_take_linear_time() -> None:
    # One megabyte: a quadratic finder would run for hours, and the limit of the test ends it.
    for text in ("1 " * 100_000, "a@" * 100_000, "1" * 200_000, "a." * 100_000, ":" * 200_000, "<" * 200_000):
        masker(placeholders()).masked(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"passport": "C01X00T47"}', "C01X00T47"),
        ('{"passportNumber" : "C01X00T47", "n": 1}', "C01X00T47"),
        ('{"customer": {"bsn": 111222333}}', "111222333"),
        ('{"bsn": ["111222333"]}', "111222333"),
        ('{"tfn": "no. 876 543 210, of Bob"}', "876 543 210"),
        (json.dumps({"body": json.dumps({"passport": "C01X00T47"})}), "C01X00T47"),
        (json.dumps({"passport": json.dumps(["C01X00T47"])}), "C01X00T47"),
    ],
)
def test_the_key_of_a_value_in_json_is_the_word_before_it(text: str, value: str) -> None:
    one = placeholders()
    masked = masker(one).masked(text)
    assert value not in masked
    assert list(one.values.values()) == [value]
    json.loads(masked)


def test_a_key_names_only_its_own_value() -> None:
    text = '{"bsn": null, "order": 111222333, "passport": "", "sku": "C01X00T47"}'
    assert masker(placeholders()).masked(text) == text
