"""A client's `generationConfig`, tools and schemas, and their form in a chat."""

import re
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire.body import field
from adapters.wire.openai import bounds
from adapters.wire.openai.known_fields import DefinedFields

Object = dict[str, Any]


class _Thinking(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None

    @property
    def wish(self) -> Object | None:
        """Anthropic's field `thinking`; None without a wish that other servers know."""
        budget = self.thinking_budget
        if budget == 0:
            return {"type": "disabled"}
        if budget is not None and budget > 0:
            return {"type": "enabled", "budget_tokens": budget}
        level = (self.thinking_level or "").lower()
        if level == "high" or budget is not None or (self.include_thoughts and not level):
            return {"type": "adaptive"}
        return None


class NativeConfig(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | float | None = None
    candidate_count: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_logprobs: bool | None = None
    logprobs: int | None = None
    response_mime_type: str | None = None
    response_schema: Any = None
    response_json_schema: Any = None
    response_modalities: list[str] | None = None
    thinking_config: _Thinking | None = None
    speech_config: Any = None
    media_resolution: Any = None
    audio_timestamp: Any = None

    @property
    def others(self) -> list[str]:
        """The given fields without an equivalent, under their own names."""
        named = {
            "speechConfig": self.speech_config,
            "mediaResolution": self.media_resolution,
            "audioTimestamp": self.audio_timestamp,
        }
        return [name for name, value in named.items() if value is not None]

    @property
    def effort(self) -> str | None:
        """A chat's `reasoning_effort`. A high one is the default of many models, which refuse the field."""
        level = ((self.thinking_config and self.thinking_config.thinking_level) or "").lower()
        return {"minimal": "low", "low": "low", "medium": "medium"}.get(level)


class _Function(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    description: str | None = None
    parameters: Any = None
    parameters_json_schema: Any = None
    response: Any = None
    response_json_schema: Any = None
    behavior: Any = None


class _Tool(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    function_declarations: list[_Function] | None = None


class _Calling(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


class _ToolConfig(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    function_calling_config: _Calling | None = None


config_decoder = DefinedFields[NativeConfig | None](NativeConfig | None)
_tools = DefinedFields[list[_Tool] | None](list[_Tool] | None)
_tool_config = DefinedFields[_ToolConfig | None](_ToolConfig | None)
_MODES = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "ANY": "required"}


def tool_fields(native: Fields, ignored: IgnoredFields) -> Object:
    """A chat's `tools` and `tool_choice`. Raises `CallerError`."""
    given = field(native, "tools", _tools.reporting(ignored)) or []
    functions = [function for tool in given for function in tool.function_declarations or ()]
    if not functions:
        return {}
    chat: Object = {"tools": [_function(function) for function in functions]}
    config = field(native, "toolConfig", _tool_config.reporting(ignored))
    calling = (config and config.function_calling_config) or _Calling()
    mode = (calling.mode or "AUTO").upper()
    if mode not in _MODES:
        mode = "AUTO"
        ignored.ignore("toolConfig")
    names = [bounds.tool_name(name) for name in calling.allowed_function_names or ()]
    if missing := set(names) - {tool["function"]["name"] for tool in chat["tools"]}:
        message = f"`toolConfig` allows {min(missing)[:64]}, which `tools` does not declare."
        raise CallerError(message, param="toolConfig")
    if names and mode in ("ANY", "VALIDATED"):
        chat["tools"] = [tool for tool in chat["tools"] if tool["function"]["name"] in names]
    if mode == "ANY" and len(names) == 1:
        chat["tool_choice"] = {"type": "function", "function": {"name": names[0]}}
    elif mode != "AUTO":
        chat["tool_choice"] = _MODES[mode]
    return chat


def _function(function: _Function) -> Object:
    given = function.parameters_json_schema or function.parameters
    fields: Object = {"name": bounds.tool_name(function.name)}
    if function.description is not None:
        fields["description"] = function.description
    fields["parameters"] = schema_of(given) if given else {"type": "object", "properties": {}}
    return {"type": "function", "function": fields}


class FunctionNames:
    """The client's names of its functions, for the names in a chat."""

    def __init__(self, native: Fields) -> None:
        self._native = native

    def __call__(self, name: str) -> str:
        """The client's name."""
        if not bounds.may_be_shortened(name):
            return name
        tools = field(self._native, "tools", _tools.reporting(IgnoredFields())) or []
        names = [function.name for tool in tools for function in tool.function_declarations or ()]
        return next((own for own in names if bounds.tool_name(own) == name), name)


_DROPPED = frozenset({"propertyOrdering", "example", "nullable"})
_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})


def schema_of(given: Any) -> Any:
    """JSON Schema for a schema of Gemini's, whose types are in upper case. JSON Schema itself stays as it is."""
    if isinstance(given, list):
        return [schema_of(each) for each in given]
    if not isinstance(given, dict):
        return given
    schema: Object = {}
    for name, value in given.items():
        if name in _MAPS and isinstance(value, dict):
            schema[name] = {inner: schema_of(each) for inner, each in value.items()}
        elif name in ("items", "anyOf", "allOf", "oneOf", "prefixItems", "additionalProperties", "not"):
            schema[name] = schema_of(value)
        elif name == "type" and isinstance(value, str) and value.isupper():
            if value != "TYPE_UNSPECIFIED":
                schema[name] = value.lower()
        elif name.startswith(("min", "max")) and isinstance(value, str) and value.isdigit():
            schema[name] = int(value)  # 64-bit numbers of Google's JSON are texts
        elif name not in _DROPPED and not (name == "format" and value == "enum"):
            schema[name] = value
    if given.get("nullable") is True:
        kind = schema.get("type")
        if isinstance(kind, str):
            schema["type"] = [kind, "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
        elif "anyOf" in schema:
            schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema


def thinking_of(native: Fields) -> Fields:
    """The wish for thoughts in Anthropic's field `thinking`; empty without one. Raises `CallerError`."""
    raw = native.get("generationConfig")
    if raw is None or b"thinkingConfig" not in bytes(raw):
        return {}
    config = field(native, "generationConfig", config_decoder.reporting(IgnoredFields()))
    wish = config.thinking_config.wish if config is not None and config.thinking_config is not None else None
    return {} if wish is None else {"thinking": Raw(_encode(wish))}


def shows_thoughts(native: Fields) -> bool:
    """Whether the client asks for thoughts."""
    raw = bytes(native.get("generationConfig", b""))
    return b"includeThoughts" in raw and _SHOWN.search(raw) is not None


_SHOWN = re.compile(rb'"includeThoughts"\s*:\s*true')
_encode = msgspec.json.Encoder().encode
