"""What each generation of Google's models accepts, as data.

A name that no row matches is read as the newest generation: new models appear more often than releases of the gateway.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Thinking = Literal["", "budget", "level"]
"""The form in which a model takes the effort of thinking: not at all, as tokens, or as a word."""


class ModelGeneration(NamedTuple):
    """What a model accepts. Defaults are those of the newest models."""

    thinking: Thinking = "level"
    levels: tuple[str, ...] = ("minimal", "low", "medium", "high")
    """The words for the effort, the lowest first."""
    least: int = 0
    """The smallest budget in tokens; 0 if thinking can be switched off."""
    most: int = 24_576
    json_schema: bool = True
    """Whether it takes JSON Schema as it is. Older models take a subset, without references."""
    signed: bool = True
    """Whether it refuses the first call of a turn without the signature of a thought."""
    files_in_results: bool = True
    """Whether the result of a tool may hold images and files."""
    has_system: bool = True
    """Whether it takes a system instruction."""
    least_cached: int = 1024
    """Tokens of the shortest prompt that it keeps as cached contents; 0 if it keeps none."""


_OLD = ModelGeneration("", json_schema=False, signed=False, files_in_results=False, least_cached=4096)
_BUDGET = ModelGeneration("budget", signed=False, files_in_results=False)
_ROWS: tuple[tuple[str, ModelGeneration], ...] = (
    (r"gemini-2\.5-[a-z-]*(image|tts)", _BUDGET._replace(thinking="")),
    (r"gemini-2\.5-flash-lite", _BUDGET),
    (r"gemini-2\.5-(flash|computer)", _BUDGET),
    (r"gemini-2\.5|gemini-(pro|flash)-2\.5", _BUDGET._replace(least=128, most=32_768, least_cached=4096)),
    (r"gemini-1", _OLD._replace(least_cached=32_768)),
    (r"gemini-(2\.0|pro$|pro-vision|exp)|learnlm|text-|chat-", _OLD),
    (r"gemma", _OLD._replace(has_system=False, least_cached=0)),
    (r"gemini-3(\.\d+)?-pro-image", ModelGeneration(levels=("high",), least_cached=4096)),
    (r"gemini-3-pro", ModelGeneration(levels=("low", "high"), least_cached=4096)),
    (r"gemini-3(\.\d+)?-pro", ModelGeneration(levels=("low", "medium", "high"), least_cached=4096)),
    (r"gemini-pro-latest", ModelGeneration(least_cached=4096)),
)
_PATTERNS = tuple((re.compile(pattern), generation) for pattern, generation in _ROWS)
_NEWEST = ModelGeneration()

_EFFORTS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 32_768, "max": 32_768}
"""Tokens of an effort, as Google's own API in OpenAI's form maps them."""
_STEPS = (("minimal", 512), ("low", 2048), ("medium", 12_288))
"""The word for a budget: that of the first row which is not smaller."""


@lru_cache(256)
def generation_of(model: str) -> ModelGeneration:
    """The generation of a model's name, with or without the collection before it."""
    name = model.rpartition("/")[2].lower()
    return next((generation for pattern, generation in _PATTERNS if pattern.match(name)), _NEWEST)


def budget_of(effort: str) -> int | None:
    """The tokens of an effort; None for an unknown word."""
    return _EFFORTS.get(effort)


def level_of(generation: ModelGeneration, effort: str) -> str:
    """The model's own word for an effort: the nearest that it has, the higher of two."""
    order = ("minimal", "low", "medium", "high")
    wished = order.index(effort) if effort in order else (0 if effort == "none" else len(order) - 1)
    having = [order.index(level) for level in generation.levels]
    return order[min(having, key=lambda at: (abs(at - wished), -at))]


def word_of(budget: int) -> str:
    """The effort of a budget in tokens."""
    return next((word for word, most in _STEPS if budget <= most), "high")


def clamped(generation: ModelGeneration, budget: int) -> int:
    """The budget within the bounds of the model."""
    return min(max(budget, generation.least), generation.most)
