"""The tools of a request: the functions that a model may call, and whether a call is required."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.grammar.constraint import Grammar
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.text.tool_formats import ToolFormat, ToolFunction, calls_grammar
from runtimes.llm.text.tool_parser import ToolParser

MAX_TOOLS = 128
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class FunctionTool(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`parameters` is a JSON schema of an object; without it there are no arguments."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
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
        return ToolParser(tool_format, names, most=None if self.parallel else 1)


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
            message = f"`tool_choice` names {choice.function.name[:64]}, which `tools` does not have."
            raise CallerError(message, param="tool_choice")
    one = isinstance(choice, ChosenTool) or parallel is False
    functions = tuple([tool.rules for tool in called])
    forced = choice == "required" or isinstance(choice, ChosenTool)
    return ToolUse([tool.for_template() for tool in tools], functions, forced, not one)
