"""The nodes `tokenize` and `detokenize`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field as Bounds

from config.schema.embeddings import Tokenizer
from config.schema.pipelines.leaf import LeafConfig


class TokenizeConfig(LeafConfig):
    """Texts as tokens. The input is ``text``; outputs are ``ids``, ``mask``, ``types`` and ``count``, all of INT64."""

    tokenizer: Tokenizer
    """A ``tokenizer.json`` or its folder, relative to the working directory, or ``hf:ORG/NAME``."""
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


class DetokenizeConfig(LeafConfig):
    """Tokens as a text. The input is ``ids``, the output ``text``: a list of texts for several rows."""

    tokenizer: Tokenizer
    """A ``tokenizer.json`` or its folder, relative to the working directory, or ``hf:ORG/NAME``."""
    skip_special: bool = True
    """Whether special tokens are left out of the text."""

    def fixed_inputs(self) -> frozenset[str]:
        return frozenset(("ids",))
