"""Tool definitions and tool choice, between Anthropic's and OpenAI's form."""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire import decoding
from adapters.wire.body import field

Object = dict[str, Any]


class _Kind(msgspec.Struct):
    type: str | None = None
    name: str = ""


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    """`eager_input_streaming`, `input_examples` and `cache_control` help Anthropic's models only."""

    name: str
    input_schema: dict[str, Raw]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    allowed_callers: list[Literal["direct"]] | None = None
    cache_control: Any = None
    defer_loading: Literal[False] | None = None
    eager_input_streaming: bool | None = None
    input_examples: Any = None


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


_list = msgspec.json.Decoder(list[Raw] | None)
_kind = msgspec.json.Decoder(_Kind)
_tool = msgspec.json.Decoder(_Tool)
_choice = msgspec.json.Decoder(_Choice | None)
_NAMES = {"auto": "auto", "any": "required", "none": "none"}


def functions(native: dict[str, Raw]) -> list[Object]:
    """A chat's `tools` for those of a message. Raises `CallerError`."""
    return [_function(raw, i) for i, raw in enumerate(field(native, "tools", _list) or ())]


def _function(raw: Raw, i: int) -> Object:
    try:
        kind = _kind.decode(raw)
        if kind.type is not None and kind.type != "custom":
            message = f"The tool `{kind.name[:64]}` is of a type that only Anthropic's models know: `{kind.type[:64]}`."
            raise CallerError(message, param="tools")
        tool = _tool.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`tools[{i}]` is not valid: {error}.", param="tools") from None
    fields: Object = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        fields["description"] = tool.description
    if tool.strict is not None:
        fields["strict"] = tool.strict
    return {"type": "function", "function": fields}


def choice_fields(native: dict[str, Raw]) -> Object:
    """A chat's `tool_choice` and `parallel_tool_calls` for a message's `tool_choice`. Raises `CallerError`."""
    choice = field(native, "tool_choice", _choice)
    if choice is None:
        return {}
    if (choice.type == "tool") != (choice.name is not None):
        raise CallerError("`tool_choice` has a `name` if its type is `tool`, and only then.", param="tool_choice")
    fields: Object = {"tool_choice": _NAMES.get(choice.type)}
    if choice.type == "tool":
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    if choice.disable_parallel_tool_use is not None and choice.type != "none":
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return fields


# ── and back ──────────────────────────────────────────────────────────────────────────────────────────


class _Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    description: str | None = None
    parameters: dict[str, Raw] | None = None
    strict: bool | None = None


class _FunctionTool(msgspec.Struct, forbid_unknown_fields=True):
    function: _Function
    type: Literal["function"] = "function"
    cache_control: Any = None


class _Named(msgspec.Struct):
    name: str


class _Chosen(msgspec.Struct, forbid_unknown_fields=True):
    function: _Named
    type: Literal["function"] = "function"


_functions = msgspec.json.Decoder(list[_FunctionTool] | None)
_chosen = msgspec.json.Decoder(Literal["auto", "none", "required"] | _Chosen | None)
_bool = msgspec.json.Decoder(bool | None)
_WORDS = {"auto": "auto", "required": "any", "none": "none"}


def tools_of(fields: dict[str, Raw]) -> list[Object]:
    """A message's `tools` for those of a chat. Raises `CallerError`."""
    return [_tool_of(tool) for tool in field(fields, "tools", _functions) or ()]


def _tool_of(tool: _FunctionTool) -> Object:
    text = tool.function
    fields: Object = {"name": text.name, "input_schema": text.parameters or {"type": "object", "properties": {}}}
    optional = {"description": text.description, "strict": text.strict, "cache_control": tool.cache_control}
    return fields | {name: value for name, value in optional.items() if value is not None}


def choice_of(fields: dict[str, Raw]) -> Object:
    """A message's `tool_choice` for a chat's. Raises `CallerError`."""
    chosen = field(fields, "tool_choice", _chosen)
    parallel = field(fields, "parallel_tool_calls", _bool)
    if chosen is None and parallel is None:
        return {}
    encoded: Object = {"type": _WORDS[chosen or "auto"]} if not isinstance(chosen, _Chosen) else _named(chosen)
    if parallel is not None and encoded["type"] != "none":
        encoded["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": encoded}


def _named(chosen: _Chosen) -> Object:
    return {"type": "tool", "name": chosen.function.name}
