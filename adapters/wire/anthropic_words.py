"""Anthropic's names for a chat's fields."""

import re
from collections.abc import Iterable

_NAMES = {
    "max_completion_tokens": "max_tokens",
    "reasoning_effort": "output_config.effort",
    "response_format": "output_config.format",
    "stop": "stop_sequences",
    "user": "metadata",
    "parallel_tool_calls": "tool_choice",
}
_ROUTES = {
    "metadata": ("user",),
    "output_config": ("reasoning_effort", "response_format"),
    "stop_sequences": ("stop",),
}


def name_of(chat_field: str) -> str:
    """The name of a chat's field; of a part of a field, the name of the field."""
    name = re.split(r"[.\[]", chat_field, maxsplit=1)[0]
    return _NAMES.get(name, chat_field)


def route_names(field: str) -> Iterable[str]:
    """The names that a route's rewrite has for a field of a message."""
    return _ROUTES.get(field, ())
