"""Requests of Anthropic's API: a message, or the token count of a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec.structs import replace

from adapters.requests import ChatRequest, Fields, ModelRequest
from adapters.wire.anthropic.message_to_chat import chat_fields
from adapters.wire.native_chat import ChatTranslation, NativeChat, NativePayload


class MessagePayload(NativePayload, kw_only=True):
    """The body of a message."""

    betas: str = ""
    """The value of the client's `anthropic-beta` header."""

    def _as_chat(self) -> ChatTranslation:
        return chat_fields(self.native, self.added, stream=self.stream)

    def with_model(self, encoded: Fields) -> MessagePayload:
        """Return the payload with another `model` field."""
        chat = None if self.chat is None else {**self.chat, **encoded}
        return replace(self, native={**self.native, **encoded}, chat=chat)


class MessagesRequest(NativeChat, frozen=True, kw_only=True):
    """A request to Anthropic's `/v1/messages`."""

    payload: MessagePayload

    @property
    def native_path(self) -> str:
        return "/v1/messages"


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
