"""The formats in which models write tool calls: the marks around a call, by the family of the chat template.

hermes    <tool_call>\\n{"name": …, "arguments": …}\\n</tool_call>, one after another: Hermes, Qwen 2.5 and 3, and
          models whose template does not support tools
mistral   [TOOL_CALLS][{"name": …, "arguments": …}, …]
llama     {"name": …, "parameters": …}; …, perhaps after <|python_tag|>: Llama 3.1 to 3.3
"""

import json
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtimes.llm.grammar.constraint import Grammar
from runtimes.llm.grammar.json_schema import json_text
from runtimes.llm.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that a model may call. With `strict` its arguments must match its whole schema."""

    name: str
    parameters: dict[str, Any]
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The marks: `trigger` and `begins` stand before the first call, `between` between two, `closing` after the last.

    Where there is no `trigger` only the text itself shows that it is a call; `prelude` may stand before that.
    """

    name: str
    trigger: str
    begins: str
    between: str
    closing: str
    arguments: str
    prelude: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """White space between calls, which is not text."""
        return tuple(mark for mark in (self.trigger, self.prelude, self.closing.strip()) if mark)

    def new_id(self) -> str:
        if self.name == "mistral":  # its template takes no other
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
        return f"call_{secrets.token_hex(12)}"


HERMES = ToolFormat(
    name="hermes",
    trigger="<tool_call>",
    begins="\n",
    between="\n</tool_call>\n<tool_call>\n",
    closing="\n</tool_call>",
    arguments="arguments",
)
MISTRAL = ToolFormat(
    name="mistral", trigger="[TOOL_CALLS]", begins="[", between=", ", closing="]", arguments="arguments"
)
LLAMA = ToolFormat(
    name="llama",
    trigger="",
    begins="",
    between="; ",
    closing="",
    arguments="parameters",
    prelude="<|python_tag|>",
)


def format_of(template: str) -> ToolFormat | None:
    """The format of the models with this chat template; None if it has no tools, or an unsupported format."""
    if "<tool_call>" in template and "<function=" not in template:
        return HERMES
    if "[TOOL_CALLS]" in template and "[ARGS]" not in template:
        return MISTRAL
    if '"parameters"' in template and ("<|python_tag|>" in template or "ipython" in template):
        return LLAMA
    return None


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
        head = f'{{"name": {json.dumps(function.name)}, "{tool_format.arguments}": '
        schema = json_text({"type": "object", **function.parameters}, "tools", strict=function.strict)
        rules.append(f'call_{i}: {_quoted(head)} %json {schema} "}}"')
    return Grammar("lark", "\n".join(rules), "tools", after=tool_format.trigger if after_text else "")


def _quoted(text: str) -> str:
    return json.dumps(text) if text else ""
