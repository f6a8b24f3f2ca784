"""The ``guards`` of the file: what texts of requests and answers must not contain.

kinds.py   the sections, one for each kind
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from config.schema.guards.kinds import (
    MOST_WORDS,
    ExemptConfig,
    NamedGuardConfig,
    PatternGuardConfig,
    SecretsGuardConfig,
    Side,
    UrlsGuardConfig,
    WordsGuardConfig,
)  # fmt: skip

__all__ = [
    "KINDS", "MOST_WORDS", "AnyGuard", "ExemptConfig", "NamedGuardConfig", "PatternGuardConfig", "SecretsGuardConfig",
    "Side", "UrlsGuardConfig", "WordsGuardConfig",
]  # fmt: skip

_SECTIONS: tuple[type[NamedGuardConfig], ...] = (
    WordsGuardConfig,
    PatternGuardConfig,
    SecretsGuardConfig,
    UrlsGuardConfig,
)
KINDS: dict[str, type[NamedGuardConfig]] = {
    get_args(section.model_fields["kind"].annotation)[0]: section for section in _SECTIONS
}
"""The section of each kind."""

_NONE = "[no kind]"


class _NoKind(NamedGuardConfig):
    """The section for a missing or unknown kind: it validates only `kind`, and so reports the valid kinds."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["words", "pattern", "secrets", "urls"]


def _tag(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"[{kind}]" if isinstance(kind, str) and kind in KINDS else _NONE


class _Kinds:
    """Restricts the JSON Schema to the real kinds."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        generated: dict[str, Any] = handler(schema)
        return {"oneOf": generated["oneOf"][:-1]}


if TYPE_CHECKING:
    AnyGuard = NamedGuardConfig
else:
    _FORMS = [Annotated[section, Tag(f"[{kind}]")] for kind, section in KINDS.items()]
    AnyGuard = Annotated[reduce(or_, [*_FORMS, Annotated[_NoKind, Tag(_NONE)]]), Discriminator(_tag), _Kinds()]
    """Any guard's section."""
