import hashlib
import hmac
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.keys import KeyRecord, Principal, bearer, digest, end_of_day, id_of, is_id, new_key

_ID = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=12, max_size=12)
_SECRET = st.text(string.ascii_letters + string.digits + "-_", min_size=43, max_size=43)


def test_a_new_key_has_the_fixed_form_and_its_own_id() -> None:
    for _ in range(200):
        key = new_key()
        assert len(key.plaintext) == 59
        assert key.plaintext.startswith(f"hr-{key.id}-")
        assert id_of(key.plaintext) == key.id
        assert is_id(key.id)


def test_new_keys_differ() -> None:
    keys = [new_key() for _ in range(100)]
    assert len({key.id for key in keys}) == len({key.plaintext[-43:] for key in keys}) == 100


def test_nothing_secret_is_in_a_repr() -> None:
    key = new_key()
    assert key.plaintext[-43:] not in repr(key)
    record = KeyRecord(Principal("acme", key.id), digest(b"p", key.plaintext))
    assert repr(record.digest) not in repr(record)


@given(_ID, _SECRET)
def test_every_text_of_the_form_is_read(key_id: str, secret: str) -> None:
    assert id_of(f"hr-{key_id}-{secret}") == key_id


@given(_ID, _SECRET, st.integers(0, 58), st.characters())
def test_one_changed_character_is_another_key_or_none(key_id: str, secret: str, at: int, char: str) -> None:
    key = f"hr-{key_id}-{secret}"
    changed = key[:at] + char + key[at + 1 :]
    if changed != key:
        parsed_id = id_of(changed)
        assert parsed_id is None or (parsed_id, changed[16:]) != (key_id, secret)
        assert parsed_id is None or changed.isascii()


@given(st.text())
def test_other_texts_have_no_id(text: str) -> None:
    assert id_of(text) is None


@given(_ID, _SECRET, st.sampled_from([" ", "\n", "\0", "a", "-"]))
def test_anything_before_or_after_is_refused(key_id: str, secret: str, extra: str) -> None:
    key = f"hr-{key_id}-{secret}"
    assert id_of(key + extra) is None
    assert id_of(extra + key) is None
    assert id_of(key[:-1]) is None
    assert id_of(key.upper()) is None


@given(st.binary(min_size=1), _ID, _SECRET)
def test_the_digest_is_hmac_sha256_of_the_whole_key(pepper: bytes, key_id: str, secret: str) -> None:
    key = f"hr-{key_id}-{secret}"
    assert digest(pepper, key) == hmac.new(pepper, key.encode(), hashlib.sha256).digest()
    assert id_of(digest(pepper, key).hex()) is None


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "expected"),
    [
        (None, None, None),
        ("Bearer abc", None, "abc"),
        ("bearer abc", None, "abc"),
        ("BEARER   abc  ", None, "abc"),
        ("Bearer", None, None),
        ("Bearer ", None, None),
        ("Basic abc", None, None),
        ("abc", None, None),
        ("Bearerabc", None, None),
        (None, "abc", "abc"),
        (None, " abc ", "abc"),
        (None, "", None),
        ("Bearer abc", "other", "abc"),
        ("Basic abc", "other", "other"),
        ("Bearer", "other", "other"),
    ],
)
def test_bearer(authorization: str | None, x_api_key: str | None, expected: str | None) -> None:
    assert bearer(authorization, x_api_key) == expected


def test_a_day_ends_when_the_next_one_begins() -> None:
    assert end_of_day("1970-01-01") == 86_400
    assert end_of_day("2024-02-29") == 1_709_251_200  # 2024-03-01T00:00:00Z
    assert end_of_day("9999-12-31") == 253_402_300_800


@pytest.mark.parametrize("text", ["2027-02-30", "0000-01-01", "", "tomorrow"])
def test_a_day_that_is_not_one(text: str) -> None:
    with pytest.raises(ValueError):
        end_of_day(text)
