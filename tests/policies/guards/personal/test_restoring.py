"""Placeholders and their values: what a model may write, every cut into chunks, and arguments of tools."""

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.guards.personal.placeholders import RequestPlaceholders
from policies.guards.personal.restoring import Restorer
from tests.support.personal import HABITS, VALUES, documents, masker, placeholders

EMAIL = "bob@example.com"
TAILS = ["", " and more", "s", "_x", ">", "> ", "1", "&", "\\", "<", "한"]


def streamed(restorer: Restorer, pieces: list[str], *, is_json: bool = False) -> str:
    text = restorer.text(is_json=is_json)
    return "".join([*(text.feed(piece) for piece in pieces), text.end()])


def cuts(text: str, rng: random.Random) -> Iterator[list[str]]:
    for size in (1, 2, 3, 5, 8, 13, len(text) or 1):
        yield [text[at : at + size] for at in range(0, len(text), size)]
    ends = [*sorted(rng.choices(range(len(text) + 1), k=9)), len(text)]
    yield [text[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize("habit", HABITS)
def test_the_value_takes_the_place_of_every_way_to_write_its_placeholder(habit: str) -> None:
    one = placeholders()
    written = HABITS[habit](one.of("EMAIL", EMAIL))
    quote = '"' if habit == "quoted" else ""
    restorer = Restorer(one)
    for before in ("", "Dear ", "(", "<", "x&", "한", "EMAIL_", "EMA"):
        for after in TAILS:
            if after[:1] in (">", "1") and habit in ("without brackets", "without the last bracket"):
                continue
            text = f"{before}{written}{after}"
            expected = restorer.restored(text)
            if before != "<" and after[:1] not in (">", "\\", "&"):
                assert expected == f"{before}{quote}{EMAIL}{quote}{after}"
            for cut in cuts(text, random.Random(text)):
                assert streamed(restorer, cut) == expected


@pytest.mark.parametrize("text", ["<EMAIL_1>", "<EMAIL_12345678>", "EMAIL 12345678", "<TEXT_00000000>", "<PHONE_1"])
def test_a_text_that_was_never_masked_is_never_restored(text: str) -> None:
    one = placeholders()
    masked = masker(one).masked(f"{text} {EMAIL}")
    assert EMAIL not in masked
    restorer = Restorer(one)
    assert restorer.restored(masked) == f"{text} {EMAIL}"
    assert restorer.restored(text) == text  # of the model itself


def test_a_client_that_writes_a_placeholder_of_its_own_value_receives_its_text() -> None:
    stolen = placeholders().of("EMAIL", EMAIL)
    for text in (f"{stolen} is {EMAIL}", f"{EMAIL} is {stolen}", f"{stolen[1:-1].lower()} is {EMAIL}"):
        one = placeholders()
        masked = masker(one).masked(text)
        assert masked.count(stolen) == 1
        assert Restorer(one).restored(masked) == text


def test_two_values_never_share_a_placeholder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.guards.personal.placeholders._SPACE", 4)
    one = placeholders()
    values = [f"u{n}@example.com" for n in range(4)]
    assert len({one.of("EMAIL", value) for value in values}) == 4
    assert sorted(one.values.values()) == values


def test_placeholders_are_the_same_in_each_request_and_differ_between_tenants() -> None:
    assert placeholders().of("EMAIL", EMAIL) == placeholders().of("EMAIL", EMAIL)
    assert placeholders().of("EMAIL", EMAIL) != placeholders("other").of("EMAIL", EMAIL)


@given(st.text(max_size=60), st.text(max_size=60), st.integers())
def test_any_text_around_a_value_is_the_same_again(before: str, after: str, seed: int) -> None:
    text = f"{before} {EMAIL} {after}"
    one = placeholders()
    masked = masker(one).masked(text)
    assert EMAIL not in masked
    restorer = Restorer(one)
    for cut in cuts(masked, random.Random(seed)):
        assert streamed(restorer, cut) == text


JSONS = st.recursive(
    st.text(max_size=9) | st.sampled_from([value for values in VALUES.values() for value in values]) | st.booleans(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=4), each, max_size=3),
    max_leaves=6,
)


@given(JSONS, st.integers(0, 3), st.integers())
def test_arguments_of_tools_stay_json_at_any_depth(value: object, depth: int, seed: int) -> None:
    inner = json.dumps(value)
    for _ in range(depth):
        inner = json.dumps({"q": inner, "quoted": f'say "{EMAIL}"'})
    arguments = json.dumps({"to": EMAIL, "inner": inner})
    one = placeholders()
    masked = masker(one).masked(arguments)
    assert EMAIL not in masked
    restorer = Restorer(one)
    assert opened(restorer.restored(masked)) == opened(arguments)
    if restorer.streams_json:
        for cut in cuts(masked, random.Random(seed)):
            assert opened(streamed(restorer, cut, is_json=True)) == opened(arguments)


def opened(value: object) -> object:
    """A value with all nested texts of JSON decoded."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return opened(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, dict):
        return {str(opened(key)): opened(each) for key, each in value.items()}
    return [opened(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("value", ['a"b\\c', "line\nfeed", "\t"])
def test_a_value_with_quotes_is_escaped_in_json(value: str) -> None:
    one = placeholders()
    name = one.of("NOTE", value)
    restorer = Restorer(one)
    assert not restorer.streams_json
    nested = json.dumps({"q": json.dumps({"n": f"x {name}"})})
    assert json.loads(json.loads(restorer.restored(nested))["q"]) == {"n": f"x {value}"}
    answer = json.dumps({"n": name})
    for cut in cuts(answer, random.Random(1)):
        assert json.loads(streamed(restorer, cut)) == {"n": value}
    assert restorer.restored(f"say {name}") == f"say {value}"


def test_a_stream_is_held_only_while_a_placeholder_may_be_open() -> None:
    one = placeholders()
    name = one.of("EMAIL", EMAIL)
    text = Restorer(one).text()
    for piece in ("Dear", " Ann", ",\n", "x < y", " && z", " tea", "mail 3", " 한글 "):
        assert text.feed(piece) == piece
    assert [text.feed(letter) for letter in name] == [*[""] * (len(name) - 1), EMAIL]
    assert text.feed("<EM") == ""
    assert text.feed("BASSY>") == "<EMBASSY>"


def check(seed: int, count: int) -> None:
    """Mask, let a model write each placeholder in one of its ways, and restore, for so many generated documents."""
    rng = random.Random(seed)
    for text, values in documents(seed, count):
        one = placeholders()
        masked = masker(one).masked(text)
        assert not [value for value in values if value in masked]
        restorer = Restorer(one)
        assert restorer.restored(masked) == text
        spoken = masked
        for name in one.values:
            spoken = spoken.replace(f"<{name}>", HABITS[rng.choice(["the same", "lower case", "html"])](f"<{name}>"))
        for cut in cuts(spoken, rng):
            assert streamed(restorer, cut) == text
        assert restorer.hidden(text) == masked


def test_generated_documents() -> None:
    check(seed=1, count=300)


@pytest.mark.nightly
def test_ten_thousand_generated_documents() -> None:
    check(seed=2, count=10_000)


def test_placeholders_of_the_conversation_are_restored_and_stay() -> None:
    first = placeholders()
    name = first.of("EMAIL", EMAIL)
    key_of_the_same_tenant = placeholders()
    later = RequestPlaceholders(key_of_the_same_tenant._key, first.values)
    assert masker(later).masked(f"as I wrote to {name}") == f"as I wrote to {name}"
    assert Restorer(later).restored(name) == EMAIL


def test_a_text_of_the_client_in_the_conversation_stays() -> None:
    first = placeholders()
    name = first.of("TEXT", "<EMAIL_12345678>")
    later = RequestPlaceholders(placeholders()._key, first.values)
    assert masker(later).masked(f"you wrote {name}") == f"you wrote {name}"
    assert Restorer(later).restored(name) == "<EMAIL_12345678>"
