"""Token usage, in Anthropic's and in OpenAI's form."""

from typing import Any

import msgspec

from adapters.types import Usage
from adapters.wire.openai.chat_usage import ChatPromptDetails, ChatUsage
from adapters.wire.openai.request_codec import Count

Object = dict[str, Any]


def message_usage(chat: ChatUsage) -> Object:
    """The `usage` of a message from that of a chat. Tokens that were read from a cache are not part of the input."""
    details = chat.prompt_tokens_details or ChatPromptDetails()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    fields: Object = {
        "input_tokens": max((chat.prompt_tokens or 0) - read - written, 0),
        "output_tokens": chat.completion_tokens or 0,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    if chat.completion_tokens_details is not None and chat.completion_tokens_details.reasoning_tokens is not None:
        fields["output_tokens_details"] = {"thinking_tokens": chat.completion_tokens_details.reasoning_tokens}
    return fields


class _OutputDetails(msgspec.Struct):
    thinking_tokens: Count | None = None


class MessageUsage(msgspec.Struct):
    """Anthropic's usage. A stream reports one half in its first event and the other in its last."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens_details: _OutputDetails | None = None

    def over(self, before: "MessageUsage") -> "MessageUsage":
        """Merge with an earlier report: this one's values take precedence."""
        names = self.__struct_fields__
        return MessageUsage(*[new if (new := getattr(self, n)) is not None else getattr(before, n) for n in names])

    @property
    def usage(self) -> Usage:
        """The usage in the gateway's units."""
        read, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        usage = Usage((self.input_tokens or 0) + read + written, self.output_tokens or 0, exact=True)
        usage.cached_tokens, usage.cache_write_tokens = read, written
        if self.output_tokens_details is not None:
            usage.reasoning_tokens = self.output_tokens_details.thinking_tokens or 0
        return usage

    def fields(self) -> Object:
        """The usage in the form of a chat's `usage`."""
        usage = self.usage
        fields: Object = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
        }
        if self.cache_read_input_tokens is not None or self.cache_creation_input_tokens is not None:
            fields["prompt_tokens_details"] = {
                "cached_tokens": self.cache_read_input_tokens or 0,
                "cache_write_tokens": self.cache_creation_input_tokens or 0,
            }
        if self.output_tokens_details is not None:
            fields["completion_tokens_details"] = {"reasoning_tokens": self.output_tokens_details.thinking_tokens or 0}
        return fields
