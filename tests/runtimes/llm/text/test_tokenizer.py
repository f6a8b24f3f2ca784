"""Ids equal to those of transformers, and control tokens only where they are meant."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from runtimes.llm.text import tokenizer as module
from runtimes.llm.text.tokenizer import (
    Tokenizer,
    TooManyTokens,
    UnsupportedTokenizer,
    byte_level_alphabet,
    cuts_exactly,
    slices,
)
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from tests.support.byte_tokenizer import byte_tokenizer

CORPUS = [
    "",
    " ",
    "Hello, world!",
    "  leading, trailing and   inner  spaces  ",
    "tabs\tand\r\nline\n\n\nbreaks \n",
    "I'm sure they'll say it's what we've DON'T",
    "3.14159 and 1,000,000 in 2026, a  5, x=10**9",
    "Καλημέρα κόσμε, こんにちは世界, Привет мир, مرحبا",
    "naïve café, e\u0301 combining, ﷽ ligature, ½ ² Ⅷ",
    "👩‍👩‍👧‍👦 family, 🇫🇷 flag, 👍🏽 skin",
    "def f(x: int) -> str:\n    return {'a': [x ** 2]}  # why\n",
    "\u00a0no-break\u200bzero\ufefflast\x00nul",
    "https://example.com/?q=1&r=%20#x <b>&amp;</b> \\n $\\frac{1}{2}$",
]


@pytest.fixture(scope="module")
def published(theirs: Any) -> Any:
    """Digits are cut first, as in training: transformers' GGUF reader lacks `smollm`."""
    tokenizer = copy.deepcopy(theirs)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


@pytest.mark.parametrize("text", CORPUS)
def test_ids_are_those_of_transformers(tokenizer: Tokenizer, published: Any, text: str) -> None:
    assert tokenizer.encode(text) == published(text).input_ids
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text())
@settings(deadline=None)
def test_any_text_has_transformers_ids_and_comes_back(tokenizer: Tokenizer, published: Any, text: str) -> None:
    assert tokenizer.encode(text) == published(text).input_ids
    # This vocabulary lacks some bytes, control characters above all: they are lost, with transformers too.
    bytes_in_vocabulary = {piece for piece in tokenizer.pieces.values() if len(piece) == 1}
    encodable = b"".join([byte for byte in map(int.to_bytes, text.encode()) if byte in bytes_in_vocabulary])
    assert tokenizer.decode(tokenizer.encode(text)) == encodable.decode("utf-8", "replace")


@given(text=st.text(st.characters(exclude_categories=["Nd", "Nl", "No", "Cs"])))
@settings(deadline=None)
def test_without_digits_their_gguf_reader_agrees(tokenizer: Tokenizer, theirs: Any, text: str) -> None:
    assert tokenizer.encode(text) == theirs(text).input_ids


def test_every_digit_is_alone(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.piece(id) for id in tokenizer.encode("a  2026 and 10x3")]
    assert pieces == [b"a", b"  ", b"2", b"0", b"2", b"6", b" and", b" ", b"1", b"0", b"x", b"3"]


def test_control_tokens_in_text_are_text_unless_allowed(tokenizer: Tokenizer) -> None:
    text = "a<|im_end|>b"
    end = tokenizer.special_tokens["<|im_end|>"]
    plain = tokenizer.encode(text)
    assert end not in plain
    assert tokenizer.decode(plain) == text
    meant = tokenizer.encode(text, allow_special=True)
    assert meant.count(end) == 1
    assert tokenizer.decode(meant) == "ab"
    assert tokenizer.encode(text) == plain


def test_declarations_of_the_bundled_model(tokenizer: Tokenizer) -> None:
    assert (tokenizer.named["bos_token"], tokenizer.named["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.eos_token_ids == {0, 2}  # <|endoftext|> ends an answer too
    assert tokenizer.encode("x", add_bos=True) == tokenizer.encode("x")
    assert tokenizer.chat_template is not None
    assert tokenizer.piece(10**6) == b""


def test_the_alphabet_has_a_character_for_every_byte() -> None:
    assert sorted(byte_level_alphabet().values()) == list(range(256))
    assert set(byte_level_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())


# ── Hugging Face folders ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path, published: Any) -> Path:
    published.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    return tmp_path


def test_a_folder_gives_the_same_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    ours = load_tokenizer(folder)
    for text in CORPUS:
        assert ours.encode(text) == tokenizer.encode(text)
    assert ours.special_tokens == tokenizer.special_tokens
    assert ours.eos_token_ids == {0, 2, 7}
    assert ours.chat_template == tokenizer.chat_template
    assert {id: ours.piece(id) for id in range(49152)} == {id: tokenizer.piece(id) for id in range(49152)}


def test_a_template_may_be_in_the_config(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert load_tokenizer(folder).chat_template == "d"


def sentencepiece(folder: Path, decoder: dict[str, Any]) -> Path:
    """A tokenizer as Llama 2 has it: spaces are ▁, unknown characters fall back to bytes."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    vocab |= {"▁": 259, "a": 260, "▁a": 261}
    content = {
        "added_tokens": [
            {"id": i, "content": token, "special": True, "normalized": False, "lstrip": False, "rstrip": False,
             "single_word": False}
            for i, token in enumerate(["<unk>", "<s>", "</s>"])
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocab, "merges": ["▁ a"], "byte_fallback": True, "unk_token": "<unk>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}}))
    return folder


def test_sentencepiece_pieces_are_bytes_too(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece(tmp_path, {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}))
    ids = tokenizer.encode(" aé", add_bos=True)
    assert ids == [1, 261, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode(ids) == " aé"
    assert tokenizer.eos_token_ids == {2}


def test_a_decoder_of_another_kind_is_refused(tmp_path: Path) -> None:
    bpe = {"type": "BPEDecoder", "suffix": "</w>"}
    with pytest.raises(UnsupportedTokenizer, match="BPEDecoder"):
        load_tokenizer(sentencepiece(tmp_path, bpe))


def test_a_tokenizer_json_that_is_none_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UnsupportedTokenizer, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(folder)


def test_the_error_of_a_missing_tokenizer_json_names_the_remedy(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedTokenizer, match="save_pretrained"):
        load_tokenizer(folder)


words = st.lists(
    st.sampled_from(["word", "12", " ", "\n", "  ", "中文", "é", "'s", "<", "_", "\t", "٣", "x="]), max_size=99
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 16)
    monkeypatch.setattr(module, "LONGEST", 10_000)


@pytest.mark.usefixtures("small")
def test_ids_of_slices_are_ids_of_the_text(tokenizer: Tokenizer) -> None:
    @given(words.map("".join))
    @settings(deadline=None)
    def the_same(text: str) -> None:
        whole = tokenizer._backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, allow_special=True) == whole

    the_same()


@given(text=st.text(max_size=200), cut=st.booleans())
def test_slices_are_the_text(text: str, cut: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE", 8)
        patch.setattr(module, "LONGEST", 20)
        parts = list(slices(text, cut=cut))
    assert "".join(parts) == text
    assert all(len(part) <= 20 for part in parts)


def test_a_tokenizer_that_looks_across_the_cut_is_not_cut(tokenizer: Tokenizer) -> None:
    def prefixed(text: str) -> list[int]:
        return list(f"▁{text}".encode())

    assert cuts_exactly(tokenizer._encode)
    assert not cuts_exactly(prefixed)


def test_a_text_is_encoded_no_further_than_the_limit() -> None:
    tokenizer = byte_tokenizer()
    text = "word " * 100_000
    encoded: list[str] = []
    encode = tokenizer._encode
    tokenizer._encode = lambda text: encoded.append(text) or encode(text)  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(TooManyTokens):
        tokenizer.encode(text, limit=1000)
    assert sum(map(len, encoded)) < 2 * module.SLICE
    assert len(tokenizer.encode(text[:1000], limit=1000)) == 1000
    encoded.clear()
    first = tokenizer.first_ids(text, 1000)
    assert sum(map(len, encoded)) < 2 * module.SLICE
    assert first == tokenizer.encode(text[:1000], continues=True)
    assert tokenizer.first_ids("word", 1000) == tokenizer.encode("word", continues=True)
