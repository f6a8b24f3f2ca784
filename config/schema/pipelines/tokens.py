"""The nodes `tokenize` and `detokenize`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field as Bounds
from pydantic import model_validator

from config.schema.embeddings import Tokenizer
from config.schema.pipelines.leaf import LeafConfig, Place
from config.schema.text import Name


class TokenizerConfig(LeafConfig):
    """A tokenizer: of a file, or of a language model."""

    tokenizer: Tokenizer | None = None
    """A ``tokenizer.json`` or its folder, relative to the working directory, or ``hf:ORG/NAME``."""
    model: Name | None = None
    """Model whose pools all have ``runtime: {kind: llm}``, instead of ``tokenizer``: its servers encode and decode."""

    @model_validator(mode="after")
    def _one_tokenizer(self) -> Self:
        if (self.tokenizer is None) == (self.model is None):
            raise ValueError("give one of `tokenizer` and `model`")
        return self

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        if self.model is not None:
            yield ("model",), self.model

    def sends_values(self) -> bool:
        return False


class TokenizeConfig(TokenizerConfig):
    """Texts as tokens. The input is ``text``; outputs are ``ids``, ``mask``, ``types`` and ``count``, all of INT64."""

    max_tokens: int = Bounds(512, ge=1, le=1_000_000)
    """Longest text in tokens, special tokens included."""
    too_long: Literal["refuse", "cut"] = "refuse"
    """``refuse`` answers a longer text with 400, ``cut`` truncates it."""
    special: bool = True
    """Whether the tokenizer adds its special tokens."""
    pad_id: int = Bounds(0, ge=0, le=2**31 - 1)
    """Token that fills shorter rows up to the longest. ``mask`` is 0 there."""

    def fixed_inputs(self) -> frozenset[str]:
        return frozenset(("text",))


class DetokenizeConfig(TokenizerConfig):
    """Tokens as a text. The input is ``ids``, the output ``text``: a list of texts for several rows."""

    skip_special: bool = True
    """Whether special tokens are left out of the text."""

    def fixed_inputs(self) -> frozenset[str]:
        return frozenset(("ids",))
