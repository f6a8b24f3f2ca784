"""Requests written in YAML or JSON: what `explain` is asked, and the tests of a policy."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError, WithJsonSchema, model_validator

from config import sentences
from config.document import Document, parse
from config.problem import ConfigError
from config.schema.identity import LabelName
from config.schema.rewrite import JsonValue
from config.schema.section import Section
from config.schema.text import HeaderName, Name
from config.schema.units import Percent
from config.schema.when import AnyGlob, Front

MONDAY_NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
"""When a test's request comes that does not say so: the same result on every day."""


def parse_moment(value: object) -> datetime:
    """``2026-03-02T10:30+01:00``; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError("expected a moment such as 2026-03-02T10:30 (UTC) or 2026-03-02T10:30+01:00")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Moment = Annotated[
    datetime,
    PlainValidator(parse_moment),
    PlainSerializer(datetime.isoformat, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["2026-03-02T10:30+01:00"]}),
]


class AskedConfig(Section):
    """A request, as far as a policy may look at it. What is absent is as in the plainest request."""

    tenant: Name
    """Who asks."""
    model: str = Field(min_length=1, max_length=256)
    """As a client writes it, with a version where it names one."""
    key: Annotated[str, Field(max_length=256)] = ""
    """The key's id. That of a known key brings its roles, labels and scopes along."""
    roles: tuple[AnyGlob, ...] = ()
    """Roles besides ``user``."""
    labels: dict[LabelName, str] = Field({})
    """The key's labels."""
    front: Front = "chat"
    """What is asked for."""
    header: dict[HeaderName, str] = Field({})
    """Headers that come along."""
    stream: bool = False
    """Whether a stream is wanted."""
    user: str | None = None
    """The request's end user."""
    prompt_tokens: int | None = Field(None, ge=0)
    """The prompt's length, in place of that of the text."""
    max_tokens: int | None = Field(None, ge=0)
    """The longest answer asked for."""
    tools: bool = False
    """Whether it brings tools."""
    json_schema: bool = False
    """Whether the answer must fit a JSON schema."""
    vision: bool = False
    """Whether a message holds an image."""
    at: Moment | None = None
    """When it comes."""
    body: dict[str, JsonValue] = Field({})
    """Other fields of its body, such as ``{temperature: 1.5}``."""


class ExpectConfig(Section):
    """What must come of it. At least one of these."""

    route: int | str | None = None
    """The index of the route in its model, from 0, or its name."""
    pool: Name | None = None
    """The pool that is asked first."""
    pools: tuple[Name, ...] | None = None
    """All that may be asked, in order."""
    arm: str | None = None
    """The arm of a split that keeps this subject."""
    arms: dict[str, Percent] | None = None
    """The arms of a split that draws, with their shares."""
    sent: dict[str, JsonValue] | None = None
    """Fields as the upstream gets them; ``null`` for one that it does not get."""
    refused: str | None = None
    """The code of the refusal, such as ``model_not_found``."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        given = self.model_fields_set
        if not given:
            raise ValueError("expects nothing: give route, pool, pools, arm, arms, sent or refused")
        if "refused" in given and len(given) > 1:
            raise ValueError("a request that is refused goes nowhere: give refused alone")
        return self


class CaseConfig(Section):
    """One request and what must come of it."""

    name: str | None = None
    """Shown where it fails."""
    request: AskedConfig
    """What is asked."""
    expect: ExpectConfig
    """What must come of it."""


class CasesConfig(Section):
    """A file of tests."""

    tests: tuple[CaseConfig, ...] = Field(min_length=1)
    """Each by itself: none changes what the next one finds."""


@dataclass(frozen=True)
class Cases:
    """A file of tests, with the line of each."""

    file: str
    tests: tuple[tuple[int, CaseConfig], ...]


def load_cases(path: Path) -> Cases:
    """Read and check a file of tests. Raises ConfigError with every problem found."""
    doc = parse(path)
    problems = list(doc.problems)
    try:
        config = CasesConfig.model_validate(doc.data, strict=True)
    except ValidationError as error:
        problems += sentences.problems(doc, error, skip=(), root=CasesConfig)
        config = None
    if config is None or problems:
        raise ConfigError(problems)
    return Cases(doc.file, tuple((_line(doc, i), case) for i, case in enumerate(config.tests)))


def _line(doc: Document, index: int) -> int:
    return doc.line(("tests", index))


def asked(data: object) -> AskedConfig:
    """A request that was not read from a file. Raises ConfigError, whose problems have no line."""
    doc = Document("", _tuples(data))
    try:
        return AskedConfig.model_validate(doc.data, strict=True)
    except ValidationError as error:
        told = sentences.problems(doc, error, skip=(), root=AskedConfig)
        raise ConfigError([replace(problem, line=None) for problem in told]) from None


def _tuples(value: object) -> object:
    """Lists as the parser of files makes them."""
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
