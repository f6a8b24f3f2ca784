"""Names of models: ids, inference profiles and ARNs; what they tell about the model."""

import re
from functools import lru_cache
from typing import Literal

from adapters.paths import segment
from config.schema.protocols.bedrock import Family as Family

Operation = Literal["converse", "converse-stream", "count-tokens", "invoke", "invoke-with-response-stream"]

_FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"(^|[./])anthropic\."), "anthropic"),
    (re.compile(r"(^|[./])amazon\.nova"), "nova"),
    (re.compile(r"(^|[./])openai\."), "openai"),
    (re.compile(r"(^|[./])mistral\."), "mistral"),
    (re.compile(r"(^|[./])amazon\.titan-embed-text-v2"), "titan-v2"),
    (re.compile(r"(^|[./])amazon\.titan-embed"), "titan-v1"),
    (re.compile(r"(^|[./])cohere\.embed-v4"), "cohere-v4"),
    (re.compile(r"(^|[./])cohere\.embed"), "cohere-v3"),
)
"""Makers by the id, which may begin with a region (`eu.`) or be the end of an ARN."""


@lru_cache(256)
def family_of(model: str) -> Family:
    """The family of a model by its id. An ARN of an application inference profile names no model: `other`."""
    return next((family for pattern, family in _FAMILIES if pattern.search(model)), "other")


def path_of(model: str, operation: Operation) -> bytes:
    """The path of an operation. A model's name is one segment, with `:` and `/` encoded as botocore encodes them.

    Raises `CallerError` for a name that cannot be in a path."""
    return f"/model/{segment(model)}/{operation}".encode()
