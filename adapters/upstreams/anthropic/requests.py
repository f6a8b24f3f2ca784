"""What Anthropic's door asks: a message, or how long one would be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec import Raw

from adapters.errors import CallerError
from adapters.types import ChatRequest, ModelRequest

Fields = dict[str, Raw]


@dataclass(kw_only=True)  # without slots, which would take the place of the property
class MessagesRequest(ChatRequest):
    """Anthropic's `/v1/messages`: a chat, to whoever does not look closer.

    `native` is the client's body, which goes on as it is where the upstream speaks the same wire; `fields` are those
    of the chat that asks for the same, made when they are first wanted.
    """

    native: Fields = field(repr=False)
    chat: Callable[[MessagesRequest], Fields] = field(repr=False)
    """Makes the fields. Raises `CallerError` where no chat asks for the same."""
    betas: str = ""
    """What the client's `anthropic-beta` names."""
    added: Fields = field(default_factory=dict, repr=False)
    """What its route sends beside what the client's wire has a name for."""
    reworded: bool = field(init=False, repr=False)
    """Somebody put other fields in the place of those that `native` stands for."""
    _worded: Fields = field(init=False, repr=False)

    @property  # type: ignore[misc]
    def fields(self) -> Fields:
        if not self._worded:
            try:
                self._worded = self.chat(self)
            except CallerError as error:
                error.own_words = True
                raise
        return self._worded

    @fields.setter
    def fields(self, fields: Fields) -> None:
        self._worded = fields
        self.reworded = bool(fields)

    @property
    def is_translated(self) -> bool:
        """Whether `fields` are there."""
        return bool(self._worded)

    def translate(self, fields: Fields) -> None:
        """Take over `fields` that were made elsewhere."""
        self._worded = fields

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """For pickle, without `fields`: the property makes them."""
        others = {each.name for each in dataclasses.fields(self)} - {"fields", *vars(self)}
        return vars(self), {name: getattr(self, name) for name in others}


@dataclass(slots=True, kw_only=True)
class TokenCount(ModelRequest):
    """How many tokens a prompt has, which its model's server knows best. It goes where the prompt would."""

    operation: ClassVar[str] = "chat"

    n: int = 0
    chat: ChatRequest = field(repr=False)

    @property
    def shareable(self) -> bool:
        return False
