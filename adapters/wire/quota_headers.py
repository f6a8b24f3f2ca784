"""Reads the quota that a provider reports in the headers of an answer, in any of their dialects.

OpenAI, Azure, Groq, Mistral    x-ratelimit-{limit,remaining,reset}-{requests,tokens}: 1s, 6m0s, 120ms, or seconds
Cerebras                        the same with the period: …-requests-day, …-tokens-minute
Fireworks                       the same by direction: …-tokens-prompt, …-tokens-generated
Anthropic                       anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{…}: RFC 3339
Together and others             x-ratelimit-{limit,remaining,reset}: requests; the reset in seconds, or a Unix time
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Literal, NamedTuple

Unit = Literal["requests", "tokens", "prompt", "completion"]
"""The unit of a quota: prompt and completion together are `tokens`."""

_SUFFIXES: tuple[tuple[str, Unit], ...] = (
    ("-requests", "requests"), ("-tokens", "tokens"), ("-requests-minute", "requests"), ("-tokens-minute", "tokens"),
    ("-requests-day", "requests"), ("-tokens-day", "tokens"), ("-tokens-prompt", "prompt"),
    ("-tokens-generated", "completion"), ("", "requests"),
)  # fmt: skip
_ANTHROPIC: tuple[tuple[str, Unit], ...] = (
    ("requests", "requests"), ("tokens", "tokens"), ("input-tokens", "prompt"), ("output-tokens", "completion"),
)  # fmt: skip
_NAMES: tuple[tuple[str, str, str, Unit], ...] = (
    *(
        (f"x-ratelimit-remaining{suffix}", f"x-ratelimit-limit{suffix}", f"x-ratelimit-reset{suffix}", unit)
        for suffix, unit in _SUFFIXES
    ),
    *(
        (
            f"anthropic-ratelimit-{name}-remaining",
            f"anthropic-ratelimit-{name}-limit",
            f"anthropic-ratelimit-{name}-reset",
            unit,
        )
        for name, unit in _ANTHROPIC
    ),
)
"""The headers of what is left, of the limit and of the reset."""
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_UNIX = 1e9
"""A larger number is a Unix time, of seconds or, above a thousand times that, of milliseconds."""


class ReportedQuota(NamedTuple):
    """One quota, at the time of an answer."""

    unit: Unit
    remaining: float
    limit: float | None
    """None if the provider reports what is left only."""
    reset: float | None
    """Seconds until all of it is left again; None if the provider does not report it."""


def read(headers: Mapping[str, str], utc: float) -> Iterator[ReportedQuota]:
    """Each quota that an answer reports; values that cannot be read are none. `utc`: Unix seconds now."""
    for remaining, limit, reset, unit in _NAMES:
        if (left := _number(headers.get(remaining))) is not None:
            yield ReportedQuota(unit, left, _number(headers.get(limit)), _reset(headers.get(reset), utc))


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.partition(",")[0])  # some repeat the value for a window, as `100, 100;w=60`
    except ValueError:
        return None
    return max(0.0, value) if isfinite(value) else None


def _reset(text: str | None, utc: float) -> float | None:
    if not text:
        return None
    if (number := _number(text)) is not None:
        if number > _UNIX:
            number = (number / 1000 if number > 1000 * _UNIX else number) - utc
        return max(0.0, number)
    if (match := _DURATION.fullmatch(text.strip().lower())) is not None and any(match.groups()):
        return sum(float(part) * seconds for part, seconds in zip(match.groups(), _SECONDS, strict=True) if part)
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return max(0.0, at.timestamp() - utc) if at.tzinfo is not None else None
