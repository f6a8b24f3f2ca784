"""The differences between servers of OpenAI's family, as data."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Raw

from adapters.wire.body import field
from adapters.wire.openai.history import EXTRA, OWN_FIELDS

# Translates the fields that control thinking between APIs.

Fields = dict[str, Raw]
Way = Literal["", "template", "own"]
"""The form in which a server accepts thinking options: not at all, as template variables, or in Anthropic's field
`thinking`."""

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


def thinking_of_chat(fields: Fields) -> dict[str, Any] | None:
    """Translate a chat's fields into a message's `thinking`; None if it has none. Raises `CallerError`."""
    given = [budget for name in BUDGETS if (budget := field(fields, name, _count)) is not None]
    enabled = field(fields, "enable_thinking", _flag)
    if enabled is False or (given and min(given) == 0):
        return {"type": "disabled"}
    if given:
        return {"type": "enabled", "budget_tokens": min(given)}
    return {"type": "adaptive"} if enabled else None


MODELS = "models"
"""The list of models below the API's root, in the place of a health path."""


class OpenAIDialect(NamedTuple):
    """The dialect of one server. Defaults are OpenAI's."""

    health: tuple[str, ...] = ("/health",)
    """Health paths below the server's root; the first that exists is used."""
    renames: Mapping[str, str] = {}
    """Fields of a chat that it refuses or ignores, and their names in its dialect."""
    takes_stream_options: bool = True
    """Whether it accepts `stream_options`. Servers without it always report usage."""
    root: str = "/v1"
    """The API's path below a URL without a path."""
    owners: frozenset[str] = frozenset()
    """The owner in its list of models, which identifies the server."""
    sleeps: bool = False
    """Whether it has a sleep mode and reports it."""
    salts: bool = False
    """Whether its prefix cache separates prompts by `cache_salt`."""
    orders: str = ""
    """The API for loading and unloading models."""
    refuses: frozenset[str] = frozenset()
    """Other servers' fields of messages and calls that it refuses."""
    signs: bool = False
    """Whether it signs its calls in `extra_content`, and refuses a call without a signature."""
    thinking: Way = ""
    """The form in which a chat translated from a message enables thinking."""


_TO_MAX_TOKENS = {"max_completion_tokens": "max_tokens"}
_TO_MAX_COMPLETION_TOKENS = {"max_tokens": "max_completion_tokens"}

PLAIN = OpenAIDialect()
OURS = OpenAIDialect(thinking="own", refuses=frozenset({EXTRA, "reasoning_details"}))
"""The bundled runtime."""
DIALECTS = {
    "openai": OpenAIDialect(
        (MODELS,), _TO_MAX_COMPLETION_TOKENS, refuses=OWN_FIELDS
    ),  # many servers report OpenAI as the owner
    "azure": OpenAIDialect((MODELS,), _TO_MAX_COMPLETION_TOKENS, root="/openai/v1", refuses=OWN_FIELDS),
    "mistral": OpenAIDialect(
        (MODELS,),
        {**_TO_MAX_TOKENS, "seed": "random_seed"},
        takes_stream_options=False,
        owners=frozenset({"mistralai"}),
        refuses=OWN_FIELDS,
    ),
    "groq": OpenAIDialect((MODELS,), root="/openai/v1", refuses=OWN_FIELDS - {"reasoning"}),
    "gemini": OpenAIDialect(
        (MODELS,),
        root="/v1beta/openai",
        owners=frozenset({"google"}),
        refuses=OWN_FIELDS - {EXTRA},
        signs=True,
    ),
    "vllm": OpenAIDialect(owners=frozenset({"vllm"}), sleeps=True, salts=True, orders="vllm", thinking="template"),
    "sglang": OpenAIDialect(owners=frozenset({"sglang"}), salts=True, orders="sglang", thinking="template"),
    "llama.cpp": OpenAIDialect(owners=frozenset({"llamacpp"}), orders="llama.cpp", thinking="template"),
    "ollama": OpenAIDialect(("/",), _TO_MAX_TOKENS, owners=frozenset({"library"}), orders="ollama"),
    "lm-studio": OpenAIDialect((MODELS,), _TO_MAX_TOKENS, owners=frozenset({"organization_owner"})),
    "tensorrt-llm": OpenAIDialect(owners=frozenset({"tensorrt_llm"})),
    "tgi": OpenAIDialect(renames=_TO_MAX_TOKENS),
    "openvino": OpenAIDialect(("/v2/health/ready",), root="/v3", owners=frozenset({"OVMS"})),
    "kserve": OpenAIDialect(("/v2/health/ready",), root="/openai/v1"),
}
AUTO = OpenAIDialect(("/health", MODELS))
"""A server that is not detected yet."""


def of_owners(owners: set[str]) -> OpenAIDialect | None:
    """The dialect of a server by the owners of its models; None if they identify no server."""
    for dialect in DIALECTS.values():
        if owners and owners <= dialect.owners:
            return dialect
    return None
