"""`model.yaml`: a model's configuration in fewer words than Triton's `config.pbtxt`.

Its schema is made from the table of the fields of `model_config`. Beside it stand the short forms: `true` for a section
with its defaults, a number for instances, a word or a list for versions.

Fields that Triton lacks are parameters of a `config.pbtxt`, each with its value as in `model.yaml`, and the
configuration that a server reports has them too, so that it can be sent again:

    parameters { key: "headrace.quantize" value { string_value: "int8" } }
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, asdict, replace
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Final, Self, get_args

from pydantic import BeforeValidator, Field, ValidationError, create_model, model_validator

from config import sentences
from config.document import Document, parse, parse_text
from config.place import Place
from config.problem import ConfigError, Problem, closest
from config.schema.section import Section
from config.schema.text import Shape
from config.schema.units import Delay, Duration, Size, format_duration, format_size
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    ExplainRules,
    InstanceGroup,
    ModelConfig,
    ResponseCache,
    SequenceBatching,
    VersionPolicy,
)
from runtimes.tensor.configuration.table import Row, along, rows


class Switch(Section):
    """A section that `true` enables with its defaults."""

    @model_validator(mode="before")
    @classmethod
    def _on(cls, data: object) -> object:
        return {} if data is True else data


class VersionSection(Section):
    """The versions that are served: `latest`, `all`, a list of numbers, or `{latest: 2}`."""

    latest: int = Field(0, ge=0)
    all: bool = False
    only: tuple[int, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        if isinstance(data, str):
            if data not in ("latest", "all"):
                raise ValueError("expected latest, all, a list of numbers or {latest: NUMBER}")
            return {"latest": 1} if data == "latest" else {"all": True}
        return {"only": data} if isinstance(data, tuple) else data

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if bool(self.latest) + self.all + bool(self.only) != 1:
            raise ValueError("give one of latest, all and only")
        return self

    def policy(self) -> VersionPolicy:
        if self.all:
            return VersionPolicy("all")
        return VersionPolicy("specific", versions=self.only) if self.only else VersionPolicy("latest", self.latest)


def _counted(value: object) -> object:
    """A number of copies: `2` is two copies with the default placement."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ({"count": value},)
    return value


def _texts(value: object) -> object:
    """Values as text, which backends read; a file may have `true` and `4`."""
    return {key: _text(item) for key, item in value.items()} if isinstance(value, dict) else value


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_SWITCHES: Final = (DynamicBatching, SequenceBatching, ResponseCache, ExplainRules)
_LEVEL: Final = Annotated[str, Shape(r"[1-9]\d{0,3}", "a level, from 1")]
_SHORT: Final[Mapping[str, Callable[[Any], object]]] = {
    "version_policy": lambda hint: VersionSection,
    "parameters": lambda hint: Annotated[dict[str, str], BeforeValidator(_texts)],
    "card": lambda hint: Annotated[dict[str, str], BeforeValidator(_texts)],
    "instance_groups": lambda hint: Annotated[hint, BeforeValidator(_counted), Field(min_length=1)],
    "response_cache": lambda hint: hint | None,
}
"""The type of each field in the schema, made from its type in the table."""


@functools.cache
def section(kind: type, side: str = "") -> type[Section]:
    """The schema of a dataclass of `model_config`; `side` is that of a tensor: inputs or outputs."""
    fields: dict[str, Any] = {
        str(row.yaml): (_hint(row), ... if row.default is MISSING else None)
        for row in rows(kind)
        if row.yaml is not None and row.at.only in ("", side)
    }
    return create_model(kind.__name__, __base__=Switch if kind in _SWITCHES else Section, **fields)


def _hint(row: Row) -> object:
    hint = row.hint
    if row.nested is not None:
        inner = section(row.nested, row.name)
        hint = GenericAlias(dict, (_LEVEL, inner)) if row.is_map else inner
        if row.is_list:
            hint = GenericAlias(tuple, (inner, ...))
    elif row.is_map:
        hint = GenericAlias(dict, get_args(row.hint))
    elif row.at.unit:
        hint = Size | None if row.at.unit == "bytes" else Duration if row.at.above == 0 else Delay
    elif row.at.named:
        hint = Annotated[hint, Field(min_length=1)]
    elif row.at.least is not None and not row.is_list:
        hint = Annotated[hint, Field(ge=row.at.least)]
    if row.name in _SHORT:
        return _SHORT[row.name](hint)
    return hint


def build(doc: Document, name: str) -> ModelConfig:
    """The configuration that a document has. Its files are not read. Raises ConfigError with every problem."""
    root = section(ModelConfig)
    try:
        written = root.model_validate(doc.data, strict=True)
    except ValidationError as error:
        raise ConfigError([*doc.problems, *sentences.problems(doc, error, skip=(), root=root)]) from None
    if doc.problems:
        raise ConfigError(doc.problems)
    config: ModelConfig = _built(ModelConfig, written, name=name)
    named = (replace(warmup, name=warmup.name or f"warmup {i}") for i, warmup in enumerate(config.warmup))
    return replace(config, warmup=tuple(named))


def _built(kind: Any, written: Section, **given: Any) -> Any:
    """The dataclass of a section. Fields that are not written have the defaults of the dataclass."""
    for row in rows(kind):
        value = getattr(written, row.yaml, None) if row.yaml is not None else None
        if value is not None:
            given[row.name] = _value(row, value)
    return kind(**given)


def _value(row: Row, value: Any) -> Any:
    if isinstance(value, VersionSection):
        return value.policy()
    if row.nested is None:
        return value
    if row.nested is ResponseCache:
        return _built(ResponseCache, value, enable=True)
    if row.is_map:
        return {int(key): _built(row.nested, item) for key, item in value.items()}
    return tuple(_built(row.nested, item) for item in value) if row.is_list else _built(row.nested, value)


def written_place(place: Place, lines: Container[Place] = ()) -> Place:
    """A place of `ModelConfig` as a place of the file."""
    return tuple(step if row is None or row.yaml is None else row.yaml for step, row in along(ModelConfig, place))


def read(path: Path, name: str) -> tuple[ModelConfig, Document]:
    """The configuration in a file, and the lines of its parts. Raises ConfigError with every problem."""
    doc = parse(path, example="backend: onnx")
    return build(doc, name), doc


PREFIX: Final = "headrace."
_MODEL: Final = {str(row.yaml): row for row in rows(ModelConfig) if row.is_parameter}
_BATCHING: Final = {str(row.yaml): row for row in rows(DynamicBatching) if row.is_parameter}
_WHOLE: Final = {"cache": "response_cache", "instances": "instance_groups", "explain": "explain"}
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
        return build(Document(doc.file, fields), model)
    except ConfigError as error:
        raise ConfigError([_problem(doc, p.path, p.message, p.suggestion) for p in error.problems]) from None


def _problem(doc: Document, name: str, message: str, suggestion: str | None = None) -> Problem:
    return doc.problem(("parameters",), f"{PREFIX}{name}: {message}", suggestion)


def of(config: ModelConfig) -> dict[str, str]:
    """All parameters of the configuration's form in Triton."""
    written = {name: _written(row, config) for name, row in _MODEL.items() if getattr(config, row.name)}
    if (batching := config.dynamic_batching) is not None:
        written |= {name: _written(row, batching) for name, row in _BATCHING.items() if getattr(batching, row.name)}
    if config.response_cache.ttl:
        written["cache"] = json.dumps({"ttl": format_duration(config.response_cache.ttl)})
    if config.explain is not None:
        written["explain"] = json.dumps({str(row.yaml): _plain(row, config.explain) for row in rows(ExplainRules)})
    if any(replace(group, count=1, kind="auto", gpus=()) != InstanceGroup() for group in config.instance_groups):
        written["instances"] = json.dumps([asdict(group) for group in config.instance_groups])
    return {**config.parameters, **{PREFIX + name: text for name, text in written.items()}}


def _written(row: Row, owner: object) -> str:
    """A value as `model.yaml` has it, on one line."""
    value = _plain(row, owner)
    return value if isinstance(value, str) else json.dumps(value)


def _plain(row: Row, owner: object) -> Any:
    value: Any = getattr(owner, row.name)
    if row.at.unit:
        return format_duration(value) if row.at.unit == "seconds" else format_size(value)
    if row.nested is not None:
        return {str(inner.yaml): _plain(inner, value) for inner in rows(row.nested)}
    return dict(value) if isinstance(value, Mapping) else value
