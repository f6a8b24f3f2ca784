"""The base of every part of the file."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, GetJsonSchemaHandler, Tag, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Conflict(NamedTuple):
    """A field that has no effect beside others of its section, or that contradicts them."""

    place: tuple[str | int, ...]
    """Its place in the section."""
    message: str
    concerns_value: bool = False
    """Whether the value is wrong beside the others, rather than the field."""


class Section(BaseModel):
    """The base of every part of the file: frozen, and closed to unknown fields.

    The docstring under a field is its description in the JSON Schema and in docs/configuration.md, by
    `config.jsonschema`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def conflicts(self) -> Iterator[Conflict]:
        """The fields of this section that conflict. `config.checks.conflicts` reports them for a file."""
        yield from ()

    def has(self, field: str) -> bool:
        """Whether the file sets a field, other than to ``null``."""
        return field in self.model_fields_set and getattr(self, field) is not None

    def inert(self, message: str, *fields: str) -> Iterator[Conflict]:
        """A conflict for each of the fields that the file sets."""
        return (Conflict((field,), message) for field in fields if self.has(field))


class ShortSection(Section):
    """A section with a short form: a text alone is the value of one field."""

    short: ClassVar[str]
    """The field."""
    short_schema: ClassVar[JsonSchemaValue | None] = None
    """The JSON Schema of the short form; that of the field when None."""

    @model_validator(mode="before")
    @classmethod
    def _from_short(cls, data: Any) -> Any:
        return {cls.short: data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        value = cls.short_schema or handler.resolve_ref_schema(reference)["properties"][cls.short]
        return {"anyOf": [value, reference]}


# ── sections of which the field `kind` selects one, such as runtimes and guards ──────────────────────

S = TypeVar("S", bound=Section)
_NONE = "[no kind]"


def by_kind(sections: Iterable[type[S]]) -> dict[str, type[S]]:
    """The section of each kind."""
    return {get_args(section.model_fields["kind"].annotation)[0]: section for section in sections}


def any_of(kinds: Mapping[str, type[Section]], no_kind: type[Section]) -> Any:
    """The type of a field with any of the sections.

    `no_kind` is the section for a missing or unknown kind: it validates only `kind`, and so reports the valid kinds.
    """

    def tag(value: object) -> str:
        kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
        return f"[{kind}]" if isinstance(kind, str) and kind in kinds else _NONE

    forms = [Annotated[section, Tag(f"[{kind}]")] for kind, section in kinds.items()]
    return Annotated[reduce(or_, [*forms, Annotated[no_kind, Tag(_NONE)]]), Discriminator(tag), _RealKinds()]


class _RealKinds:
    """Restricts the JSON Schema to the real kinds."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        generated: dict[str, Any] = handler(schema)
        return {"oneOf": generated["oneOf"][:-1]}
