"""Calibration texts: of a plain text and of lines of JSON, the same ones for the same seed."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.calibration.texts import FEWEST_IN_ALL, FEWEST_TOKENS, calibration_tokens


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


def drawn(path: Path, seed: int = 0, count: int = 128, length: int = 100) -> list[list[int]]:
    return calibration_tokens(path, encode, count=count, length=length, seed=seed)


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=20),
    as_objects=st.booleans(),
    count=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_lines_of_json(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], as_objects: bool, count: int, seed: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "texts.jsonl"
    texts = [chr(97 + at) * length for at, length in enumerate(lengths)]
    path.write_text("\n\n".join(json.dumps({"text": text, "id": 1} if as_objects else text) for text in texts))
    expected = [encode(text[:100]) for text in texts if len(text) >= FEWEST_TOKENS]
    smallest = sum(sorted(map(len, expected))[:count])
    if not expected or sum(map(len, expected)) < FEWEST_IN_ALL:
        with pytest.raises(ValueError, match=r"no text of 16 tokens|too few"):
            drawn(path, seed, count)
    elif smallest >= FEWEST_IN_ALL:
        chosen = drawn(path, seed, count)
        assert len(chosen) == min(count, len(expected))
        assert all(one in expected for one in chosen)
        assert len({tuple(one) for one in chosen}) == len(chosen)
        assert drawn(path, seed, count) == chosen


def test_another_seed_draws_other_texts(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(map(chr, range(256, 10_256))))
    drafts = [drawn(path, seed, count=10) for seed in (0, 0, 1)]
    assert drafts[0] == drafts[1] != drafts[2]


def test_a_plain_text_is_cut_into_pieces(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(map(chr, range(256, 256 + 310))))
    pieces = sorted(drawn(path))
    assert [len(piece) for piece in pieces] == [100, 100, 100]  # ten tokens are too few
    assert [token for piece in pieces for token in piece] == list(range(256, 556))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no text of 16 tokens or more"),
        (b'"short"\n"x"', "no text of 16 tokens or more"),
        (b'"%s"' % (b"a" * 50), "have 50 tokens, which are too few: give 256 or more"),
        (b'"a"\n{"text"', "line 2 of .* is not JSON"),
        (b"[" * 100_000, "line 1 of .* is not JSON"),
        (b'\n{"prompt": "x"}', 'line 2 of .* is neither a text nor an object with "text"'),
        (b'{"text": 3}', "line 1 of .* is neither"),
        (b"\xff\xfe", "is not text in UTF-8"),
    ],
)
def test_files_of_no_use(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        drawn(path)
