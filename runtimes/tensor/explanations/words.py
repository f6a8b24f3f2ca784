"""The words of a text as its features, with their places: an absent word is removed, or a mask stands for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import prod
from typing import Final
from unicodedata import category

import numpy as np
import numpy.typing as npt

from adapters.errors import CallerError
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.explanations.explanation import Attributions, Word
from runtimes.tensor.explanations.games import Game
from runtimes.tensor.explanations.sampling import Masks
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors

_SIGNS: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_RUN: Final = re.compile(f"[{_SIGNS}]|[^\\s{_SIGNS}]+")
"""A sign of Chinese or Japanese, or what else has no space within."""


def words(text: str, most: int | None = None) -> list[Word]:
    """The first words of a text, or all, without the punctuation around them. A run of only punctuation is a word."""
    return [Word(text[start:end], start, end) for start, end in islice(_spans(text), most)]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for run in _RUN.finditer(text):
        start, end = run.span()
        while start < end and _is_mark(text[start]):
            start += 1
        while end > start and _is_mark(text[end - 1]):
            end -= 1
        yield (start, end) if start < end else run.span()


def _is_mark(character: str) -> bool:
    """Whether it is punctuation or a symbol."""
    return category(character)[0] in "PS"


class WordMixer:
    """Makes texts of some words of one text."""

    count = 1

    def __init__(self, name: str, text: str, entries: Sequence[Word], mask: str) -> None:
        """`name` is the input."""
        self.words = entries
        self._name = name
        self._mask = mask
        edges = [0, *(edge for word in entries for edge in word[1:]), len(text)]
        self._between = [text[start:end] for start, end in pairwise(edges)][::2]

    def mixed(self, rows: Tensors, of: npt.NDArray[np.int64], masks: Masks, begin: int, end: int) -> dict[str, Array]:
        """See `games.Mixing`."""
        made = {name: array[of[begin:end]] for name, array in rows.items()}
        texts = np.empty(end - begin, object)
        texts[:] = [self._text(mask).encode() for mask in masks[begin:end].tolist()]
        made[self._name] = texts.reshape(made[self._name].shape)
        return made

    def _text(self, present: Sequence[bool]) -> str:
        parts = [self._between[0]]
        for word, is_present, after in zip(self.words, present, self._between[1:], strict=True):
            parts += [word.text if is_present else self._mask, after]
        return "".join(parts)


class WordGames:
    """Each word of the only input is a feature, so each row is a game of its own."""

    features = 0

    def __init__(self, config: ModelConfig, most: int) -> None:
        """`most`: the most words of a text. Raises `ModelLoadError`."""
        assert config.explain is not None
        specs = [spec for spec in config.inputs if not spec.optional]
        if len(specs) != 1 or specs[0].datatype != "BYTES" or prod(specs[0].dims) != 1:
            raise ModelLoadError("`features: words` needs one input of BYTES, with one text for each row")
        self._name = specs[0].name
        self._mask = config.explain.mask
        self._most = most

    def of(self, rows: Tensors) -> Sequence[Game]:
        """See `games.Games`."""
        games = []
        for at, item in enumerate(rows[self._name].ravel().tolist()):
            try:
                text = item.decode()
            except UnicodeDecodeError:
                raise CallerError(f"The text of row {at} is not UTF-8.", param=self._name) from None
            entries = words(text, self._most + 1)
            if len(entries) > self._most:
                raise CallerError(
                    f"The text of row {at} has more than {self._most} words, which are the most that are explained.",
                    param=self._name,
                )
            mixer = WordMixer(self._name, text, entries, self._mask)
            row = {name: array[at : at + 1] for name, array in rows.items()}
            games.append(Game(row, 1, len(entries), mixer, has_own_bases=True, width=len(entries)))
        return games

    def finished(self, games: Sequence[Game], made: Sequence[Attributions]) -> Attributions:
        """See `games.Games`. Shorter rows end with values of 0."""
        whole, width = made[0], max(game.features for game in games)
        padded = [np.pad(one.values, [(0, 0), (0, 0), (0, width - one.values.shape[2])]) for one in made]
        whole.base = np.concatenate([one.base for one in made])
        whole.output = np.concatenate([one.output for one in made])
        whole.values = np.concatenate(padded)
        targets = [one.targets for one in made if one.targets is not None]
        whole.targets = np.concatenate(targets) if targets else None
        whole.method = "/".join(sorted({one.method for one in made}))
        whole.words = [game.mixer.words for game in games if isinstance(game.mixer, WordMixer)]
        return whole
