"""A chat's tools and its choice of them, as the translations into other protocols read them."""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.wire.openai.known_fields import DefinedFields


class TranslatedFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    description: str | None = None
    parameters: dict[str, Raw] | None = None
    strict: bool | None = None


class TranslatedTool(msgspec.Struct, forbid_unknown_fields=True):
    function: TranslatedFunction
    type: Literal["function"] = "function"
    cache_control: Any = None


class FunctionName(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class TranslatedChoice(msgspec.Struct, forbid_unknown_fields=True):
    """The one function that the model must call."""

    function: FunctionName
    type: Literal["function"] = "function"


Choice = Literal["auto", "none", "required"] | TranslatedChoice | None
TOOL = DefinedFields[TranslatedTool](TranslatedTool)
CHOICE = DefinedFields[Choice](Choice)
