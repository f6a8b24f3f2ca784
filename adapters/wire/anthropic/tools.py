"""Tool definitions and tool choice, between Anthropic's and OpenAI's form."""

from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.wire import decoding
from adapters.wire.body import field
from adapters.wire.openai import bounds
from adapters.wire.openai.chat_tools import CHOICE, TOOL, TranslatedChoice, TranslatedTool
from adapters.wire.openai.known_fields import DefinedFields

MAX_NAME = 128
"""Characters of a tool's name in Anthropic's API."""

Object = dict[str, Any]
T = TypeVar("T")


class _OfFunction(msgspec.Struct):
    name: str | None = None


class _Kind(msgspec.Struct):
    """A tool in either form."""

    type: str | None = None
    name: str | None = None
    function: _OfFunction | None = None


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    input_schema: dict[str, Raw]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    cache_control: Any = None


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


_list = msgspec.json.Decoder(list[Raw] | None)
_kind = msgspec.json.Decoder(_Kind)
_tool = DefinedFields[_Tool](_Tool)
_choice = DefinedFields[_Choice | None](_Choice | None)
_NAMES = {"auto": "auto", "any": "required", "none": "none"}


def functions(native: dict[str, Raw], ignored: IgnoredFields) -> list[Object]:
    """A chat's `tools` for those of a message. Raises `CallerError`."""
    return [_function(tool) for tool in _tools(native, ("custom",), _tool, ignored)]


def _tools(
    fields: dict[str, Raw], kinds: tuple[str, ...], decoder: DefinedFields[T], ignored: IgnoredFields
) -> list[T]:
    """The tools that the client runs. A tool of another type belongs to its own servers and models: it is left out, and
    reported by its type. Raises `CallerError`."""
    tools = list[T]()
    given = field(fields, "tools", _list)
    for i, raw in enumerate(given or ()):
        try:
            kind = _kind.decode(raw).type
            if kind is None or kind in kinds:
                tools.append(decoder.reporting(ignored).decode(raw))
            else:
                ignored.ignore(kind)
        except decoding.MALFORMED_JSON as error:
            raise CallerError(f"`tools[{i}]` is not valid: {error}.", param="tools") from None
    return tools


def _function(tool: _Tool) -> Object:
    fields: Object = {"name": bounds.tool_name(tool.name), "parameters": tool.input_schema}
    if tool.description is not None:
        fields["description"] = tool.description
    if tool.strict is not None:
        fields["strict"] = tool.strict
    return {"type": "function", "function": fields}


def choice_fields(native: dict[str, Raw], tools: list[Object], ignored: IgnoredFields) -> Object:
    """A chat's `tool_choice` and `parallel_tool_calls` for a message's `tool_choice`. `tools` are the chat's. Raises
    `CallerError`."""
    choice = field(native, "tool_choice", _choice.reporting(ignored))
    if choice is None:
        return {}
    if (choice.type == "tool") != (choice.name is not None):
        raise CallerError("`tool_choice` has a `name` if its type is `tool`, and only then.", param="tool_choice")
    fields: Object = {"tool_choice": _NAMES.get(choice.type)}
    if choice.type == "tool":
        name = bounds.tool_name(choice.name or "")
        if all(tool["function"]["name"] != name for tool in tools):
            message = f"`tool_choice` demands {name}, which is not one of the tools that this model can have."
            raise CallerError(message, param="tool_choice")
        fields["tool_choice"] = {"type": "function", "function": {"name": name}}
    if choice.disable_parallel_tool_use is not None and choice.type != "none":
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return fields


# ── and back ──────────────────────────────────────────────────────────────────────────────────────────


_bool = msgspec.json.Decoder(bool | None)
_WORDS = {"auto": "auto", "required": "any", "none": "none"}


def tools_of(fields: dict[str, Raw], ignored: IgnoredFields) -> list[Object]:
    """A message's `tools` for those of a chat. Raises `CallerError`."""
    return [_tool_of(tool) for tool in _tools(fields, ("function",), TOOL, ignored)]


def _tool_of(tool: TranslatedTool) -> Object:
    text = tool.function
    schema: Object = {"type": "object", **(text.parameters or {"properties": {}})}
    fields: Object = {"name": bounds.tool_name(text.name, MAX_NAME), "input_schema": schema}
    optional = {"description": text.description, "strict": text.strict, "cache_control": tool.cache_control}
    return fields | {name: value for name, value in optional.items() if value is not None}


def choice_of(fields: dict[str, Raw], ignored: IgnoredFields) -> Object:
    """A message's `tool_choice` for a chat's. Raises `CallerError`."""
    chosen = field(fields, "tool_choice", CHOICE.reporting(ignored))
    parallel = field(fields, "parallel_tool_calls", _bool)
    if chosen is None and parallel is None:
        return {}
    encoded: Object = {"type": _WORDS[chosen or "auto"]} if not isinstance(chosen, TranslatedChoice) else _named(chosen)
    if parallel is not None and encoded["type"] != "none":
        encoded["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": encoded}


def _named(chosen: TranslatedChoice) -> Object:
    return {"type": "tool", "name": bounds.tool_name(chosen.function.name, MAX_NAME)}


class OwnNames:
    """The client's names of its tools, for the names that a server of the other protocol has received."""

    def __init__(self, fields: Mapping[str, Raw], *most: int) -> None:
        """`fields` are the client's. The server's names have `most` characters; of several bounds, one after another
        was applied."""
        self._fields = fields
        self._most = most

    def __call__(self, name: str) -> str:
        """The client's name of a tool."""
        if not bounds.may_be_shortened(name):
            return name
        kinds = [_kind.decode(raw) for raw in field(dict(self._fields), "tools", _list) or ()]
        names = [kind.name or (kind.function and kind.function.name) or "" for kind in kinds]
        return next((own for own in names if reduce(bounds.tool_name, self._most, own) == name), name)
