"""A YAML file → Config, or every problem.

The text is parsed and references out of the file are resolved. Then three checks run on the same data: the schema
(each section), ``references`` (names) and ``combinations`` (fields that conflict).

`pack` encodes a configuration for another process of the gateway, with its references replaced. The other process does
not read the file, which may have changed, and does not need the environment's secrets.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from config import external, sentences
from config.checks import advice, combinations, metering, references
from config.checks.pipelines.types import unchecked
from config.code import with_code
from config.document import Document, Node, parse, parse_text
from config.external import Resolved
from config.place import Place
from config.problem import ConfigError, Problem
from config.schema.config import TEXT, Config

__all__ = ["ConfigError", "Problem", "Reading", "load", "read", "read_sections"]


@dataclass(frozen=True)
class Reading:
    """The result of reading a file: either ``config`` or ``problems``."""

    config: Config | None
    problems: tuple[Problem, ...]
    sources: frozenset[Path]
    """Every file that the configuration depends on: itself, secrets and PEM files, even if they do not exist."""
    warnings: tuple[Problem, ...] = ()
    """Warnings about a file without problems: settings that are probably a mistake."""
    unchecked: tuple[Problem, ...] = ()
    """Parts of a file without problems that cannot be checked, because the file does not declare their types."""
    forgotten: tuple[Problem, ...] = ()
    """Limits of a file without problems that a restart, or a second gateway, forgets."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The values from the environment, each with its ``${NAME}``."""


def load(path: Path) -> Config:
    """The configuration in a file. Raises ConfigError with every problem found."""
    reading = read(path)
    if reading.config is None:
        raise ConfigError(reading.problems)
    return reading.config


def read_sections(path: Path) -> Reading:
    """Like ``read``, without the checks between sections, some of which need the extras of the configuration."""
    try:
        doc = parse(path)
    except ConfigError as error:
        return Reading(None, tuple(error.problems), frozenset({path}))
    resolved = external.resolve(doc, path.parent)
    config, complaints = _validate(doc, resolved)
    return Reading(config, _ordered([*doc.problems, *complaints], resolved), frozenset({path, *resolved.sources}))


def read(path: Path, text: str | None = None, trusted: Sequence[str] | None = None) -> Reading:
    """Like ``load``, without raising, and with the files that it depends on. Blocks for the disk.

    ``text`` replaces the content of the file. It is a draft if there are ``trusted`` texts: then only their uses of
    environment variables are permitted, and ``${NAME}`` for a secret.
    """
    try:
        doc = parse(path) if text is None else parse_text(text, str(path))
    except ConfigError as error:
        return Reading(None, tuple(error.problems), frozenset({path}))
    resolved = external.resolve(doc, path.parent, None if trusted is None else _uses(doc, trusted))
    config, complaints = _validate(doc, resolved)
    root = Node(resolved.data)
    problems = [*doc.problems, *resolved.problems, *complaints]
    problems += [*references.check(doc, root), *combinations.check(doc, root)]
    sources = frozenset({path, *resolved.sources})
    if config is None or problems:
        return Reading(None, _ordered(problems, resolved), sources, variables=resolved.variables)
    warnings, untyped = _ordered(advice.advise(doc, root), resolved), _ordered(unchecked(doc, root), resolved)
    config = config.written_at(_lines(doc, root), resolved.data, doc.text)
    forgotten = _ordered(metering.forgotten(doc, root), resolved)
    return Reading(config, (), sources, warnings, untyped, forgotten, resolved.variables)


def _uses(doc: Document, trusted: Sequence[str]) -> frozenset[external.Use]:
    """The uses of environment variables in trusted texts; none if the document itself has none."""
    permitted: set[external.Use] = set()
    for text in trusted if "${" in doc.text else ():
        with suppress(ConfigError):
            permitted.update(external.uses(parse_text(text, doc.file).data))
    return frozenset(permitted)


def _ordered(problems: Iterable[Problem], resolved: Resolved) -> tuple[Problem, ...]:
    """The problems in the order of the file, without values from the environment."""
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    return tuple(problem.hiding(resolved.variables) for problem in ordered) if resolved.variables else tuple(ordered)


def _lines(doc: Document, root: Node) -> dict[Place, int]:
    """The line of each route and of each part of a pipeline; those of the lines of literal blocks in pipelines."""
    lines = {route.place: doc.line(route.place) for model in root["models"] for route in model["routes"]}
    for place, written in doc.lines.items():
        if place[2:3] == ("pipeline",):
            lines[place] = doc.line(place)
            if written.text is not None:
                text = str(doc.value(place)).splitlines()
                lines |= {(*place, TEXT, index): written.text + index - 1 for index in range(1, len(text) + 1)}
    return lines


def _validate(doc: Document, resolved: Resolved) -> tuple[Config | None, list[Problem]]:
    """Validate strictly: ``"256"`` is not a number and ``yes`` is not a boolean."""
    try:
        return with_code(Config.model_validate(resolved.data, strict=True)), []
    except ValidationError as error:
        return None, list(sentences.problems(doc, error, skip=resolved.failed))


def pack(config: Config) -> str:
    """Encode a loaded configuration as text. The text contains secrets."""
    assert config._source is not None, "only a configuration that was loaded from a file can be handed over"
    return json.dumps({"source": config._source, "lines": list(config._lines.items()), "text": config.text})


def unpack(text: str) -> Config:
    """Decode a configuration. It is validated again, as the other process may be a newer version.

    Raises pydantic's ``ValidationError``, a ``ValueError``.
    """
    packed = json.loads(text)
    source = _as_loaded(packed["source"])
    lines = {tuple(place): line for place, line in packed["lines"]}
    return with_code(Config.model_validate(source, strict=True)).written_at(lines, source, packed["text"])


def _as_loaded(value: object) -> object:
    """Convert lists to tuples, as in a document."""
    if isinstance(value, list):
        return tuple(_as_loaded(item) for item in value)
    return {name: _as_loaded(item) for name, item in value.items()} if isinstance(value, dict) else value
