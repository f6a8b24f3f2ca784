"""What `model.yaml` can say and Triton has no field for, as parameters of a `config.pbtxt`.

    parameters { key: "headrace.quantize" value { string_value: "int8" } }

The value is written as in `model.yaml`. Such parameters come back with the configuration that a server tells, so
that it can be sent again as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pydantic import ValidationError

from config import sentences
from config.document import Document, parse_text
from config.problem import ConfigError, Problem, closest
from config.schema.units import format_duration, format_size
from runtimes.tensor.configuration.model_config import InstanceGroup, ModelConfig
from runtimes.tensor.configuration.model_yaml import ModelSection

PREFIX = "headrace."
_FIELDS = (
    "allowed_batch_sizes", "cache", "execution_timeout", "instances", "labels", "memory", "pad_to", "quantize",
)  # fmt: skip
_BATCHING = ("allowed_batch_sizes", "pad_to")


def applied(config: ModelConfig, doc: Document) -> ModelConfig:
    """The configuration with what its parameters say. Raises ConfigError."""
    given = {key.removeprefix(PREFIX): value for key, value in config.parameters.items() if key.startswith(PREFIX)}
    if not given:
        return config
    section = _section(given, doc)
    if config.dynamic_batching is None and (stray := given.keys() & set(_BATCHING)):
        raise ConfigError([_problem(doc, min(stray), "is for dynamic_batching, which this model does not have")])
    return _with(config, section, frozenset(given))


def _section(given: Mapping[str, str], doc: Document) -> ModelSection:
    fields: dict[str, Any] = {}
    for name, text in given.items():
        if name not in _FIELDS:
            raise ConfigError([_problem(doc, name, "unknown field", closest(name, _FIELDS))])
        if "\n" in text:
            raise ConfigError([_problem(doc, name, "is one line, as in model.yaml")])
        value = parse_text(f"value: {text}", doc.file).value(("value",))
        (fields.setdefault("dynamic_batching", {}) if name in _BATCHING else fields)[name] = value
    written = Document(doc.file, fields)
    try:
        return ModelSection.model_validate(fields, strict=True)
    except ValidationError as error:
        told = sentences.problems(written, error, skip=(), root=ModelSection)
        raise ConfigError([_problem(doc, p.path, p.message, p.suggestion) for p in told]) from None


def _problem(doc: Document, name: str, message: str, suggestion: str | None = None) -> Problem:
    return doc.problem(("parameters",), f"{PREFIX}{name}: {message}", suggestion)


def _with(config: ModelConfig, section: ModelSection, given: frozenset[str]) -> ModelConfig:
    said = section.config(config.name)
    if "cache" in given:
        config = replace(config, response_cache=said.response_cache)
    if "instances" in given:
        config = replace(config, instance_groups=said.instance_groups)
    if said.dynamic_batching is not None and config.dynamic_batching is not None:
        batching = said.dynamic_batching
        config = replace(
            config,
            dynamic_batching=replace(
                config.dynamic_batching, allowed_batch_sizes=batching.allowed_batch_sizes, pad_to=batching.pad_to
            ),
        )
    return replace(
        config,
        execution_timeout=said.execution_timeout,
        memory_bytes=said.memory_bytes,
        quantize=said.quantize,
        version_labels=said.version_labels,
    )


def parameters_of(config: ModelConfig) -> dict[str, str]:
    """All parameters that Triton's form of this configuration has."""
    said: dict[str, str] = {}
    if config.quantize:
        said["quantize"] = config.quantize
    if config.execution_timeout:
        said["execution_timeout"] = format_duration(config.execution_timeout)
    if config.memory_bytes:
        said["memory"] = format_size(config.memory_bytes)
    if config.version_labels:
        said["labels"] = json.dumps(dict(config.version_labels))
    if config.response_cache.ttl:
        said["cache"] = json.dumps({"ttl": format_duration(config.response_cache.ttl)})
    if batching := config.dynamic_batching:
        if batching.allowed_batch_sizes:
            said["allowed_batch_sizes"] = json.dumps(list(batching.allowed_batch_sizes))
        if batching.pad_to:
            said["pad_to"] = json.dumps({name: list(lengths) for name, lengths in batching.pad_to.items()})
    if any(replace(group, count=1, kind="auto", gpus=()) != InstanceGroup() for group in config.instance_groups):
        said["instances"] = json.dumps([asdict(group) for group in config.instance_groups])
    return {**config.parameters, **{PREFIX + name: value for name, value in said.items()}}
