"""The usage that a chat's answer reports."""

import msgspec

from adapters.types import Usage
from adapters.wire.openai.request_codec import Count


class ChatPromptDetails(msgspec.Struct):
    """Parts of the prompt's tokens: those read from a cache, and those written to it."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class ChatCompletionDetails(msgspec.Struct):
    """Parts of the answer's tokens."""

    reasoning_tokens: Count | None = None


class ChatUsage(msgspec.Struct):
    """`usage` of a chat. Tokens that were read from a cache are part of the prompt."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: ChatPromptDetails | None = None
    completion_tokens_details: ChatCompletionDetails | None = None

    @property
    def counted(self) -> Usage:
        """The usage in the gateway's units."""
        usage = Usage(self.prompt_tokens or 0, self.completion_tokens or 0, exact=True)
        if self.prompt_tokens_details is not None:
            usage.cached_tokens = self.prompt_tokens_details.cached_tokens or 0
            usage.cache_write_tokens = self.prompt_tokens_details.cache_write_tokens or 0
        if self.completion_tokens_details is not None:
            usage.reasoning_tokens = self.completion_tokens_details.reasoning_tokens or 0
        return usage
