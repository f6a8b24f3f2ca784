"""Signed ids: every id is read back, and nothing else is valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.rollouts.signed_ids import PREFIX, IdSigner, SignedId, number_of, read_id

NEW, OLD = b"n" * 32, b"o" * 32
SIGNER = IdSigner((NEW, OLD), "tone")
contents = st.builds(
    SignedId,
    st.just(SIGNER.number),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 65_535),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
)
tenants = st.text("abcXYZ09._:/-", min_size=1, max_size=128)
ID = SignedId(SIGNER.number, 1, 2, 3, 1_800_000_000, 2**63 + 5)


def signed(signer: IdSigner, id: SignedId, tenant: str) -> str:
    return signer.sign(signer.head(id.generation, id.arm, id.stratum), id.at, id.subject, tenant)


def is_valid(signer: IdSigner, text: str, tenant: str) -> bool:
    read = read_id(text)
    return read is not None and signer.is_valid(read[1], tenant)


@given(contents, tenants)
def test_an_id_is_read_back(id: SignedId, tenant: str) -> None:
    text = signed(SIGNER, id, tenant)
    assert len(text) == 44
    read = read_id(text)
    assert read is not None
    assert read[0] == id
    assert is_valid(SIGNER, text, tenant)


@given(contents, tenants, st.data())
def test_every_changed_byte_is_refused(id: SignedId, tenant: str, data: st.DataObject) -> None:
    text = signed(SIGNER, id, tenant)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(max_codepoint=0x2FF).filter(lambda c: c != text[place]))
    assert not is_valid(SIGNER, text[:place] + other + text[place + 1 :], tenant)


def test_every_flip_of_every_bit_is_refused() -> None:
    text = signed(SIGNER, ID, "acme")
    for place in range(len(text)):
        for bit in range(8):
            flipped = text[:place] + chr(ord(text[place]) ^ 1 << bit) + text[place + 1 :]
            assert not is_valid(SIGNER, flipped, "acme"), (place, bit)


@given(st.text(max_size=64) | st.from_regex(rf"{PREFIX}[A-Za-z0-9_-]{{40}}", fullmatch=True))
def test_a_text_without_a_signature_is_refused(text: str) -> None:
    assert not is_valid(SIGNER, text, "acme")


def test_an_id_is_bound_to_its_tenant_and_its_comparison() -> None:
    text = signed(SIGNER, ID, "acme")
    assert is_valid(SIGNER, text, "acme")
    for tenant in ("acm", "acme2", "ACME", ""):
        assert not is_valid(SIGNER, text, tenant)
    assert not is_valid(IdSigner((NEW, OLD), "tone2"), text, "acme")
    assert number_of("tone") != number_of("tone2")


def test_secrets_rotate() -> None:
    """A new secret signs as soon as every gateway has it; the old one verifies until its ids are late."""
    before = signed(IdSigner((OLD,), "tone"), ID, "acme")
    assert is_valid(SIGNER, before, "acme")
    after = signed(SIGNER, ID, "acme")
    assert is_valid(IdSigner((NEW,), "tone"), after, "acme")
    assert not is_valid(IdSigner((NEW,), "tone"), before, "acme")
    assert not is_valid(IdSigner((OLD,), "tone"), after, "acme")


@pytest.mark.parametrize("cut", range(44))
def test_a_part_of_an_id_is_refused(cut: int) -> None:
    text = signed(SIGNER, ID, "acme")
    assert not is_valid(SIGNER, text[:cut], "acme")
    assert not is_valid(SIGNER, text + text[:1], "acme")
