"""The ``when`` of a route: conditions on its requests."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self, get_args
from zoneinfo import ZoneInfo

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from config.schema.identity import LabelName
from config.schema.section import Conflict, Section
from config.schema.text import Glob, HeaderName, Shape

COMPARISON = r"(<=|>=|<|>)"
AnyGlob = Annotated[str, Shape(r"[^\x00-\x1f\x7f]{1,128}", "a text or a glob: up to 128 characters on one line")]
"""Patterns for external names: roles, labels and values of headers."""
KeyGlob = Annotated[
    str, Shape(r"[A-Za-z0-9*?\[\]!._:/@|+~-]{1,128}", "a key's id or a glob: letters, digits and . _ : / @ | + ~ -")
]
Version = Annotated[
    str, Shape(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "a version: up to 64 letters, digits and . _ - (not first)")
]
VersionGlob = Annotated[
    str, Shape(r"[A-Za-z0-9*?\[\]!._-]{1,64}", "a version or a glob: letters, digits, . _ - and the wildcards")
]
TokenRange = Annotated[str, Shape(rf"{COMPARISON}\s*\d{{1,9}}", "a comparison such as >4000 or <=512")]
CostRange = Annotated[
    str, Shape(rf"{COMPARISON}\s*\d{{1,12}}(\.\d{{1,12}})?\s*[A-Za-z]{{3}}", "a comparison such as >0.01 usd")
]
Clock = Annotated[
    str,
    Shape(
        r"([01]\d|2[0-3]):[0-5]\d\s*-\s*(([01]\d|2[0-3]):[0-5]\d|24:00)",
        "two times of the day such as 09:00-18:00, or 22:00-06:00 for a night",
    ),
]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Front = Literal["chat", "text_completion", "embeddings", "rerank", "score", "classify", "infer", "explain"]


def parse_zone(value: object) -> ZoneInfo:
    """Load a time zone by its name in the time zone database, such as ``Europe/Berlin``, once."""
    try:
        if isinstance(value, str):
            return ZoneInfo(value)
    except (OSError, ValueError, KeyError):  # unknown on this machine, or not a name
        pass
    raise ValueError("expected a time zone that this machine knows, such as Europe/Berlin or UTC")


Zone = Annotated[
    ZoneInfo,
    PlainValidator(parse_zone),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["Europe/Berlin"]}),
]


class TimeConfig(Section):
    """A window of time. All given fields must match."""

    between: Clock | None = None
    """Two times of the day; the first is included, the second is not. The window crosses midnight if the second is
    earlier."""
    days: tuple[Day, ...] | None = Field(None, min_length=1)
    """Days of the week. A window that crosses midnight belongs to the day on which it begins."""
    zone: Zone = ZoneInfo("UTC")
    """Time zone, by its name in the time zone database, such as ``Europe/Berlin``."""

    @model_validator(mode="after")
    def _limited(self) -> Self:
        if self.between is None and len(set(self.days or get_args(Day))) == len(get_args(Day)):
            raise ValueError("excludes no time: give between, days or both")
        if self.between is not None:
            start, end = (part.strip() for part in self.between.split("-"))
            if start == end:
                raise ValueError("between begins where it ends: leave it out for the whole day")
        return self


class MatchConfig(Section):
    """Conditions on a request. All given fields must match; a list matches if any of its entries does."""

    tenant: tuple[Glob, ...] | None = None
    """Names of tenants."""
    role: tuple[AnyGlob, ...] | None = None
    """Roles of the client, from its key or token."""
    key: tuple[KeyGlob, ...] | None = None
    """Ids of keys; ``jwt:ISSUER:SUBJECT`` for a token, ``cert:NAME`` for a certificate."""
    label: dict[LabelName, AnyGlob] | None = None
    """Maps labels of the key to globs of their values. A key without the label does not match."""
    model: tuple[Glob, ...] | None = None
    """Requested names, for a model with several: its name and aliases, or all names that its glob matches."""
    version: tuple[VersionGlob, ...] | None = None
    """Requested versions, as in ``chat@2``. A request without a version does not match."""
    front: tuple[Front, ...] | None = None
    """Operation, as in the access log: ``chat``, ``text_completion``, ``embeddings``, ``rerank``, ``score``,
    ``classify``, ``infer`` or ``explain``."""
    header: dict[HeaderName, str] | None = None
    """Maps header names to globs of their values. An absent header does not match."""
    stream: bool | None = None
    """Whether the client requests a stream."""
    prompt_tokens: TokenRange | None = None
    """Estimated length of the prompt in tokens, such as ``>4000``."""
    max_tokens: TokenRange | None = None
    """Requested maximum of completion tokens, such as ``<=256``. A request without a maximum does not match."""
    tools: bool | None = None
    """Whether the request offers tools to the model."""
    json_schema: bool | None = None
    """Whether the response must match a JSON schema (``response_format``)."""
    vision: bool | None = None
    """Whether a message contains an image."""
    cost: CostRange | None = None
    """Highest cost of the request by the model's price, such as ``>0.01 usd``: its prompt, and its maximum of
    completion tokens or else 256."""
    time: TimeConfig | None = None
    """Window of time."""

    def conflicts(self) -> Iterator[Conflict]:
        if "user" in (self.role or ()):
            yield Conflict(("role",), "has no effect: every principal has the role user", concerns_value=True)
        first: dict[str, str] = {}
        for name in self.header or ():
            if name.lower() in first:
                yield Conflict(("header", name), f"is the header {first[name.lower()]} again: keep one")
            first.setdefault(name.lower(), name)
