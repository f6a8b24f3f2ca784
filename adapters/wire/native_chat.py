"""Requests of other protocols that all other code treats as chats.

A server that speaks the client's protocol gets the client's own values; for any other the request becomes a chat.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import ChatRequest, Fields, TextPayload
from adapters.wire.prompt_cache import ChatMark


class ChatTranslation(NamedTuple):
    """The equivalent chat of a request."""

    fields: Fields
    left_out: tuple[str, ...]
    """Fields without effect on it."""
    marks: tuple[ChatMark, ...] = ()
    """The marks of caches, which a chat's fields do not have. They are among `left_out` too."""


class NativePayload(TextPayload, kw_only=True):
    """A body, and its translation to the fields of a chat, which the first access creates."""

    is_translated: bool = True
    native: Fields
    """The client's fields, which are forwarded unchanged if the upstream speaks the same protocol."""
    stream: bool = False
    added: Fields = msgspec.field(default_factory=dict)
    """Fields that the route adds and for which the client's protocol has no name."""
    chat: Fields | None = None
    left_out: tuple[str, ...] = ()
    """Fields without effect on a chat, set by the translation."""
    marks: tuple[ChatMark, ...] = ()
    """The marks of caches, set by the translation."""
    reworded: bool = False
    """Whether the fields of the chat were replaced, so that `native` is no longer equivalent."""

    def _as_chat(self) -> ChatTranslation:
        """Translate. Raises `CallerError`."""
        raise NotImplementedError

    @property
    def thinking(self) -> Fields:
        """The wish for thoughts in Anthropic's field `thinking`; empty without one."""
        return {name: self.native[name] for name in ("thinking",) if name in self.native}

    @property
    def fields(self) -> Fields:
        """The fields of the equivalent chat. Raises `CallerError` if no chat is equivalent."""
        if self.chat is None:
            try:
                self.chat, self.left_out, self.marks = self._as_chat()
            except CallerError as error:
                error.own_words = True
                raise
        return self.chat

    def translated(self) -> ChatTranslation:
        """Return the translation. Raises `CallerError`."""
        return ChatTranslation(self.fields, self.left_out, self.marks)

    def report(self, ignored: IgnoredFields, reads: Container[str] = ()) -> None:
        """Translate, and record the fields without effect, except those that the adapter `reads` by itself. Raises
        `CallerError`, on a strict route for such a field."""
        _ = self.fields
        try:
            for name in self.left_out:
                if name not in reads:
                    ignored.ignore(name)
        except CallerError as error:
            error.own_words = True
            raise

    def with_fields(self, fields: Fields) -> NativePayload:
        return replace(self, chat=fields, reworded=True)


class NativeChat(ChatRequest, frozen=True, kw_only=True):
    """A chat in another protocol."""

    payload: NativePayload

    @property
    def native_path(self) -> str:
        """The path at which its protocol takes it."""
        raise NotImplementedError
