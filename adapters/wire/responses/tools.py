"""Translates the tools of a Response into the functions of a chat, and the names of their calls back.

A chat has functions only. A custom tool is a function with one text, and the members of a namespace are functions whose
names begin with that of the namespace. Tools that the API's own servers run are left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire.openai import bounds
from adapters.wire.openai.known_fields import LeftOut

INPUT = "input"
"""The argument of a custom tool."""
DEFAULT_NAMESPACE = "functions"
"""Clients put tools without a namespace of their own here; a call without a namespace means this one."""
_NULL = Raw(b"null")

Object = dict[str, Any]


class _Format(msgspec.Struct):
    """The form of a custom tool's input: any text, or a grammar."""

    type: str | None = None
    syntax: str | None = None
    definition: str | None = None


class ResponseFunction(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    """A function. `namespace` is that of a loaded tool; `defer_loading` is a hint: all tools are loaded."""

    name: str
    description: str | None = None
    parameters: Raw = _NULL
    strict: bool | None = None
    namespace: str | None = None
    defer_loading: Any = None

    def function(self, name: str) -> Object:
        """The function of a chat."""
        function: Object = {"name": name}
        function |= {} if self.description is None else {"description": self.description}
        function |= {} if self.parameters == _NULL else {"parameters": self.parameters}
        return function | ({} if self.strict is None else {"strict": self.strict})


class ResponseCustomTool(msgspec.Struct, tag_field="type", tag="custom", forbid_unknown_fields=True):
    """A tool whose input is one text. A chat does not enforce its grammar: the model reads it."""

    name: str
    description: str | None = None
    format: _Format | None = None
    namespace: str | None = None
    defer_loading: Any = None

    def function(self, name: str) -> Object:
        """The function of a chat."""
        texts, grammar = [self.description] if self.description else [], self.format
        if grammar is not None and grammar.definition:
            texts.append(f"`{INPUT}` follows this grammar ({grammar.syntax}):\n{grammar.definition}")
        text = {"type": "string", "description": "The whole input of the tool, as plain text."}
        parameters = {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}
        return {"name": name, "description": "\n\n".join(texts), "parameters": parameters}


class Namespace(msgspec.Struct, tag_field="type", tag="namespace", forbid_unknown_fields=True):
    """Tools whose names belong together."""

    name: str
    description: str | None = None
    tools: list[ResponseFunction | ResponseCustomTool | LeftOut] = []


Tool = ResponseFunction | ResponseCustomTool | Namespace | LeftOut
"""A tool; `LeftOut` is one that the API's own servers run, or that nobody knows yet."""


class _Allowed(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None


class ToolChoice(msgspec.Struct):
    """A choice other than none, auto and required; `mode` and `tools` belong to `allowed_tools`."""

    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str | None = None
    tools: list[_Allowed] = []


class CallName(NamedTuple):
    """The name of a tool as a client knows it."""

    name: str
    namespace: str | None = None
    is_custom: bool = False

    @property
    def prefix(self) -> str:
        """The beginning of the ids of its calls."""
        return "ctc" if self.is_custom else "fc"


class ToolNames:
    """The tools of a request under their names in a chat: unique, of at most 64 characters, and always the same."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.functions: dict[str, ResponseFunction | ResponseCustomTool] = {}
        self._calls: dict[str, CallName] = {}
        self._names: dict[tuple[str, str], str] = {}
        for tool, namespace in _members(tools):
            own = _key(namespace, tool.name)
            name = chat_name(*own)
            if name in self.functions and self._names.get(own) != name:
                name = bounds.tool_name(".".join(own))  # no name of a function has a dot, so this becomes a hash
            self._names[own] = name
            self.functions[name] = tool
            self._calls[name] = CallName(tool.name, namespace, isinstance(tool, ResponseCustomTool))

    def in_chat(self, name: str, namespace: str | None = None) -> str:
        """The name in a chat, also for a tool that the request does not have."""
        own = _key(namespace, name)
        return self._names.get(own) or chat_name(*own)

    def of_call(self, name: str) -> CallName:
        """The tool of a call in a chat."""
        return self._calls.get(name) or CallName(name)


def _members(tools: Iterable[Tool]) -> Iterator[tuple[ResponseFunction | ResponseCustomTool, str | None]]:
    for tool in tools:
        if isinstance(tool, Namespace):
            yield from ((member, tool.name) for member in tool.tools if not isinstance(member, LeftOut))
        elif not isinstance(tool, LeftOut):
            yield tool, tool.namespace


def _key(namespace: str | None, name: str) -> tuple[str, str]:
    return namespace or DEFAULT_NAMESPACE, name


def chat_name(namespace: str, name: str) -> str:
    """The name of a tool in a chat, unless another tool has it."""
    return bounds.tool_name(name if namespace == DEFAULT_NAMESPACE else f"{namespace}__{name}")


def tool_fields(names: ToolNames, choice: str | ToolChoice | None, parallel: bool | None) -> Object:
    """The fields of a chat; servers refuse them without tools. Raises `CallerError`."""
    functions = names.functions
    if isinstance(choice, ToolChoice) and choice.type == "allowed_tools":
        allowed = {names.in_chat(tool.name, tool.namespace) for tool in choice.tools if tool.name}
        functions = {name: tool for name, tool in functions.items() if name in allowed}
        choice = choice.mode or "auto"
    tool_choice = _choice(names, choice)
    if not functions:
        if tool_choice not in (None, "none", "auto"):
            raise _unavailable("requires a tool, and there is none that the model's servers have")
        return {}
    fields: Object = {
        "tools": [{"type": "function", "function": tool.function(name)} for name, tool in functions.items()]
    }
    fields |= {} if tool_choice is None else {"tool_choice": tool_choice}
    return fields if parallel is None else {**fields, "parallel_tool_calls": parallel}


def _choice(names: ToolNames, choice: str | ToolChoice | None) -> str | Object | None:
    if isinstance(choice, ToolChoice):
        name = names.in_chat(choice.name or "", choice.namespace)
        if name not in names.functions:
            raise _unavailable(f"requires {(choice.name or choice.type)[:64]!r}, which the model's servers do not have")
        return {"type": "function", "function": {"name": name}}
    if choice not in (None, "none", "auto", "required"):
        raise CallerError("`tool_choice` must be none, auto, required, or name a tool.", param="tool_choice")
    return choice


def _unavailable(why: str) -> CallerError:
    return CallerError(f"`tool_choice` {why}.", param="tool_choice", code="unsupported_parameter")
