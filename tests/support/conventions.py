"""The attributes of OpenTelemetry's conventions, by its own package, and their types by its model."""

import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opentelemetry.semconv import attributes as stable
from opentelemetry.semconv._incubating import attributes as incubating

SOURCE = "open-telemetry/semantic-conventions-genai, model/gen-ai/{registry,spans}.yaml, 002c8a6ea1c8"
TYPES: dict[str, type | tuple[type, ...]] = {
    "gen_ai.embeddings.dimension.count": int,
    "gen_ai.input.messages": str,
    "gen_ai.operation.name": str,
    "gen_ai.output.messages": str,
    "gen_ai.output.type": str,
    "gen_ai.provider.name": str,
    "gen_ai.request.choice.count": int,
    "gen_ai.request.encoding_formats": list,
    "gen_ai.request.frequency_penalty": float,
    "gen_ai.request.max_tokens": int,
    "gen_ai.request.model": str,
    "gen_ai.request.presence_penalty": float,
    "gen_ai.request.seed": int,
    "gen_ai.request.stop_sequences": list,
    "gen_ai.request.stream": bool,
    "gen_ai.request.temperature": float,
    "gen_ai.request.top_k": int,
    "gen_ai.request.top_p": float,
    "gen_ai.response.finish_reasons": list,
    "gen_ai.response.id": str,
    "gen_ai.response.model": str,
    "gen_ai.response.time_to_first_chunk": float,
    "gen_ai.system_instructions": str,
    "gen_ai.tool.definitions": str,
    "gen_ai.usage.cache_read.input_tokens": int,
    "gen_ai.usage.input_tokens": int,
    "gen_ai.usage.output_tokens": int,
    "gen_ai.usage.reasoning.output_tokens": int,
}
"""The types of `SOURCE`; those of the model's type `any` are JSON in a string, as the conventions require for spans."""
REQUIRED = {"gen_ai.operation.name", "gen_ai.provider.name"}
"""Attributes that every client's span of an inference or of embeddings must have."""
OPERATIONS = {"chat", "text_completion", "embeddings"}
"""The operations of `gen_ai.operation.name` that the gateway has."""


def names() -> dict[str, bool]:
    """All attributes, and whether each is deprecated."""
    attributes: dict[str, bool] = {}
    for package in (incubating, stable):
        for module in pkgutil.iter_modules(package.__path__):
            attributes |= _of_module(f"{package.__name__}.{module.name}")
    return attributes


def _of_module(name: str) -> dict[str, bool]:
    module: Any = importlib.import_module(name)
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    code = Path(spec.origin).read_text()
    constants = re.findall(
        r'^([A-Z0-9_]+): Final = (?:"[^"]*"|\(\s*"[^"]*"\s*\))\n(?:"""\s*(.*?)""")?', code, re.M | re.S
    )
    return {getattr(module, constant): _is_deprecated(text) for constant, text in constants}


def _is_deprecated(text: str) -> bool:
    """Attributes for generative AI have moved to the repository of `SOURCE`, where they are in force."""
    return text.startswith("Deprecated") and not text.startswith("Deprecated: Moved to the [OpenTelemetry GenAI")
