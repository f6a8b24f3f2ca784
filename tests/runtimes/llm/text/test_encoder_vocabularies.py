"""Tokenizers of encoders out of GGUF files give the ids of the tokenizer.json that the file was made from."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors, trainers

from runtimes.llm.text.tokenizer import Tokenizer, UnsupportedTokenizer
from runtimes.llm.text.tokenizer_loader import load_tokenizer

pytestmark = pytest.mark.plain
NORMAL, UNKNOWN, CONTROL = 1, 2, 3
LICENSE = Path(__file__).parents[4] / "LICENSE"
TEXTS = [*LICENSE.read_text("utf-8").splitlines(), "Über cafés: naïve Ångström", "x" * 120]
ENDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MARKS = ["<s>", "<pad>", "</s>", "<unk>"]


def bert(*, lowercase: bool, strip_accents: bool | None = None) -> tokenizers.Tokenizer:
    """A WordPiece of BERT's, trained here."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=[*ENDS, "[unused1]"], show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return backend


def unigrams() -> tokenizers.Tokenizer:
    """As transformers converts XLM-RoBERTa's, but for its table of normalization."""
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=MARKS, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_special_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    return backend


def byte_pairs(*, composed: bool) -> tokenizers.Tokenizer:
    """As ModernBERT has it, which composes characters, or RoBERTa."""
    backend = tokenizers.Tokenizer(models.BPE())
    if composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=ENDS, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return backend


def write(path: Path, model: str, tokens: Sequence[str], types: Sequence[int], **fields: Any) -> Path:
    writer = GGUFWriter(path, fields.pop("architecture", "bert"))
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if (merges := fields.pop("merges", None)) is not None:
        writer.add_token_merges(merges)
    if (pre := fields.pop("pre", None)) is not None:
        writer.add_tokenizer_pre(pre)
    if (scores := fields.pop("scores", None)) is not None:
        writer.add_token_scores(scores)
    for name, value in fields.items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def ordered(backend: tokenizers.Tokenizer) -> list[str]:
    vocab = backend.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)


def write_bert(path: Path, backend: tokenizers.Tokenizer, *, older: bool = False, **fields: Any) -> Path:
    """`older` converters left every token in brackets as it is."""
    tokens = ordered(backend)
    types = [CONTROL if token in ENDS else NORMAL for token in tokens]

    def spelled(token: str) -> str:
        if token in ENDS or (older and token.startswith("[") and token.endswith("]")):
            return token
        return token[2:] if token.startswith("##") else f"▁{token}"

    return write(path, "bert", [spelled(token) for token in tokens], types, **fields)


def write_unigrams(path: Path, backend: tokenizers.Tokenizer, **fields: Any) -> Path:
    scored = json.loads(backend.to_str())["model"]["vocab"]
    types = [UNKNOWN if token == "<unk>" else CONTROL if token in MARKS else NORMAL for token, _ in scored]
    roles = {"bos_token_id": 0, "eos_token_id": 2, "unknown_token_id": 3, "remove_extra_whitespaces": True}
    names, scores = [token for token, _ in scored], [score for _, score in scored]
    return write(path, "t5", names, types, scores=scores, **(roles | fields))


def write_byte_pairs(path: Path, backend: tokenizers.Tokenizer, **fields: Any) -> Path:
    merges = [" ".join(pair) for pair in json.loads(backend.to_str())["model"]["merges"]]
    tokens = ordered(backend)
    types = [CONTROL if token in ENDS else NORMAL for token in tokens]
    return write(path, "gpt2", tokens, types, merges=merges, **ROLES, **fields)


ROLES = {"cls_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1}


@pytest.fixture(scope="module", params=["uncased", "cased", "accents", "older", "xlm-roberta", "modernbert", "roberta"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Tokenizer]:
    """The tokenizer, and the one of its GGUF file."""
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    if request.param == "xlm-roberta":
        theirs = unigrams()
        return theirs, load_tokenizer(write_unigrams(path, theirs))
    if request.param in ("modernbert", "roberta"):
        theirs = byte_pairs(composed=request.param == "modernbert")
        names = {"modernbert": ("modern-bert", "modern-bert"), "roberta": ("bert", "roberta-bpe")}[request.param]
        return theirs, load_tokenizer(write_byte_pairs(path, theirs, architecture=names[0], pre=names[1]))
    lowercase = request.param != "cased"
    theirs = bert(lowercase=lowercase, strip_accents=False if request.param == "accents" else None)
    return theirs, load_tokenizer(write_bert(path, theirs, older=request.param == "older", **ROLES))


@given(text=st.text(max_size=40) | st.lists(st.sampled_from(TEXTS)).map(" ".join))
@settings(max_examples=100, deadline=None)
def test_ids_are_those_of_the_tokenizer(pair: tuple[Any, Tokenizer], text: str) -> None:
    theirs, ours = pair
    assert ours.encode_whole(text) == theirs.encode(text).ids


def test_texts_are_between_the_tokens_of_the_model(pair: tuple[Any, Tokenizer]) -> None:
    theirs, ours = pair
    ids = ours.encode_whole("Über the licence")
    assert ids == theirs.encode("Über the licence").ids
    assert ids[0] == theirs.encode("").ids[0]
    assert ours.encode_whole("the licence of the work", 4)[-1] == theirs.encode("").ids[-1]


def test_files_that_declare_no_roles_have_those_of_bert(tmp_path: Path) -> None:
    theirs = bert(lowercase=True)
    assert load_tokenizer(write_bert(tmp_path / "m.gguf", theirs)).encode_whole("a work") == theirs.encode("a work").ids


def test_t5_begins_texts_with_no_token(tmp_path: Path) -> None:
    theirs = unigrams()
    path = write_unigrams(tmp_path / "m.gguf", theirs, architecture="t5encoder")
    assert load_tokenizer(path).encode_whole("the work") == theirs.encode("the work").ids[1:]


def test_incomplete_vocabularies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTokenizer, match=r"no tokenizer\.ggml\.cls_token_id, and no token \[CLS\]"):
        load_tokenizer(write(tmp_path / "a.gguf", "bert", ["[UNK]", "▁a"], [CONTROL, NORMAL]))
    with pytest.raises(UnsupportedTokenizer, match="2 tokens, but scores of 1"):
        load_tokenizer(write(tmp_path / "b.gguf", "t5", ["▁a", "b"], [NORMAL, NORMAL], scores=[0.0]))
    with pytest.raises(UnsupportedTokenizer, match="incomplete"):
        load_tokenizer(write(tmp_path / "c.gguf", "t5", ["▁a", "b"], [NORMAL, NORMAL]))
    fields: dict[str, Any] = {"scores": [0.0, 0.0], "unknown_token_id": 2}
    with pytest.raises(UnsupportedTokenizer, match="unknown_token_id of the GGUF file is 2, of 2 tokens"):
        load_tokenizer(write(tmp_path / "d.gguf", "t5", ["▁a", "b"], [NORMAL, NORMAL], **fields))
