"""Reads the token counts that a server reports, whichever names it gives them.

Counts only bill an answer: a report that cannot be read is none, and the gateway counts the tokens itself.
"""

from typing import Any, NamedTuple

import msgspec

from adapters.types import Usage
from adapters.wire import decoding
from adapters.wire.decoding import whole_number

MAX_TOKENS = 2**31 - 1

_NAMES: dict[str, str | dict[str, str]] = {
    "prompt_tokens": "prompt",
    "input_tokens": "prompt",
    "completion_tokens": "completion",
    "output_tokens": "completion",
    "total_tokens": "total",
    "prompt_tokens_details": {"cached_tokens": "cached", "cache_write_tokens": "written"},
    "input_tokens_details": {"cached_tokens": "cached", "cache_write_tokens": "written"},
    "prompt_token_details": {"cached_tokens": "cached"},  # Mistral's
    "cached_tokens": "cached",  # Moonshot's
    "num_cached_tokens": "cached",  # Mistral's
    "prompt_cache_hit_tokens": "cached",  # DeepSeek's
    "cache_read_input_tokens": "cached",  # Anthropic's
    "cache_creation_input_tokens": "written",
    "cache_creation": {"ephemeral_1h_input_tokens": "hour"},
    "cacheReadInputTokens": "cached",  # Bedrock's
    "cacheWriteInputTokens": "written",
    "completion_tokens_details": {"reasoning_tokens": "reasoning"},
    "output_tokens_details": {"reasoning_tokens": "reasoning", "thinking_tokens": "reasoning"},
    "reasoning_tokens": "reasoning",
}
"""Every server's names of a count. Of several names for one count, the first that is not zero applies."""

_SEARCHES = "num_search_queries"
"""A count that only Perplexity reports."""

_any = msgspec.json.Decoder().decode


class UsageReport(NamedTuple):
    """The counts of a report. A stream may report some early and others late."""

    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    cached: int | None = None
    written: int | None = None
    hour: int | None = None
    reasoning: int | None = None
    beside: bool = False
    """Whether tokens of the cache are counted beside the prompt's, as in Anthropic's messages."""
    apart: bool = False
    """Whether reasoning is in no other count, as in Perplexity's."""

    def over(self, before: "UsageReport | None") -> "UsageReport":
        """Merge with an earlier report. Counts grow, so a zero or an absent count replaces no other."""
        if before is None:
            return self
        return UsageReport(
            _later(self.prompt, before.prompt),
            _later(self.completion, before.completion),
            _later(self.total, before.total),
            _later(self.cached, before.cached),
            _later(self.written, before.written),
            _later(self.hour, before.hour),
            _later(self.reasoning, before.reasoning),
            self.beside,
            self.apart or before.apart,
        )

    @property
    def usage(self) -> Usage | None:
        """The usage in the gateway's units; None if the report has no tokens."""
        prompt, completion = self.prompt or 0, self.completion or 0
        cached, written, reasoning = self.cached or 0, self.written or 0, self.reasoning or 0
        if self.prompt is None and self.total is not None:
            prompt = max(self.total - completion, 0)
        hidden = (self.total or 0) - prompt - completion
        in_cache = cached + written
        missing = (in_cache, in_cache + reasoning) if cached > prompt else (in_cache,)
        if self.beside or (hidden > 0 and hidden != reasoning and hidden in missing):
            prompt += in_cache
            hidden -= in_cache
        if hidden > 0 and self.completion is not None and not self.beside:
            completion += hidden  # thoughts of xAI and Gemini, which the completion's count leaves out
            reasoning = max(reasoning, hidden)
        elif self.apart:
            completion += reasoning
        if not prompt + completion:
            return None
        usage = Usage(prompt, completion, exact=True)
        usage.cached_tokens = min(cached, prompt)
        usage.cache_write_tokens = min(written, prompt - usage.cached_tokens)
        usage.cache_hour_tokens = min(self.hour or 0, usage.cache_write_tokens)
        usage.reasoning_tokens = min(reasoning, completion)
        return usage


def read(given: Any, *, beside: bool = False) -> UsageReport | None:
    """Read a decoded `usage`; None if a count of its tokens is not a number. `beside` is for Anthropic's messages."""
    if not isinstance(given, dict):
        return None
    counts: dict[str, int] = {}
    unreadable = set[str]()
    for name, value in given.items():
        if isinstance(meaning := _NAMES.get(name), str):
            unreadable.add(meaning)
            if type(value) is int and 0 <= value <= MAX_TOKENS:
                counts[meaning] = counts.get(meaning) or value
            else:
                _note(counts, meaning, value)
        elif meaning is not None and isinstance(value, dict):
            for inner, part in meaning.items():
                _note(counts, part, value.get(inner))
    unreadable -= counts.keys()
    if not beside and (unreadable & {"prompt", "completion"}):
        total = counts.get("total", -1)
        if len(unreadable & {"prompt", "completion"}) == 2:
            return None
        missing, other = ("prompt", "completion") if "prompt" in unreadable else ("completion", "prompt")
        if total < counts.get(other, MAX_TOKENS + 1):
            return None
        counts[missing] = total - counts[other]
    return UsageReport(**counts, beside=beside, apart=_SEARCHES in given)


def of_chat(body: dict[str, Any]) -> UsageReport | None:
    """The usage of a chat's decoded answer or chunk; some servers report it in a choice, or in a field of their own."""
    if (report := read(body.get("usage"))) is not None:
        return report
    choices, own = body.get("choices"), body.get("x_groq")
    places = [*choices, own] if isinstance(choices, list) else [own]
    reports = [read(place.get("usage")) for place in places if isinstance(place, dict)]
    return next((report for report in reports if report is not None), None)


def of_raw(raw: msgspec.Raw | bytes, *, beside: bool = False) -> UsageReport | None:
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


def _later(new: int | None, old: int | None) -> int | None:
    return new or (new if old is None else old)


def _note(counts: dict[str, int], name: str, value: Any) -> None:
    if (count := count_of(value)) is not None and not counts.get(name):
        counts[name] = count


def count_of(value: Any) -> int | None:
    """A count of tokens; None for any other value."""
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    if isinstance(value, str):
        return whole_number(value, most=MAX_TOKENS)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value) if 0 <= value <= MAX_TOKENS else None
