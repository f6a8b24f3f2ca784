"""Names that a recogniser has found, masked wherever they stand."""

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from policies.guards.personal.masking import PersonalMasker, Recognised
from policies.guards.personal.placeholders import RequestPlaceholders

TEXTS = st.text(alphabet="aAb1_ .@\nä-", max_size=60)
VALUES = st.lists(st.text(alphabet="aAb1_ .@\nä-", min_size=1, max_size=7), max_size=12)


def masker_of(values: Sequence[str]) -> PersonalMasker:
    """A masker that has learnt values from other texts."""
    masker = PersonalMasker((), RequestPlaceholders(b"key"), lambda _: None, {"PERSON": 0})
    masker.learn({f"{value}!": [Recognised(0, len(value), "PERSON", 0)] for value in values})
    return masker


def by_one_pattern(values: Sequence[str], text: str) -> str:
    """A text with placeholders by a pattern with all values: the definition of what is masked."""
    placeholders = RequestPlaceholders(b"key")
    parts = [re.escape(value) for value in sorted(set(values), key=len, reverse=True) if len(value) >= 3]
    if not parts:
        return text
    return re.sub(
        rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)",
        lambda match: placeholders.of("PERSON", match[0]) if match[0].strip() else match[0],
        text,
    )


@given(VALUES, TEXTS)
def test_values_are_masked_as_whole_words(values: list[str], text: str) -> None:
    assert masker_of(values).masked(f"x {text}") == by_one_pattern(values, f"x {text}")


@given(st.data(), VALUES)
def test_values_in_a_text_of_values_are_masked(data: st.DataObject, values: list[str]) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from([*values, " ", "a", "("]), max_size=12)))
    assert masker_of(values).masked(f"x {text}") == by_one_pattern(values, f"x {text}")


def test_a_value_beside_a_placeholder_of_the_conversation_is_masked() -> None:
    placeholders = RequestPlaceholders(b"key")
    masker = PersonalMasker((), placeholders, lambda _: None, {"PERSON": 0})
    own = [placeholders.of("PERSON", name) for name in ("Ann", "Bob")]
    text = f"Zoe {own[0]} and {own[1]} Jim"
    masker.learn({text: [Recognised(0, len(text), "PERSON", 0)]})
    masks = [placeholders.of("PERSON", part) for part in ("Zoe ", " and ", " Jim")]
    assert masker.masked(text) == f"{masks[0]}{own[0]}{masks[1]}{own[1]}{masks[2]}"


def test_a_search_looks_at_few_values() -> None:
    """The work at a word does not grow with the number of names."""

    class Counted(dict[str, Recognised]):
        looks = 0

        def __contains__(self, value: object) -> bool:
            Counted.looks += 1
            return super().__contains__(value)

    masker = masker_of([f"Anna{number} Schmidt" for number in range(20_000)])
    masker._values = Counted(masker._values)
    text = "Anna7 Schmidt met Anna Schmidt. " * 2000
    assert masker.masked(text).count("<PERSON_") == 2000
    assert Counted.looks <= 4000
