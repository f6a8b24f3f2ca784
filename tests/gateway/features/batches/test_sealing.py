"""Lines of results with personal data are sealed where they are stored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.pepper import BrokenSeal, Pepper
from gateway.features.batches.sealing import BEGIN, LineSeals, size_of

LINE = json.dumps({"custom_id": "one", "response": {"body": "to bob@example.com"}}).encode()


def seals(pepper: bytes = b"p" * 32, previous: bytes | None = None) -> LineSeals:
    made = Pepper(pepper)
    made.previous = previous
    return LineSeals(lambda: made)


@given(st.lists(st.tuples(st.binary().filter(lambda data: b"\n" not in data), st.booleans())))
def test_lines_of_a_file_come_back(given_lines: list[tuple[bytes, bool]]) -> None:
    lines = [line for line, _ in given_lines if not line.startswith(BEGIN)]
    stored = [seals().closed("acme", "file-1", "id", line) if sealed else line for line, sealed in given_lines
            if not line.startswith(BEGIN)]  # fmt: skip
    assert seals().opened_lines("acme", "file-1", b"\n".join(stored)) == b"\n".join(lines)
    assert [size_of(line) for line in stored] == [len(line) for line in lines]
    assert not [line for line in stored if b"\n" in line]


def test_a_sealed_line_is_json_without_the_values() -> None:
    sealed = seals().closed("acme", "file-1", "one", LINE)
    assert json.loads(sealed)["custom_id"] == "one"
    assert b"bob" not in sealed


@pytest.mark.parametrize(
    ("tenant", "file", "pepper"), [("other", "file-1", b"p"), ("acme", "file-2", b"p"), ("acme", "file-1", b"q")]
)
def test_a_seal_opens_where_it_belongs_alone(tenant: str, file: str, pepper: bytes) -> None:
    sealed = seals().closed("acme", "file-1", "one", LINE)
    with pytest.raises(BrokenSeal):
        seals(pepper * 32).opened(tenant, file, sealed)


def test_a_seal_survives_one_change_of_the_pepper() -> None:
    sealed = seals().closed("acme", "file-1", "one", LINE)
    assert seals(b"q" * 32, previous=b"p" * 32).opened("acme", "file-1", sealed) == LINE


@pytest.mark.parametrize("damaged", [BEGIN, BEGIN + b'"!","bytes":1}', BEGIN + b'"AAAA","bytes":1}'])
def test_a_damaged_line_is_no_line(damaged: bytes) -> None:
    with pytest.raises(BrokenSeal):
        seals().opened("acme", "file-1", damaged)
