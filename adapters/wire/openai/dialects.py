"""The differences between servers of OpenAI's family, as data."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec import Raw

from adapters.types import Feature
from adapters.wire.openai.history import EXTRA, THOUGHTS, Replay
from adapters.wire.openai.thinking import Way

MODELS = "models"
"""The list of models below the API's root, in the place of a health path."""
REACHABLE = "reachable"
"""In the place of a health path, for APIs without a list of models: any answer there except a failure and 401."""


class Lack(NamedTuple):
    """Fields of a chat that a server refuses. `models` is an expression for the models that do, empty for all."""

    fields: frozenset[str]
    models: str = ""


class ModelReplay(NamedTuple):
    """How the models with matching names receive the thoughts of earlier turns."""

    replay: Replay
    models: str = ""


class OpenAIDialect(NamedTuple):
    """The dialect of one server. Defaults are those of a server about which nothing else is clear."""

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
    system: str = ""
    """The provider's official name, of a hosted API."""
    hosts: tuple[str, ...] = ()
    """Patterns of the hosts of a hosted API, which identify it."""
    lacks: tuple[Lack, ...] = ()
    without: frozenset[Feature] = frozenset()
    """Features of a request that it has for no model."""
    words: Mapping[str, Mapping[bytes, Raw | None]] = {}
    """Fields of a chat whose values have other words in its dialect; None leaves the field out."""
    names_tools: bool = True
    """Whether `tool_choice` can name a tool. Without it, only that tool is sent, and any call demanded."""
    thoughts: tuple[str, ...] = ()
    """The fields of a turn in which its versions take thoughts back; empty if the field's name stays as it is."""
    replays: tuple[ModelReplay, ...] = ()
    errors: Mapping[str, str] = {}
    """Its codes, types and statuses of errors whose meaning differs: a code of `error_table.STATUS_OF`."""
    beside: Mapping[str, str] = {}
    """Calls outside its API: their paths below the server's root, by those below the API's."""
    late_system: bool = False
    """Whether it takes a system message between others. Templates of many models take one at the beginning only."""
    repeats: bool = False
    """Whether its streams may repeat a piece of a thought."""

    def replay_of(self, model: str) -> Replay:
        """How a model receives the thoughts of earlier turns."""
        for replay, models in self.replays:
            if re.search(models, model):
                return replay
        return ""


TO_MAX_TOKENS = {"max_completion_tokens": "max_tokens"}
TO_MAX_COMPLETION_TOKENS = {"max_tokens": "max_completion_tokens"}

PLAIN = OpenAIDialect()
OURS = OpenAIDialect(thinking="own", refuses=frozenset({EXTRA, "reasoning_details"}))
"""The bundled runtime."""
LOCAL = {
    "vllm": OpenAIDialect(  # version 0.12 has renamed the field of thoughts, in both directions
        owners=frozenset({"vllm"}),
        sleeps=True,
        salts=True,
        orders="vllm",
        thinking="template",
        thoughts=THOUGHTS,
    ),
    "sglang": OpenAIDialect(owners=frozenset({"sglang"}), salts=True, orders="sglang", thinking="template"),
    "llama.cpp": OpenAIDialect(owners=frozenset({"llamacpp"}), orders="llama.cpp", thinking="template"),
    "ollama": OpenAIDialect(("/",), TO_MAX_TOKENS, owners=frozenset({"library"}), orders="ollama"),
    "lm-studio": OpenAIDialect((MODELS,), TO_MAX_TOKENS, owners=frozenset({"organization_owner"})),
    "tensorrt-llm": OpenAIDialect(owners=frozenset({"tensorrt_llm"})),
    "tgi": OpenAIDialect(renames=TO_MAX_TOKENS),
    "openvino": OpenAIDialect(("/v2/health/ready",), root="/v3", owners=frozenset({"OVMS"})),
    "kserve": OpenAIDialect(("/v2/health/ready",), root="/openai/v1"),
}
AUTO = OpenAIDialect(("/health", MODELS))
"""A server that is not detected yet."""


def of_owners(owners: set[str], dialects: Mapping[str, OpenAIDialect]) -> OpenAIDialect | None:
    """The dialect of a server by the owners of its models; None if they identify no server."""
    for dialect in dialects.values():
        if owners and owners <= dialect.owners:
            return dialect
    return None


def of_host(host: str, dialects: Mapping[str, OpenAIDialect]) -> str | None:
    """The name of the dialect of a hosted API by its host; None for any other host."""
    for name, dialect in dialects.items():
        if any(fnmatchcase(host, pattern) for pattern in dialect.hosts):
            return name
    return None
