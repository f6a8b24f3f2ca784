"""Sentencepiece vocabularies out of GGUF files cut texts as sentencepiece does: Llama, Mistral, Gemma, Phi-3."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from runtimes.llm.text.tokenizer import Tokenizer, UnsupportedTokenizer
from runtimes.llm.text.tokenizer_loader import load_tokenizer

pytestmark = pytest.mark.plain
TEXT = Path(__file__).parents[3] / "LICENSE"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
DEFINED = ["▁▁", "▁▁▁", "\n\n", "<think>"]


def trained_pieces() -> list[str]:
    """Pieces of English, in the order of training; without pieces that can be merged in two overlapping ways."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.train_from_iterator([TEXT.read_text("utf-8")], trainers.BpeTrainer(vocab_size=700, show_progress=False))
    pieces = sorted(backend.get_vocab(), key=lambda piece: (len(piece) > 1, backend.token_to_id(piece)))
    return [piece for piece in pieces if len(piece) < 3 or not overlaps_itself(piece)]


def overlaps_itself(piece: str) -> bool:
    return any(piece.startswith(piece[start:]) for start in range(1, len(piece)))


PIECES = trained_pieces()
TOKENS = [*SPECIAL, *BYTES, *DEFINED, *PIECES]
TYPES = [UNKNOWN, *[CONTROL] * 4, *[BYTE] * 256, *[USER_DEFINED] * len(DEFINED), *[NORMAL] * len(PIECES)]
SCORES = [0.0] * (len(TOKENS) - len(PIECES)) + [-float(rank) for rank in range(len(PIECES))]


def write(path: Path, **changes: Any) -> Path:
    writer = GGUFWriter(path, changes.get("architecture", "llama"))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores(changes.get("scores", SCORES))
    writer.add_token_types(TYPES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if "add_space_prefix" in changes:
        writer.add_add_space_prefix(changes["add_space_prefix"])
    if "charsmap" in changes:
        writer.add_precompiled_charsmap(changes["charsmap"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(write(tmp_path_factory.mktemp("spm") / "m.gguf"))


@pytest.fixture(scope="module")
def unprefixed(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(write(tmp_path_factory.mktemp("spm") / "m.gguf", add_space_prefix=False))


def sentencepiece(text: str) -> list[int]:
    """The algorithm as published (Kudo & Richardson 2018; llama.cpp's llm_tokenizer_spm): of all neighbours that
    are a piece together, those with the best score become one, the leftmost first, until there are none."""
    score = {piece: score for piece, score, kind in zip(TOKENS, SCORES, TYPES, strict=True) if kind == NORMAL}
    symbols = list(text.replace(" ", "▁"))
    while len(symbols) > 1:
        pairs = [(-score[a + b], at) for at, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in score]
        if not pairs:
            break
        _, at = min(pairs)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids = {token: id for id, token in enumerate(TOKENS)}
    return [
        id
        for symbol in symbols
        for id in ([ids[symbol]] if symbol in score else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()])
    ]


words = st.text("abcdefghilmnorstuvwy THE.,-é世\t", max_size=60).filter(lambda text: "  " not in text)


@given(text=words)
@settings(deadline=None, max_examples=150)
def test_any_text_is_cut_as_sentencepiece_does(unprefixed: Tokenizer, text: str) -> None:
    assert unprefixed.encode(text) == sentencepiece(text)
    assert unprefixed.decode(unprefixed.encode(text)) == text


def test_english_is_cut_as_sentencepiece_does(tokenizer: Tokenizer) -> None:
    line = "You may reproduce and distribute copies of the work, with or without modifications."
    assert tokenizer.encode(line) == sentencepiece(" " + line)
    assert len(tokenizer.encode(line)) < len(line) / 2
    assert tokenizer.decode(tokenizer.encode(line)) == " " + line


def test_a_text_begins_with_a_space_and_a_token_of_its_own(tokenizer: Tokenizer, unprefixed: Tokenizer) -> None:
    assert tokenizer.encode("the", add_bos=True)[0] == 1
    assert tokenizer.encode("the") == unprefixed.encode(" the")
    assert tokenizer.encode("") == []


def test_spaces_in_a_row_are_tokens_of_their_own(unprefixed: Tokenizer) -> None:
    ids = {token: id for id, token in enumerate(TOKENS)}
    assert unprefixed.encode("a   b\n\nc") == [ids["a"], ids["▁▁▁"], ids["b"], ids["\n\n"], ids["c"]]
    assert unprefixed.decode(unprefixed.encode("a   b\n\nc")) == "a   b\n\nc"


def test_control_tokens_in_text_are_text_unless_allowed(unprefixed: Tokenizer) -> None:
    assert not set(unprefixed.encode("<s></s><unk><|user|>")) & {0, 1, 2, 3}
    assert unprefixed.encode("<|user|>the</s>", allow_special=True) == [3, *unprefixed.encode("the"), 2]
    assert unprefixed.eos_token_ids == {2, 4}  # <|end|> too


def test_unknown_characters_are_bytes(unprefixed: Tokenizer) -> None:
    smile = [TOKENS.index(f"<0x{byte:02X}>") for byte in "😀".encode()]
    assert unprefixed.encode("😀") == smile
    assert unprefixed.decode(smile) == "😀"


def test_phi_3s_control_tokens_take_the_white_space_after_them_along(tmp_path: Path) -> None:
    phi3 = load_tokenizer(write(tmp_path / "m.gguf", architecture="phi3"))
    assert phi3.encode("<|user|>\nthe<|end|>\n", allow_special=True) == [3, *phi3.encode("the"), 4]
    assert phi3.encode("<s>\nthe", allow_special=True) == [1, *phi3.encode("\nthe")]


def test_a_piece_that_scores_better_is_put_together_first(tmp_path: Path) -> None:
    """The merges come of the scores and of nothing else."""
    reversed_scores = SCORES[: -len(PIECES)] + SCORES[-len(PIECES) :][::-1]
    other = load_tokenizer(write(tmp_path / "m.gguf", scores=reversed_scores))
    line = "You may reproduce and distribute copies of the work."
    assert other.encode(line) != sentencepiece(" " + line)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"scores": [0.0]}, f"{len(TOKENS)} tokens, but scores of 1"), ({"charsmap": b"\x01"}, "precompiled_charsmap")],
)
def test_unsupported_tokenizers_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedTokenizer, match=message):
        load_tokenizer(write(tmp_path / "m.gguf", **change))
