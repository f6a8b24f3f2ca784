"""Tools and tool choice of a chat in Gemini's form."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire import decoding
from adapters.wire.body import field
from adapters.wire.gemini.cache_points import CachePlace
from adapters.wire.gemini.generations import ModelGeneration
from adapters.wire.gemini.schemas import reduced
from adapters.wire.openai import bounds
from adapters.wire.openai.chat_tools import CHOICE, TOOL, TranslatedChoice, TranslatedFunction, TranslatedTool
from adapters.wire.prompt_cache import BEFORE, ttl_of

Object = dict[str, Any]

MAX_NAME = 64
"""Characters of a function's name in the older models; newer ones have 128."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


class _Kind(msgspec.Struct):
    type: str | None = None


_list = msgspec.json.Decoder(list[Raw] | None)
_all_functions = msgspec.json.Decoder(list[TranslatedTool] | None).decode
_kind = msgspec.json.Decoder(_Kind).decode
_parallel = msgspec.json.Decoder(bool | None)
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def own_name(name: str) -> str:
    """The name of a function in Gemini's alphabet, which begins with a letter or `_`."""
    if _NAME.fullmatch(name):
        return name
    short = bounds.tool_name(name, MAX_NAME - 1)
    if _NAME.fullmatch(short):
        return short
    return bounds.tool_name(f"_{name[: MAX_NAME - 12]} {name}", MAX_NAME)


class ClientNames:
    """The client's names of its functions, for Gemini's names of them."""

    def __init__(self, fields: Mapping[str, Raw]) -> None:
        """`fields` are those of the chat."""
        self._fields = fields

    def __call__(self, name: str) -> str:
        """The client's name."""
        if not bounds.may_be_shortened(name):
            return name
        tools = _any(self._fields.get("tools", b"null")) or ()
        names = [str(tool.get("function", {}).get("name", "")) for tool in tools]
        return next((own for own in names if own_name(own) == name), name)


def tools_of(
    fields: Fields, generation: ModelGeneration, ignored: IgnoredFields, places: list[CachePlace] | None = None
) -> Object:
    """The fields `tools` and `toolConfig`. Marks of caches are added to `places`. Raises `CallerError`."""
    declared, is_strict = list[Object](), False
    for tool in _functions(fields, ignored):
        declared.append(_declaration(tool.function, generation))
        is_strict = is_strict or bool(tool.function.strict)
        if tool.cache_control is not None and places is not None and (ttl := ttl_of(tool.cache_control)) is not None:
            places.append(CachePlace(BEFORE, 0, ttl))
    if field(fields, "parallel_tool_calls", _parallel) is False:
        ignored.ignore("parallel_tool_calls")
    chosen = field(fields, "tool_choice", CHOICE.reporting(ignored))
    if not declared:
        if chosen not in (None, "auto", "none"):
            raise CallerError("`tool_choice` demands a call, and there are no tools.", param="tool_choice")
        return {}
    config = _config(chosen, [one["name"] for one in declared], validates=is_strict and generation.json_schema)
    encoded: Object = {"tools": [{"functionDeclarations": declared}]}
    return encoded | ({"toolConfig": {"functionCallingConfig": config}} if config else {})


def _functions(fields: Fields, ignored: IgnoredFields) -> list[TranslatedTool]:
    """The functions. A tool of another type belongs to another provider: it is left out and reported."""
    tools = list[TranslatedTool]()
    if "tools" not in fields:
        return tools
    with suppress(*decoding.MALFORMED_JSON):
        return _all_functions(fields["tools"]) or tools  # most lists have functions alone
    given = field(fields, "tools", _list)
    for i, raw in enumerate(given or ()):
        try:
            kind = _kind(raw).type
            if kind not in (None, "function"):
                ignored.ignore(str(kind))
            else:
                tools.append(TOOL.reporting(ignored).decode(raw))
        except decoding.MALFORMED_JSON as error:
            raise CallerError(f"`tools[{i}]` is not valid: {error}.", param="tools") from None
    return tools


def _declaration(function: TranslatedFunction, generation: ModelGeneration) -> Object:
    """A function. Without parameters the field is left out: the API refuses an object without properties."""
    declared: Object = {"name": own_name(function.name)}
    if function.description is not None:
        declared["description"] = function.description
    given = function.parameters or {}
    if bytes(given.get("properties", b"{}")) == b"{}" and not given.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
        return declared
    if generation.json_schema:
        declared["parametersJsonSchema"] = given
    else:
        declared["parameters"] = reduced(_any(_encode(given)), "tools")
    return declared


def _config(chosen: Any, names: list[str], *, validates: bool) -> Object:
    if isinstance(chosen, TranslatedChoice):
        name = own_name(chosen.function.name)
        if name not in names:
            message = f"`tool_choice` demands {name}, which is not one of the tools that this model can have."
            raise CallerError(message, param="tool_choice")
        return {"mode": "ANY", "allowedFunctionNames": [name]}
    if chosen in (None, "auto"):
        return {"mode": "VALIDATED"} if validates else {"mode": "AUTO"} if chosen else {}
    return {"mode": _MODES[chosen]}
