"""The tokenizers of encoders in GGUF files: BERT's WordPiece (kind `bert`), and sentencepiece's unigrams (kind `t5`).

How llama.cpp spells their vocabularies: https://github.com/ggml-org/llama.cpp/blob/master/conversion/bert.py.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from runtimes.llm.text.tokenizer import UnsupportedTokenizer

CONTROL, UNKNOWN = 3, 2
_SPACE = "▁"


def wordpiece_tokens(tokens: Sequence[str], types: Sequence[int]) -> list[str]:
    """The tokens as BERT spells them. In the file a word begins with ▁, and its other pieces with nothing."""
    return [_as_in_bert(token, type) for token, type in zip(tokens, types, strict=True)]


def _as_in_bert(token: str, type: int) -> str:
    if type == CONTROL or (token.startswith("[") and token.endswith("]") and len(token) > 2):
        return token
    return token.removeprefix(_SPACE) if token.startswith(_SPACE) else f"##{token}"


def wordpiece(metadata: Mapping[str, Any], tokens: list[str], types: Sequence[int]) -> tokenizers.Tokenizer:
    """Texts are between the tokens of the file's roles `cls` and `seperator`. Raises UnsupportedTokenizer.

    The file does not declare whether texts become lower case and lose their accents. The vocabulary tells: no token
    could ever be found that has what the texts have lost.
    """
    ordinary = [token for token, type in zip(tokens, types, strict=True) if type != CONTROL and token[:1] != "["]
    lowercase = not any(token != token.lower() for token in ordinary)
    bare = lowercase and not any(_has_accent(token) for token in ordinary)
    unknown = _token(metadata, tokens, *_UNKNOWN)
    vocab = {token: id for id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unknown, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=bare)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = ends(metadata, tokens)
    return backend


def ends(metadata: Mapping[str, Any], tokens: Sequence[str]) -> processors.PostProcessor:
    """What puts a text between the tokens of the file's roles `cls` and `seperator`."""
    first, last = (_token(metadata, tokens, *names) for names in (_FIRST, _LAST))
    return processors.TemplateProcessing(
        single=[first, "$A", last],
        pair=[first, "$A", last, "$B:1", f"{last}:1"],
        special_tokens=[(token, tokens.index(token)) for token in (first, last)],
    )


_FIRST = ("cls", "bos", "[CLS]")
_LAST = ("seperator", "eos", "[SEP]")  # as the format spells it
_UNKNOWN = ("unknown", "[UNK]")


def _token(metadata: Mapping[str, Any], tokens: Sequence[str], *names: str) -> str:
    """The token of the first of these roles that the file declares, or the one with the last of these spellings."""
    for role in names[:-1]:
        id = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if isinstance(id, int) and 0 <= id < len(tokens):
            return tokens[id]
    if names[-1] not in tokens:
        raise UnsupportedTokenizer(f"the GGUF file has no tokenizer.ggml.{names[0]}_token_id, and no token {names[-1]}")
    return names[-1]


def _has_accent(token: str) -> bool:
    return any(unicodedata.category(character) == "Mn" for character in unicodedata.normalize("NFD", token))


def unigram(metadata: Mapping[str, Any], tokens: list[str], types: Sequence[int]) -> tokenizers.Tokenizer:
    """Raises UnsupportedTokenizer for a file without scores, or a damaged table of normalization or id."""
    scores: Sequence[float] = metadata["tokenizer.ggml.scores"]
    if len(scores) != len(tokens):
        raise UnsupportedTokenizer(f"the GGUF file has {len(tokens)} tokens, but scores of {len(scores)}")
    unknown = next((id for id, type in enumerate(types) if type == UNKNOWN), None)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", unknown)
    if unknown is not None and not (isinstance(unknown, int) and 0 <= unknown < len(tokens)):
        raise UnsupportedTokenizer(f"unknown_token_id of the GGUF file is {unknown!r}, of {len(tokens)} tokens")
    backend = tokenizers.Tokenizer(models.Unigram(list(zip(tokens, scores, strict=True)), unk_id=unknown))
    steps: list[normalizers.Normalizer] = []
    if table := metadata.get("tokenizer.ggml.precompiled_charsmap"):
        try:
            steps.append(normalizers.Precompiled(bytes(code % 256 for code in table)))
        except Exception as error:  # the library raises nothing more precise
            raise UnsupportedTokenizer(f"precompiled_charsmap of the GGUF file is not valid: {error}") from None
    if metadata.get("tokenizer.ggml.remove_extra_whitespaces", False):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    backend.normalizer = normalizers.Sequence(steps)
    prefix = "always" if metadata.get("tokenizer.ggml.add_space_prefix", True) else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix)
    backend.decoder = decoders.Metaspace(prepend_scheme=prefix)
    return backend
