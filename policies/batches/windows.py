"""The completion window that a client requests."""

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WINDOW = re.compile(r"([1-9]\d{0,5})([smhd])")


def window_of(text: object, longest: float) -> float | None:
    """Seconds of a window such as `24h`; None for a text that is none, or that is longer than the longest."""
    if text == "24h":
        return min(longest, 86400.0)  # the only window of OpenAI's API
    match = _WINDOW.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    seconds = float(int(match[1]) * _SECONDS[match[2]])
    return seconds if seconds <= longest else None
