"""Requests of Anthropic's front door: a message, or the token count of a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec import Raw

from adapters.errors import CallerError
from adapters.requests import ChatRequest, ModelRequest

Fields = dict[str, Raw]


@dataclass(kw_only=True)  # without slots: a slot would replace the property
class MessagesRequest(ChatRequest):
    """A request to Anthropic's `/v1/messages`, which all other code treats as a chat.

    `native` is the client's body, which is forwarded unchanged if the upstream speaks the same wire. `fields` are those
    of the equivalent chat; the first access creates them.
    """

    native: Fields = field(repr=False)
    chat: Callable[[MessagesRequest], Fields] = field(repr=False)
    """Creates `fields`. Raises `CallerError` if no chat is equivalent."""
    betas: str = ""
    """The value of the client's `anthropic-beta` header."""
    added: Fields = field(default_factory=dict, repr=False)
    """Fields that the route adds and for which the client's wire has no name."""
    reworded: bool = field(init=False, repr=False)
    """Whether `fields` were replaced, so that `native` is no longer equivalent."""
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
        """Whether `fields` exist already."""
        return bool(self._worded)

    def translate(self, fields: Fields) -> None:
        """Set `fields` to a translation that another process created."""
        self._worded = fields

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the state for pickle, without `fields`: the property creates them."""
        others = {each.name for each in dataclasses.fields(self)} - {"fields", *vars(self)}
        return vars(self), {name: getattr(self, name) for name in others}


@dataclass(slots=True, kw_only=True)
class TokenCount(ModelRequest):
    """A request for the token count of a prompt. It is routed to the servers that would serve the prompt."""

    operation: ClassVar[str] = "chat"

    n: int = 0
    chat: ChatRequest = field(repr=False)

    @property
    def shareable(self) -> bool:
        return False
