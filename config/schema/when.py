"""A route's ``when``: what a request must be like to go that way."""

from typing import Annotated, Literal, Self, get_args
from zoneinfo import ZoneInfo

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from config.schema.identity import LabelName
from config.schema.section import Section
from config.schema.text import Glob, HeaderName, Shape

COMPARISON = r"(<=|>=|<|>)"
AnyGlob = Annotated[str, Shape(r"[^\x00-\x1f\x7f]{1,128}", "a text or a glob: up to 128 characters on one line")]
"""For names that others chose: roles, labels and what stands in headers."""
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
Front = Literal["chat", "text_completion", "embeddings", "infer"]


def parse_zone(value: object) -> ZoneInfo:
    """A name of the time zone database, such as ``Europe/Berlin``; its rules are read once, here."""
    try:
        if isinstance(value, str):
            return ZoneInfo(value)
    except (OSError, ValueError, KeyError):  # unknown to this machine, or no name at all
        pass
    raise ValueError("expected a time zone that this machine knows, such as Europe/Berlin or UTC")


Zone = Annotated[
    ZoneInfo,
    PlainValidator(parse_zone),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["Europe/Berlin"]}),
]


class TimeConfig(Section):
    """When it is, by the clock on the wall somewhere. All given must hold."""

    between: Clock | None = None
    """Times of the day, the first included and the second not; over midnight where the second is the earlier."""
    days: tuple[Day, ...] | None = Field(None, min_length=1)
    """Days of the week; of a window over midnight, those on which it begins."""
    zone: Zone = ZoneInfo("UTC")
    """Whose clock, by its name in the time zone database, such as ``Europe/Berlin``."""

    @model_validator(mode="after")
    def _limited(self) -> Self:
        if self.between is None and len(set(self.days or get_args(Day))) == len(get_args(Day)):
            raise ValueError("leaves no moment out: give between, days or both")
        if self.between is not None:
            start, end = (part.strip() for part in self.between.split("-"))
            if start == end:
                raise ValueError("between begins where it ends: leave it out for the whole day")
        return self


class MatchConfig(Section):
    """All fields given must match; a list matches when any of its entries does."""

    tenant: tuple[Glob, ...] | None = None
    """Tenants' names."""
    role: tuple[AnyGlob, ...] | None = None
    """Roles of who asks, as keys and tokens give them."""
    key: tuple[KeyGlob, ...] | None = None
    """Keys' ids; ``jwt:ISSUER:SUBJECT`` for a token, ``cert:NAME`` for a certificate."""
    label: dict[LabelName, AnyGlob] | None = None
    """Label of the key to glob of its value. A key without the label does not match."""
    model: tuple[Glob, ...] | None = None
    """Names asked for, where the model has several: its own and its aliases, or all that its glob stands for."""
    version: tuple[VersionGlob, ...] | None = None
    """Versions asked for, as in ``chat@2``. A request that names none does not match."""
    front: tuple[Front, ...] | None = None
    """What is asked for, as the access log names it: ``chat``, ``text_completion``, ``embeddings`` or ``infer``."""
    header: dict[HeaderName, str] | None = None
    """Header name to glob of its value. An absent header does not match."""
    stream: bool | None = None
    """Whether the client asked for a stream."""
    prompt_tokens: TokenRange | None = None
    """The prompt's estimated length, such as ``>4000``."""
    max_tokens: TokenRange | None = None
    """The longest answer asked for, such as ``<=256``. A request that sets no bound does not match."""
    tools: bool | None = None
    """Whether the request brings tools that the model may call."""
    json_schema: bool | None = None
    """Whether the answer must fit a JSON schema (``response_format``)."""
    vision: bool | None = None
    """Whether a message holds an image."""
    cost: CostRange | None = None
    """What the request costs at most by the model's price, such as ``>0.01 usd``: its prompt, and the longest
    answer that it asks for or else 256 tokens."""
    time: TimeConfig | None = None
    """When it is."""
