"""What servers of OpenAI's family do each in a way of their own, as data."""

from collections.abc import Mapping
from typing import NamedTuple

from adapters.wire.openai.thinking import Way

MODELS = "models"
"""The list of models, below the API's root, in the place of a path that tells of health."""


class OpenAIDialect(NamedTuple):
    """One server's. What is not said here is as OpenAI has it."""

    health: tuple[str, ...] = ("/health",)
    """What is asked for its health, below the server's root: the first that it knows."""
    renames: Mapping[str, str] = {}
    """Fields of a chat that it refuses, or reads over, and the name that it knows them by."""
    takes_stream_options: bool = True
    """Whether it can be asked to tell usage at the end of a stream. Who cannot tells it anyway."""
    root: str = "/v1"
    """Where the API is below a URL that does not say."""
    owners: frozenset[str] = frozenset()
    """Whose its models are, in its list of them: how it is known."""
    sleeps: bool = False
    """Whether it can be put to sleep, and tells that it is."""
    salts: bool = False
    """Whether it keeps prompts of another `cache_salt` apart in its prefix cache."""
    orders: str = ""
    """Whose way of loading and unloading models it has."""
    thinking: Way = ""
    """How a chat that was made of a message says whether the model is to think."""


_TO_MAX_TOKENS = {"max_completion_tokens": "max_tokens"}
_TO_MAX_COMPLETION_TOKENS = {"max_tokens": "max_completion_tokens"}

PLAIN = OpenAIDialect()
OURS = OpenAIDialect(thinking="own")
"""Of our own runtime."""
DIALECTS = {
    "openai": OpenAIDialect((MODELS,), _TO_MAX_COMPLETION_TOKENS),  # many call their models OpenAI's
    "azure": OpenAIDialect((MODELS,), _TO_MAX_COMPLETION_TOKENS, root="/openai/v1"),
    "mistral": OpenAIDialect(
        (MODELS,),
        {**_TO_MAX_TOKENS, "seed": "random_seed"},
        takes_stream_options=False,
        owners=frozenset({"mistralai"}),
    ),
    "groq": OpenAIDialect((MODELS,), root="/openai/v1"),
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
"""Of a server that is not known yet."""


def of_owners(owners: set[str]) -> OpenAIDialect | None:
    """The dialect of a server whose models are all owned so; None where that tells nothing."""
    for dialect in DIALECTS.values():
        if owners and owners <= dialect.owners:
            return dialect
    return None
