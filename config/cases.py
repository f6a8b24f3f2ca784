"""Requests described in YAML or JSON: the input of `explain`, and the tests of a policy."""

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
"""The default time of a test's request, so that its result is the same on every day."""


def parse_moment(value: object) -> datetime:
    """Parse ``2026-03-02T10:30+01:00``; a time without an offset is UTC."""
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


class RequestConfig(Section):
    """The properties of a request that a policy may read. An absent field has its simplest value."""

    tenant: Name
    """Name of the client's tenant."""
    model: str = Field(min_length=1, max_length=256)
    """The requested name, with a version if the client names one."""
    key: Annotated[str, Field(max_length=256)] = ""
    """The key's id. A known key adds its roles, labels and scopes."""
    roles: tuple[AnyGlob, ...] = ()
    """Roles besides ``user``."""
    labels: dict[LabelName, str] = Field({})
    """The key's labels."""
    front: Front = "chat"
    """The operation."""
    header: dict[HeaderName, str] = Field({})
    """Headers of the request."""
    stream: bool = False
    """Whether the client requests a stream."""
    user: str | None = None
    """The end user of the request."""
    prompt_tokens: int | None = Field(None, ge=0)
    """The length of the prompt in tokens, in place of an estimate from the text."""
    max_tokens: int | None = Field(None, ge=0)
    """The requested maximum of completion tokens."""
    tools: bool = False
    """Whether the request offers tools."""
    json_schema: bool = False
    """Whether the response must match a JSON schema."""
    vision: bool = False
    """Whether a message contains an image."""
    batch: bool = False
    """Whether the request is a line of a batch: it has the priority and the price of batches."""
    at: Moment | None = None
    """The time of the request."""
    body: dict[str, JsonValue] = Field({})
    """Other fields of the body, such as ``{temperature: 1.5}``."""


class ExpectConfig(Section):
    """The expected result: at least one of these fields."""

    route: int | str | None = None
    """The index of the route in its model, from 0, or its name."""
    pool: Name | None = None
    """The first pool."""
    pools: tuple[Name, ...] | None = None
    """All pools, in the order of attempts."""
    arm: str | None = None
    """The arm of a split for the request's subject."""
    arms: dict[str, Percent] | None = None
    """The arms of a random split, with their shares."""
    sent: dict[str, JsonValue] | None = None
    """Fields that the upstream receives; ``null`` for a removed field."""
    guards: tuple[Name, ...] | None = None
    """The guards that examine it, in the order of the file; ``[]`` for none."""
    refused: str | None = None
    """The code of the error, such as ``model_not_found``."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        given = self.model_fields_set
        if not given:
            raise ValueError("expects nothing: give route, pool, pools, arm, arms, sent, guards or refused")
        if "refused" in given and len(given) > 1:
            raise ValueError("a request that is refused goes nowhere: give refused alone")
        return self


class CaseConfig(Section):
    """One request and its expected result."""

    name: str | None = None
    """The name of the test in a report."""
    request: RequestConfig
    """The request."""
    expect: ExpectConfig
    """The expected result."""


class CasesConfig(Section):
    """A file of tests."""

    tests: tuple[CaseConfig, ...] = Field(min_length=1)
    """The tests, which are independent of each other."""


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


def described_request(data: object) -> RequestConfig:
    """Validate a described request that is not from a file. Raises ConfigError, whose problems have no line."""
    doc = Document("", _tuples(data))
    try:
        return RequestConfig.model_validate(doc.data, strict=True)
    except ValidationError as error:
        problems = sentences.problems(doc, error, skip=(), root=RequestConfig)
        raise ConfigError([replace(problem, line=None) for problem in problems]) from None


def _tuples(value: object) -> object:
    """Convert lists to tuples, as the parser of files does."""
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
