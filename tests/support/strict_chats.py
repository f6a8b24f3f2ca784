"""The chats that doors of other protocols make, as strict servers receive them."""

import json
from typing import Any

from adapters.requests import ChatRequest
from tests.support.strict_servers import deepseek

_FIELDS = frozenset({
    "max_tokens", "messages", "model", "parallel_tool_calls", "reasoning_effort", "response_format", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_p", "user", "verbosity",
})  # fmt: skip
_OF_CLIENTS = ("have no results", "has no content", "input_audio", "roles must alternate", "tool_calls: invalid")
"""Faults that a client makes itself: calls without results, empty texts, sounds, system messages between two of the
user, and arguments that are not JSON."""


def accepted(request: ChatRequest, *, careless: bool = False) -> dict[str, Any]:
    """The body, of which a strict server refuses nothing. A `careless` client makes faults of its own."""
    body = {name: json.loads(bytes(raw)) for name, raw in request.fields.items()}
    assert body.keys() <= _FIELDS
    faults = [fault for fault in deepseek(body) if not careless or not any(own in fault for own in _OF_CLIENTS)]
    assert faults == []
    return body
