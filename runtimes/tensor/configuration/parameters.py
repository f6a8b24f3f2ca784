"""Fields of `model.yaml` that Triton lacks, as parameters of a `config.pbtxt`.

    parameters { key: "headrace.quantize" value { string_value: "int8" } }

The value is written as in `model.yaml`. The configuration that a server reports has the same parameters, so that it can
be sent again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from config.document import Document, parse_text
from config.problem import ConfigError, Problem, closest
from config.schema.units import format_duration, format_size
from runtimes.tensor.configuration import model_yaml
from runtimes.tensor.configuration.model_config import DynamicBatching, InstanceGroup, ModelConfig
from runtimes.tensor.configuration.table import Row, rows

PREFIX: Final = "headrace."
_MODEL: Final = {str(row.yaml): row for row in rows(ModelConfig) if row.is_parameter}
_BATCHING: Final = {str(row.yaml): row for row in rows(DynamicBatching) if row.is_parameter}
_WHOLE: Final = {"cache": "response_cache", "instances": "instance_groups"}
"""Parameters that replace a part of the configuration that Triton has in part."""
_NAMES: Final = sorted({*_MODEL, *_BATCHING, *_WHOLE})


def applied(config: ModelConfig, doc: Document) -> ModelConfig:
    """The configuration with the values of its parameters. Raises ConfigError."""
    given = {key.removeprefix(PREFIX): value for key, value in config.parameters.items() if key.startswith(PREFIX)}
    if not given:
        return config
    parsed = _parsed(given, config.name, doc)
    stray = sorted(given.keys() & _BATCHING.keys())
    if stray and config.dynamic_batching is None:
        raise ConfigError([_problem(doc, stray[0], "is for dynamic_batching, which this model does not have")])
    changes = {field: getattr(parsed, field) for name, field in _WHOLE.items() if name in given}
    changes |= {row.name: getattr(parsed, row.name) for row in _MODEL.values()}
    if config.dynamic_batching is not None and parsed.dynamic_batching is not None:
        batching = {row.name: getattr(parsed.dynamic_batching, row.name) for row in _BATCHING.values()}
        changes["dynamic_batching"] = replace(config.dynamic_batching, **batching)
    return replace(config, **changes)


def _parsed(given: Mapping[str, str], model: str, doc: Document) -> ModelConfig:
    """The parameters alone, as a configuration."""
    fields: dict[str, Any] = {}
    for name, text in given.items():
        if name not in _NAMES:
            raise ConfigError([_problem(doc, name, "unknown field", closest(name, _NAMES))])
        if "\n" in text:
            raise ConfigError([_problem(doc, name, "must be one line, as in model.yaml")])
        value = parse_text(f"value: {text}", doc.file).value(("value",))
        (fields.setdefault("dynamic_batching", {}) if name in _BATCHING else fields)[name] = value
    try:
        return model_yaml.build(Document(doc.file, fields), model)
    except ConfigError as error:
        raise ConfigError([_problem(doc, p.path, p.message, p.suggestion) for p in error.problems]) from None


def _problem(doc: Document, name: str, message: str, suggestion: str | None = None) -> Problem:
    return doc.problem(("parameters",), f"{PREFIX}{name}: {message}", suggestion)


def of(config: ModelConfig) -> dict[str, str]:
    """All parameters of the configuration's form in Triton."""
    written = {name: _text(row, config) for name, row in _MODEL.items() if getattr(config, row.name)}
    if (batching := config.dynamic_batching) is not None:
        written |= {name: _text(row, batching) for name, row in _BATCHING.items() if getattr(batching, row.name)}
    if config.response_cache.ttl:
        written["cache"] = json.dumps({"ttl": format_duration(config.response_cache.ttl)})
    if any(replace(group, count=1, kind="auto", gpus=()) != InstanceGroup() for group in config.instance_groups):
        written["instances"] = json.dumps([asdict(group) for group in config.instance_groups])
    return {**config.parameters, **{PREFIX + name: text for name, text in written.items()}}


def _text(row: Row, owner: object) -> str:
    """A value as `model.yaml` has it, on one line."""
    value: Any = getattr(owner, row.name)
    if row.at.unit:
        return format_duration(value) if row.at.unit == "seconds" else format_size(value)
    return value if isinstance(value, str) else json.dumps(dict(value) if isinstance(value, Mapping) else value)
