"""The fields that control thinking, translated between Messages and the chats of each server."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from adapters.wire.body import field

Fields = dict[str, Raw]
Way = Literal["", "template", "own", "type", "budget", "effort", "flat", "switch", "reasoning"]
"""The form in which a server accepts a wish to think.

    (empty)    none
    template   variables of its chat template, without a budget (vLLM, SGLang, llama.cpp)
    own        Anthropic's field `thinking` (the bundled runtime)
    type       `thinking: {type}`, without a budget (DeepSeek, Z.ai, Moonshot)
    budget     `thinking: {type, budget_tokens}` (Fireworks, Databricks)
    effort     `reasoning_effort: high` or `none` (Mistral, Cohere)
    flat       `enable_thinking` and `thinking_budget` (DashScope)
    switch     `reasoning: {enabled}` (Together)
    reasoning  `reasoning: {max_tokens}` or `{enabled}` (OpenRouter)
"""

BUDGETS = ("thinking_token_budget", "thinking_budget", "max_thinking_tokens")
"""Names of the thinking budget in a chat: vLLM's, Qwen's and another."""
THINKING_FIELDS = frozenset((*BUDGETS, "enable_thinking"))
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


def thinking_of_message(native: Fields, fields: Fields, way: Way) -> Fields:
    """Translate a message's `thinking` into fields of a chat for a server. Raises `CallerError`."""
    thinking = field(native, "thinking", _thinking) if way else None
    if thinking is None:
        return {}
    return {name: Raw(_encode(value)) for name, value in _wish(thinking, fields, way).items()}


def _wish(thinking: ChatThinking, fields: Fields, way: Way) -> dict[str, Any]:
    """The fields of a wish. `adaptive` leaves the choice to the model, where a server has no word for it."""
    thinks, budget = thinking.type != "disabled", thinking.budget_tokens
    adapts = thinking.type == "adaptive"
    match way:
        case "own":
            return {"thinking": thinking}
        case "template":
            given = field(fields, "chat_template_kwargs", _variables) or {}
            return {"chat_template_kwargs": {"enable_thinking": thinks, "thinking": thinks, **given}}
        case "type":
            return {"thinking": {"type": "enabled" if thinks else "disabled"}}
        case "budget" if not adapts:
            return {"thinking": thinking}
        case "effort" if not adapts and (not thinks or "reasoning_effort" not in fields):
            return {"reasoning_effort": "high" if thinks else "none"}
        case "flat":
            return {"enable_thinking": thinks} | ({} if budget is None else {"thinking_budget": budget})
        case "switch":
            return {"reasoning": {"enabled": thinks}}
        case "reasoning" if not thinks or "reasoning_effort" not in fields:
            return {"reasoning": {"max_tokens": budget} if thinks and budget else {"enabled": thinks}}
    return {}


def thinking_of_chat(fields: Fields) -> dict[str, Any] | None:
    """Translate a chat's fields into a message's `thinking`; None if it has none. Raises `CallerError`."""
    given = [budget for name in BUDGETS if (budget := field(fields, name, _count)) is not None]
    enabled = field(fields, "enable_thinking", _flag)
    if enabled is False or (given and min(given) == 0):
        return {"type": "disabled"}
    if given:
        return {"type": "enabled", "budget_tokens": min(given)}
    return {"type": "adaptive"} if enabled else None
