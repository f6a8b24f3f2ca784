"""The kinds of steps that contain no other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field as Bounds
from pydantic import model_validator

from config.schema.pipelines.call import CallConfig
from config.schema.pipelines.decode import DecodeConfig
from config.schema.pipelines.leaf import LeafConfig, Place
from config.schema.pipelines.parts import Expression, Field
from config.schema.pipelines.rerank import RerankConfig
from config.schema.pipelines.template import TemplateConfig
from config.schema.pipelines.tokens import DetokenizeConfig, TokenizeConfig
from config.schema.section import Section
from config.schema.text import Name


class GuardConfig(LeafConfig):
    """A classifier that blocks requests or answers. ``on_error: skip`` of its step lets them pass while it is down."""

    model: Name
    """Model that examines the text: of tensors, with an input of BYTES, or of chats."""
    block_if: Expression
    """Condition on the outputs of that model; ``text`` is the answer of a model of chats."""
    on: Literal["request", "answer"]
    """``request``: no later step starts before it has passed. ``answer``: it guards the answer of the step before."""
    input: Field | None = None
    """Input of a model of tensors that receives the text; its only input of BYTES when absent."""
    window: int = Bounds(200, ge=1, le=16_384)
    """Tokens that are examined at once, of four characters each. A stream is held back by so many."""
    overlap: int = Bounds(50, ge=0, le=16_383)
    """Tokens of a window that the next one examines again. No longer span can escape between two windows."""

    @model_validator(mode="after")
    def _advances(self) -> Self:
        if self.overlap >= self.window:
            raise ValueError("the overlap is less than the window: each window must have new text")
        return self

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        yield ("model",), self.model

    def placed_conditions(self) -> Iterator[tuple[Place, str]]:
        yield ("block_if",), self.block_if


LEAVES = ("guard", "template", "rerank", "decode", "tokenize", "detokenize", "call")
"""The fields of `LeafKinds`."""


class LeafKinds(Section):
    """The kinds of a node that contain no other nodes."""

    guard: GuardConfig | None = None
    """A classifier that blocks requests or answers."""
    template: TemplateConfig | None = None
    """A text, or the messages of a chat, that is made from values."""
    rerank: RerankConfig | None = None
    """The best of several candidates, in the order of a model's scores."""
    decode: DecodeConfig | None = None
    """Pictures or sound as tensors."""
    tokenize: TokenizeConfig | None = None
    """Texts as tokens."""
    detokenize: DetokenizeConfig | None = None
    """Tokens as texts."""
    call: CallConfig | None = None
    """Python code in a process of the bundled tensor runtime."""

    def placed_leaves(self) -> Iterator[tuple[str, LeafConfig]]:
        """The kinds that are given, each with its field."""
        for name in LEAVES:
            if (leaf := getattr(self, name)) is not None:
                yield name, leaf
