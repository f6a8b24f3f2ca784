"""The usage that a chat's answer reports."""

import msgspec

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
