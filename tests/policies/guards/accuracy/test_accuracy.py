"""The tables of precision and recall are those of this code, and no kind falls below a floor."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.guards.personal import checksums
from policies.guards.secrets import is_random
from tests.policies.guards.accuracy import measure, page
from tests.policies.guards.accuracy.samples import samples_of
from tests.policies.guards.accuracy.values import NUMBERS

STALE = "run `python -m tests.policies.guards.accuracy.page`"
MISSED = {"AWS": 5 / 6, "Azure": 1 / 2, "other services": 5 / 6}
"""Issuers that have keys without a form of their own, one line of texts for each."""


@pytest.mark.parametrize(
    ("head", "make"), [(page.SECRETS, page.secrets), (page.OTHERS, page.others), (page.LANGUAGES, page.languages)]
)
def test_the_page_has_the_tables_of_this_code(head: str, make: page.Make) -> None:
    if make is page.languages:
        pytest.importorskip("py3langid")
    assert page.table(page.PAGE.read_text(), head) == make(), STALE


def test_the_guard_catches_every_key_that_has_a_form() -> None:
    scores = measure.secrets()
    for issuer, score in scores.items():
        if score.recall is not None:
            assert score.recall >= MISSED.get(issuer, 1.0) - 0.01, issuer
    assert scores["texts without a secret"].findings <= 2


def test_no_kind_of_personal_data_is_often_missed_or_often_wrong() -> None:
    for entity, score in measure.personal().items():
        assert (score.recall or 0) >= 0.7, entity
        assert (score.precision or 0) >= 0.95, entity


def test_the_texts_have_both_sides_of_every_file() -> None:
    for file in ("secrets", "urls", "words", "personal"):
        samples = samples_of(file)
        assert any(sample.spans for sample in samples)
        assert any(not sample.spans for sample in samples)
        assert samples == samples_of(file)


@pytest.mark.parametrize("name", ["sk-learn-compatible-estimators", "sk-" + "x" * 30, "sk-2024-11-compat-with-old"])
def test_a_name_is_no_key(name: str) -> None:
    assert not is_random(name)


@settings(deadline=None)
@given(st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=20, max_size=60))
def test_a_long_part_is_a_key_unless_it_shows_a_place(part: str) -> None:
    shown = any(run in part for run in ("xxxxxx", "XXXXXX", "000000")) or not part.strip("xX0")
    assert shown or is_random(f"sk-{part}")


def test_a_card_has_a_length_of_its_network() -> None:
    assert checksums.card("4111111111111111")
    assert checksums.card("378282246310005")
    assert checksums.luhn("490154203237518")
    assert not checksums.card("490154203237518"), "an IMEI"
    assert set(NUMBERS) > {"card", "amex"}
