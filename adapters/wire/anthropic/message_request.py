"""Requests of Anthropic's API: a message, or the token count of a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import ChatRequest, Fields, ModelRequest, TextPayload
from adapters.wire.anthropic.message_to_chat import chat_fields


class MessagePayload(TextPayload, kw_only=True):
    """The body of a message, and its translation to the fields of a chat, which the first access creates."""

    native: Fields
    """The client's fields, which are forwarded unchanged if the upstream speaks the same wire."""
    stream: bool = False
    betas: str = ""
    """The value of the client's `anthropic-beta` header."""
    added: Fields = msgspec.field(default_factory=dict)
    """Fields that the route adds and for which the client's wire has no name."""
    chat: Fields | None = None
    left_out: tuple[str, ...] = ()
    """Fields of the message without effect on a chat, set by the translation."""
    reworded: bool = False
    """Whether the fields of the chat were replaced, so that `native` is no longer equivalent."""

    @property
    def fields(self) -> Fields:
        """The fields of the equivalent chat. Raises `CallerError` if no chat is equivalent."""
        if self.chat is None:
            try:
                self.chat, self.left_out = chat_fields(self.native, self.added, stream=self.stream)
            except CallerError as error:
                error.own_words = True
                raise
        return self.chat

    def translated(self) -> tuple[Fields, tuple[str, ...]]:
        """Return `chat` and `left_out`. Raises `CallerError`."""
        return self.fields, self.left_out

    def report(self, ignored: IgnoredFields) -> None:
        """Translate, and record the fields without effect. Raises `CallerError`, on a strict route for such a field."""
        _ = self.fields
        try:
            for name in self.left_out:
                ignored.ignore(name)
        except CallerError as error:
            error.own_words = True
            raise

    def with_model(self, encoded: Fields) -> MessagePayload:
        """Return the payload with another `model` field."""
        chat = None if self.chat is None else {**self.chat, **encoded}
        return replace(self, native={**self.native, **encoded}, chat=chat)

    def with_fields(self, fields: Fields) -> MessagePayload:
        return replace(self, chat=fields, reworded=True)


class MessagesRequest(ChatRequest, frozen=True, kw_only=True):
    """A request to Anthropic's `/v1/messages`, which all other code treats as a chat."""

    payload: MessagePayload


class TokenCount(ModelRequest, frozen=True, kw_only=True):
    """A request for the token count of a prompt. It is routed to the servers that would serve the prompt."""

    operation: ClassVar[str] = "chat"

    n: int = 0
    chat: ChatRequest

    @property
    def shareable(self) -> bool:
        return False


# The names of a chat's fields that a route's rewrite uses for the fields of a message.

_ROUTES = {
    "metadata": ("user",),
    "output_config": ("reasoning_effort", "response_format"),
    "stop_sequences": ("stop",),
}


def route_names(field: str) -> Iterable[str]:
    """The names of one field in a route's rewrite."""
    return _ROUTES.get(field, ())
