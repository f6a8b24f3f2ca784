"""Tokenizers out of GGUF metadata: what a file declares, and files that cannot be read."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.text.tokenizer import UnsupportedTokenizer, byte_level_alphabet
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.gguf_metadata import InvalidGguf, read_metadata

pytestmark = pytest.mark.plain


def write_gguf(path: Path, **changes: Any) -> Path:
    """A GGUF file with a tokenizer of single bytes, `he`, and two control tokens."""
    writer = GGUFWriter(path, "llama")
    alphabet = sorted(byte_level_alphabet())
    writer.add_tokenizer_model(changes.get("model", "gpt2"))
    writer.add_tokenizer_pre(changes.get("pre", "default"))
    writer.add_token_list([*alphabet, "he", "<s>", "</s>", "<think>"])
    writer.add_token_types(changes.get("types", [1] * 257 + [changes.get("bos_type", 3), 3, 4]))
    if changes.get("merges", True):
        writer.add_token_merges(changes.get("merge_list", ["h e"]))
    writer.add_bos_token_id(changes.get("bos", 257))
    writer.add_eos_token_id(258)
    if changes.get("add_eos"):
        writer.add_add_eos_token(True)
    if changes.get("add_bos", True) is not None:
        writer.add_add_bos_token(True)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_array("general.languages", ["en", "日本語"])
    writer.add_int64("general.signed", -(2**40))
    writer.add_float64("general.double", 0.1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_metadata_equals_that_of_the_gguf_package(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    ours = read_metadata(path)
    for key, field in GGUFReader(path).fields.items():
        if not key.startswith("GGUF."):
            assert ours[key] == field.contents(), key


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "whole.gguf")


@given(part=st.floats(0, 1, exclude_max=True))
@settings(max_examples=50, deadline=None)
def test_a_file_cut_short_is_refused(whole: Path, part: float) -> None:
    # Padding after the last value may be missing.
    content, cut = whole.read_bytes(), whole.with_name("cut.gguf")
    cut.write_bytes(content[: int(len(content.rstrip(b"\0")) * part)])
    with pytest.raises(InvalidGguf, match=r"cut\.gguf"):
        read_metadata(cut)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_damaged_file_is_read_or_refused(whole: Path, data: st.DataObject) -> None:
    content, damaged = bytearray(whole.read_bytes()), whole.with_name("damaged.gguf")
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    damaged.write_bytes(content)
    with contextlib.suppress(InvalidGguf):
        read_metadata(damaged)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.gguf"
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + bytes(32))
    with pytest.raises(InvalidGguf, match="version 1"):
        read_metadata(path)


def test_a_model_with_a_beginning_token_has_it(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf"))
    assert tokenizer.encode("he", add_bos=True) == [257, 256]
    assert tokenizer.encode("he") == [256]
    assert tokenizer.eos_token_ids == {258}
    assert tokenizer.chat_template is None


@pytest.mark.parametrize(("pre", "begins"), [("llama-bpe", True), ("tekken", True), ("qwen2", False)])
def test_defaults_come_from_the_family(tmp_path: Path, pre: str, begins: bool) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", pre=pre, add_bos=None))
    assert tokenizer.encode("he", add_bos=True) == [257] * begins + [256]


def test_user_defined_tokens_are_text_and_whole(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf"))
    assert tokenizer.encode("<think>he") == [259, 256]
    assert tokenizer.decode([259, 256]) == "<think>he"


def test_a_beginning_marked_as_an_ordinary_token_is_still_control(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", bos_type=1))
    assert 257 not in tokenizer.encode("<s>")


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("llama-bpe", "12345 x", [b"123", b"45", b" x"]),
        ("qwen2", "12 x", [b"1", b"2", b" x"]),
        ("dbrx", "12345 x", [b"123", b"45", b" x"]),
        ("tekken", "12 camelCase's", [b"1", b"2", b" camel", b"Case", b"'s"]),
        ("gpt-4o", "1234 camelCase's", [b"123", b"4", b" camel", b"Case's"]),
        ("gpt-2", "12345 x", [b"12345", b" x"]),
    ],
)
def test_pre_tokenizers_cut_as_their_models_were_trained(
    tmp_path: Path, pre: str, text: str, pieces: list[bytes]
) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", pre=pre))
    cuts = tokenizer._backend.pre_tokenizer.pre_tokenize_str(text)
    alphabet = byte_level_alphabet()
    assert [bytes([alphabet[character] for character in piece]) for piece, _ in cuts] == pieces


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "rwkv"}, "'rwkv' is not supported; gpt2"),
        ({"model": "llama"}, r"incomplete: .*tokenizer\.ggml\.scores"),
        ({"types": [1, 1]}, "260 tokens, but types of 2"),
        ({"pre": "unheard-of"}, "unheard-of"),
        ({"merges": False}, "merges"),
    ],
)
def test_unsupported_tokenizers_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedTokenizer, match=message):
        load_tokenizer(write_gguf(tmp_path / "m.gguf", **change))


def test_ids_and_merges_beyond_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    plain = load_tokenizer(write_gguf(tmp_path / "plain.gguf"))
    odd = load_tokenizer(write_gguf(tmp_path / "odd.gguf", bos=10**6, merge_list=["h e", "he l", "hello", "zz y"]))
    assert odd.encode("hello he", add_bos=True) == plain.encode("hello he")
    assert plain.encode("he", add_bos=True)[0] == 257


def test_an_end_token_that_the_file_declares(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", add_eos=True))
    assert tokenizer.encode_whole("he") == [257, 256, 258]
    assert tokenizer.encode_whole("he he he", limit=3)[-1] == 258
    assert tokenizer.encode("he", add_bos=True) == [257, 256]
    assert load_tokenizer(write_gguf(tmp_path / "n.gguf")).encode_whole("he") == [257, 256]


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("falcon3", "llama-bpe"),
        ("pixtral", "llama3"),
        ("lfm2", "llama-bpe"),
        ("llama4", "gpt-4o"),
        ("kormo", "qwen2"),
        ("phi-2", "gpt-2"),
    ],
)
def test_names_of_the_same_pre_tokenizer(tmp_path: Path, alias: str, name: str) -> None:
    text = "Hello there's 12345 — it’s\n\n  Füße don'T camelCase"
    one, other = (load_tokenizer(write_gguf(tmp_path / f"{pre}.gguf", pre=pre)) for pre in (alias, name))
    assert one._backend.to_str() == other._backend.to_str()
    assert one.encode(text, add_bos=True) == other.encode(text, add_bos=True)
