"""Token usage in Anthropic's form."""

from typing import Any

from adapters.types import Usage
from adapters.wire import reported_usage
from adapters.wire.reported_usage import UsageReport


def message_usage(usage: Usage) -> dict[str, Any]:
    """The `usage` of a message. Tokens that were read from a cache, or written to it, are not part of its input."""
    fields: dict[str, Any] = {
        "input_tokens": max(usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens, 0),
        "output_tokens": usage.completion_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }
    if usage.reasoning_tokens:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return fields


def reported_by(usage: Any) -> UsageReport | None:
    """The counts of a message's decoded `usage`. A stream reports one half in its first event and the other last."""
    return reported_usage.read(usage, beside=True)
