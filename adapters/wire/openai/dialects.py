"""The differences between servers of OpenAI's family, as data."""

from collections.abc import Mapping
from typing import NamedTuple

from adapters.wire.openai.history import EXTRA, OWN_FIELDS
from adapters.wire.openai.thinking import Way

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
