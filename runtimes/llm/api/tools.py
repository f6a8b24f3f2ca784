"""The tools of a request: the functions that a model may call, and whether a call is required."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.grammar.constraint import Grammar
from runtimes.llm.grammar.json_schema import json_text
from runtimes.llm.grammar.tagged_rules import tagged_rules
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.text.tool_parser import TAGGED, ToolFormat, ToolParser

MAX_TOOLS = 1024
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that a model may call. With `strict` its arguments must match its whole schema."""

    name: str
    parameters: dict[str, Any]
    strict: bool = False


class FunctionTool(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`parameters` is a JSON schema of an object; without it there are no arguments."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,256}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """One of `tools`."""

    type: Literal["function"]
    function: FunctionTool

    def for_template(self) -> dict[str, Any]:
        function = self.function
        declaration: dict[str, Any] = {"name": function.name}
        if function.description is not None:
            declaration["description"] = function.description
        return {"type": "function", "function": declaration | {"parameters": function.parameters or _NO_PARAMETERS}}

    @property
    def rules(self) -> ToolFunction:
        function = self.function
        return ToolFunction(function.name, function.parameters or _NO_PARAMETERS, function.strict or False)


class ChosenFunction(msgspec.Struct, forbid_unknown_fields=True):
    """A function by its name."""

    name: str


class ChosenTool(msgspec.Struct, forbid_unknown_fields=True):
    """The function that must be called."""

    type: Literal["function"]
    function: ChosenFunction


ToolChoice = Literal["none", "auto", "required"] | ChosenTool


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Tools that may be called, and with `forced` must be: at least one, and if not `parallel` at most one."""

    declarations: list[dict[str, Any]]
    """The tools in the form that the chat template receives."""
    functions: tuple[ToolFunction, ...]
    forced: bool
    parallel: bool

    def grammar(self, tool_format: ToolFormat, tokenizer: Tokenizer, answer: Grammar | None) -> Grammar | None:
        """The grammar of an answer, calls and text; None without constraints. `answer` constrains the text."""
        if self.forced:
            return calls_grammar(tool_format, self.functions, tokenizer, parallel=self.parallel)
        if answer is not None:
            if answer.kind != "json_schema":
                message = f"`{answer.param}` of this kind excludes `tools` with `tool_choice` auto."
                raise CallerError(message, param=answer.param)
            return calls_grammar(tool_format, self.functions, tokenizer, parallel=self.parallel, answer=answer)
        if not tool_format.trigger:  # no mark separates text from calls: only the whole answer shows which it is
            return None
        return calls_grammar(tool_format, self.functions, tokenizer, parallel=self.parallel, after_text=True)

    def parser(self, tool_format: ToolFormat) -> ToolParser:
        names = frozenset(function.name for function in self.functions)
        schemas = {function.name: function.parameters for function in self.functions}
        return ToolParser(tool_format, names, most=None if self.parallel else 1, schemas=schemas)


def tool_use(tools: Sequence[Tool] | None, choice: ToolChoice | None, parallel: bool | None) -> ToolUse | None:
    """The tools; None if no call is allowed. Raises CallerError."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise CallerError("`tool_choice` requires a call, but `tools` is empty.", param="tool_choice")
        return None
    names = [tool.function.name for tool in tools]
    if twice := {name for name in names if names.count(name) > 1}:
        raise CallerError(f"`tools` has two functions of the name {min(twice)}.", param="tools")
    if choice == "none":
        return None
    called = list(tools)
    if isinstance(choice, ChosenTool):
        called = [tool for tool in tools if tool.function.name == choice.function.name]
        if not called:
            message = f"`tool_choice` names {choice.function.name[:256]}, which `tools` does not have."
            raise CallerError(message, param="tool_choice")
    one = isinstance(choice, ChosenTool) or parallel is False
    functions = tuple([tool.rules for tool in called])
    forced = choice == "required" or isinstance(choice, ChosenTool)
    return ToolUse([tool.for_template() for tool in tools], functions, forced, not one)


def calls_grammar(
    tool_format: ToolFormat,
    functions: Sequence[ToolFunction],
    tokenizer: Tokenizer,
    *,
    parallel: bool,
    answer: Grammar | None = None,
    after_text: bool = False,
) -> Grammar:
    """A grammar of calls of these functions with arguments of their schemas: at least one, and if not `parallel`
    exactly one.

    With an `answer` its JSON is allowed instead; with `after_text`, any text may precede the calls, or stand alone.
    """
    control = tokenizer.special_tokens.get(tool_format.trigger)
    trigger = _quoted(tool_format.trigger) if control is None else f"<[{control}]>"

    def spelled(text: str) -> str:
        """As Lark: a control token is not text."""
        before, mark, after = text.partition(tool_format.trigger) if tool_format.trigger else (text, "", "")
        return f"{_quoted(before)} {trigger if mark else ''} {_quoted(after)}"

    more = f"({spelled(tool_format.between)} call)*" if parallel else ""
    calls = f"{_quoted(tool_format.begins)} call {more} {_quoted(tool_format.closing)}"
    rules = ["%llguidance {}"]
    if after_text:
        rules += [f"start: {calls}"]
    elif answer is not None:
        rules += [f"start: {trigger} {calls} | answer", f"answer: %json {answer.text}"]
    else:
        rules += [f"start: {trigger} {calls}"]
    rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(functions))))
    for i, function in enumerate(functions):
        if tool_format is TAGGED:
            rules += tagged_rules(f"call_{i}", function.name, function.parameters, strict=function.strict)
            continue
        head = f'{{"name": {json.dumps(function.name)}, "{tool_format.arguments}": '
        schema = json_text({"type": "object", **function.parameters}, "tools", strict=function.strict)
        rules.append(f'call_{i}: {_quoted(head)} %json {schema} "}}"')
    return Grammar("lark", "\n".join(rules), "tools", after=tool_format.trigger if after_text else "")


def _quoted(text: str) -> str:
    return json.dumps(text) if text else ""
