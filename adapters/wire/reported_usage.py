"""Reads the token counts that a server reports, whichever names it gives them.

Counts only bill an answer: a report that cannot be read is none, and the gateway counts the tokens itself.
"""

from typing import Any, NamedTuple

import msgspec

from adapters.types import Usage
from adapters.wire import decoding
from adapters.wire.valid_text import whole_number

MAX_TOKENS = 2**31 - 1

_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "prompt": (("prompt_tokens",), ("input_tokens",)),
    "completion": (("completion_tokens",), ("output_tokens",)),
    "total": (("total_tokens",),),
    "cached": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_token_details", "cached_tokens"),  # Mistral's
        ("cached_tokens",),  # Moonshot's
        ("num_cached_tokens",),  # Mistral's
        ("prompt_cache_hit_tokens",),  # DeepSeek's
        ("cache_read_input_tokens",),  # Anthropic's
        ("cacheReadInputTokens",),  # Bedrock's
    ),
    "written": (
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
        ("cache_creation_input_tokens",),
        ("cacheWriteInputTokens",),
    ),
    "reasoning": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "thinking_tokens"),
        ("reasoning_tokens",),
    ),
}
"""Every server's names of a count, as paths in its `usage`."""

_any = msgspec.json.Decoder().decode


class Reported(NamedTuple):
    """The counts of a report. A stream may report some early and others late."""

    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None
    beside: bool = False
    """Whether tokens of the cache are counted beside the prompt's, as in Anthropic's messages."""

    def over(self, before: "Reported | None") -> "Reported":
        """Merge with an earlier report. Counts grow, so a zero or an absent count replaces no other."""
        if before is None:
            return self
        merged = [new or old if old is not None else new for new, old in zip(self[:6], before[:6], strict=True)]
        return Reported(*merged, beside=self.beside)

    @property
    def usage(self) -> Usage | None:
        """The usage in the gateway's units; None if the report has no tokens."""
        prompt, completion = self.prompt or 0, self.completion or 0
        cached, written, reasoning = self.cached or 0, self.written or 0, self.reasoning or 0
        if self.prompt is None and self.total is not None:
            prompt = max(self.total - completion, 0)
        hidden = (self.total or 0) - prompt - completion
        if self.beside or (hidden > 0 and hidden == cached + written):
            prompt += cached + written
        elif hidden > 0 and self.completion is not None:
            completion += hidden  # thoughts of xAI and Gemini, which the completion's count leaves out
            reasoning = max(reasoning, hidden)
        if not prompt + completion:
            return None
        usage = Usage(prompt, completion, exact=True)
        usage.cached_tokens = min(cached, prompt)
        usage.cache_write_tokens = min(written, prompt - usage.cached_tokens)
        usage.reasoning_tokens = min(reasoning, completion)
        return usage


def read(given: Any, *, beside: bool = False) -> Reported | None:
    """Read a decoded `usage`; None if a count of its tokens is not a number. `beside` is for Anthropic's messages."""
    if not isinstance(given, dict):
        return None
    counts = {name: _first(given, paths) for name, paths in _NAMES.items()}
    total = counts["total"]
    for name, other in (("prompt", "completion"), ("completion", "prompt")):
        if counts[name] is None and not beside and any(path[0] in given for path in _NAMES[name]):
            if total is None or (rest := counts[other]) is None or rest > total:
                return None
            counts[name] = total - rest
    return Reported(**counts, beside=beside)


def of_chat(body: dict[str, Any]) -> Reported | None:
    """The usage of a chat's decoded answer or chunk; some servers report it in a choice, or in a field of their own."""
    if (found := read(body.get("usage"))) is not None:
        return found
    choices, own = body.get("choices"), body.get("x_groq")
    places = [*choices, own] if isinstance(choices, list) else [own]
    reports = [read(place.get("usage")) for place in places if isinstance(place, dict)]
    return next((report for report in reports if report is not None), None)


def of_raw(raw: msgspec.Raw | bytes, *, beside: bool = False) -> Reported | None:
    """Read an encoded `usage`."""
    try:
        return read(_any(raw), beside=beside)
    except decoding.MALFORMED_JSON:
        return None


def chat_fields(usage: Usage) -> dict[str, Any]:
    """The `usage` of a chat."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _first(given: dict[str, Any], paths: tuple[tuple[str, ...], ...]) -> int | None:
    """The first count that is not zero."""
    found = None
    for path in paths:
        value: Any = given
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if (count := _count(value)) is not None:
            found = count
            if count:
                break
    return found


def _count(value: Any) -> int | None:
    if isinstance(value, str):
        return whole_number(value, most=MAX_TOKENS)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value) if 0 <= value <= MAX_TOKENS else None
