"""`ts.torch_handler.text_handler`: words of a text as numbers of a vocabulary, as TorchServe makes them.

A vocabulary is a dict of numbers by word, which is read without running any code. Words that it lacks are its `<unk>`.
"""

from __future__ import annotations

import pickle
import re
import string
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from runtimes.tensor.torchserve_api.base_handler import BaseHandler
from runtimes.tensor.torchserve_api.context import Context
from runtimes.tensor.torchserve_api.utilities import PredictionException

UNKNOWN: Final = "<unk>"
_ENTITY: Final = "&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});"
_ENTITIES: Final = re.compile(_ENTITY)
_MARKUP: Final = re.compile(f"<.*?>|{_ENTITY}")
_ENDINGS: Final = {
    "n't": ("not", "are could did does do had has have is may might must need ought should was were would"),
    "'ve": ("have", "could might must should so to will would what when where who why i they we you"),
    "'d": ("would", "he i it she that there they we you"),
    "'ll": ("will", "he how i it she they we what who you"),
    "'s": ("is", "he how it she that there what when where who why"),
    "'re": ("are", "they we what you"),
    "'m": ("am", "i"),
}
"""Endings, what they stand for, and the words that have them."""
_ODD: Final = {
    "ain't": "is not", "can't": "cannot", "shan't": "shall not", "sha'n't": "shall not", "won't": "will not",
    "how'd": "how did", "where'd": "where did", "let's": "let us", "so's": "so as", "'cause": "because",
    "ma'am": "madam", "o'clock": "of the clock", "y'all": "you all",
}  # fmt: skip
_CONTRACTIONS: Final = {
    f"{word}{ending}": f"{word} {meaning}" for ending, (meaning, words) in _ENDINGS.items() for word in words.split()
} | _ODD
_CONTRACTED: Final = re.compile("|".join(map(re.escape, _CONTRACTIONS)))


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without markup, accents and punctuation.

    A contraction is written out but for its first character, which stays that of the text.
    """
    text = "\n".join(map(_without_markup, text.split("\n"))).lower()
    text = _CONTRACTED.sub(lambda match: match[0][0] + _CONTRACTIONS[match[0]][1:], text)
    plain = unicodedata.normalize("NFKD", text.replace("'", "")).encode("ascii", "ignore").decode()
    return plain.translate(str.maketrans("", "", string.punctuation)).split()


def _without_markup(line: str) -> str:
    """A line without `_MARKUP`. From each `<` without a `>` behind it, that would read the rest of the line."""
    end = line.rfind(">") + 1
    return _MARKUP.sub("", line[:end]) + _ENTITIES.sub("", line[end:])


def with_ngrams(words: list[str], most: int) -> list[str]:
    """The words, and every `most` or fewer of them that follow one another."""
    longer = [" ".join(words[i : i + n]) for n in range(2, most + 1) for i in range(len(words) - n + 1)]
    return [*words, *longer]


class TextHandler(BaseHandler):
    """Handlers get `source_vocab`, a dict of numbers by word."""

    def __init__(self) -> None:
        super().__init__()
        self.source_vocab: Mapping[str, int] = {}

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        name = Path(str(self.manifest["model"].get("sourceVocab") or "source_vocab.pt")).name
        path = Path(str(context.system_properties["model_dir"])) / name
        if not path.is_file():
            raise RuntimeError(f"the archive has no {name}, which is the vocabulary of its handler")
        try:
            vocabulary = torch.load(path, weights_only=True)
        except (pickle.UnpicklingError, RuntimeError):
            vocabulary = None
        if not isinstance(vocabulary, Mapping) or not all(type(one) is int for one in vocabulary.values()):
            raise RuntimeError(f"{name} is no dict of numbers by word: save `vocab.get_stoi()` of torchtext's objects")
        self.source_vocab = vocabulary

    def numbers(self, value: Any, ngrams: int) -> torch.Tensor:
        """The numbers of a request's words. Raises `PredictionException` for a request without any."""
        try:
            text = value.decode() if isinstance(value, bytes | bytearray) else value
        except UnicodeDecodeError:
            text = None
        if not isinstance(text, str) or not (words := words_of(text)):
            raise PredictionException("The request has no text with words.", 400)
        unknown = self.source_vocab.get(UNKNOWN)
        numbers = [self.source_vocab.get(one, unknown) for one in with_ngrams(words, ngrams)]
        if None in numbers:
            raise PredictionException("The request has words that are not in the model's vocabulary.", 400)
        return torch.tensor(numbers, device=self.device)
