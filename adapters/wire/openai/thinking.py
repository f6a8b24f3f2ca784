"""Translates the fields that control thinking between APIs."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from adapters.wire.body import field

Fields = dict[str, Raw]
Way = Literal["", "template", "own"]
"""The form in which a server accepts thinking options: not at all, as template variables, or in Anthropic's field
`thinking`."""

BUDGETS = ("thinking_token_budget", "thinking_budget", "max_thinking_tokens")
"""Names of the thinking budget in a chat: vLLM's, Qwen's and another."""
NAMES = frozenset((*BUDGETS, "enable_thinking"))
"""Fields of a chat that correspond to a message's `thinking`."""


class ChatThinking(msgspec.Struct, omit_defaults=True):
    """Anthropic's field, with the values that other servers support."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


_encode = msgspec.json.Encoder().encode
_thinking = msgspec.json.Decoder(ChatThinking | None)
_variables = msgspec.json.Decoder(dict[str, Any] | None)
_flag = msgspec.json.Decoder(bool | None)
_count = msgspec.json.Decoder(Annotated[int, Meta(ge=0, le=2**31 - 1)] | None)


def of_message(native: Fields, fields: Fields, way: Way) -> Fields:
    """Translate a message's `thinking` into fields of a chat for a server. Template variables have no budget. Raises
    `CallerError`."""
    thinking = field(native, "thinking", _thinking) if way else None
    if thinking is None:
        return {}
    if way == "own":
        return {"thinking": Raw(_encode(thinking))}
    thinks = thinking.type != "disabled"
    given = field(fields, "chat_template_kwargs", _variables) or {}
    return {"chat_template_kwargs": Raw(_encode({"enable_thinking": thinks, "thinking": thinks, **given}))}


def of_chat(fields: Fields) -> dict[str, Any] | None:
    """Translate a chat's fields into a message's `thinking`; None if it has none. Raises `CallerError`."""
    given = [budget for name in BUDGETS if (budget := field(fields, name, _count)) is not None]
    enabled = field(fields, "enable_thinking", _flag)
    if enabled is False or (given and min(given) == 0):
        return {"type": "disabled"}
    if given:
        return {"type": "enabled", "budget_tokens": min(given)}
    return {"type": "adaptive"} if enabled else None
