"""The formats in which models write tool calls, and the separation of the calls from the text, piece by piece.

The marks around a call, by the family of the chat template:

hermes    <tool_call>\\n{"name": …, "arguments": …}\\n</tool_call>, one after another: Hermes, Qwen 2.5 and 3, and
          models whose template does not support tools
tagged    <tool_call>\\n<function=…>\\n<parameter=…>\\n…\\n</parameter>\\n</function>\\n</tool_call>: Qwen 3-Coder, Qwen
          3.5, Nemotron 3 (tagged_call.py)
mistral   [TOOL_CALLS][{"name": …, "arguments": …}, …]
llama     {"name": …, "parameters": …}; …, perhaps after <|python_tag|>: Llama 3.1 to 3.3

A call's name is reported once it is complete, then its arguments in pieces. Text that only resembles a call is returned
as text.
"""

import json
import re
import secrets
import string
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from runtimes.llm.text import tagged_call
from runtimes.llm.text.tokenizer import overlap


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
    opens: str = "{"
    """What a call begins with."""

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
TAGGED = ToolFormat(
    name="tagged",
    trigger="<tool_call>",
    begins="\n",
    between="\n</tool_call>\n<tool_call>\n",
    closing="\n</tool_call>",
    arguments="",
    opens=tagged_call.OPENS,
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
    if "<tool_call>" in template and "<parameter=" in template:
        return TAGGED
    if "[TOOL_CALLS]" in template and "[ARGS]" not in template:
        return MISTRAL
    if '"parameters"' in template and ("<|python_tag|>" in template or "ipython" in template):
        return LLAMA
    return None


_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_NOTHING = msgspec.Raw(b"{}")
_call = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_name = msgspec.json.Decoder(str).decode
_SEPARATORS = " \t\r\n,;[]"


class AnswerText(NamedTuple):
    """A piece of the answer's text."""

    text: str


class CallBegun(NamedTuple):
    """A call of the function `name`, the `at`-th of the answer."""

    at: int
    id: str
    name: str


class CallArguments(NamedTuple):
    """A piece of the JSON text of a call's arguments."""

    at: int
    text: str


Part = AnswerText | CallBegun | CallArguments


class ToolParser:
    """Parses one answer."""

    def __init__(
        self,
        tool_format: ToolFormat,
        names: Collection[str],
        *,
        most: int | None = None,
        schemas: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """`names` are the available functions, `schemas` those of their arguments; calls beyond `most` are skipped."""
        self.num_calls = 0
        self._most = most
        self._format = tool_format
        self._names = names
        self._schemas = {name: schemas.get(name, {}) for name in names}
        self._held = ""
        self._before = ""
        """Buffered text that resembled the beginning of a call."""
        self._between = self._only_text = False
        self._call: _CallReader | _TaggedReader | None = None
        self._parts: list[Part] = []

    def push(self, text: str) -> list[Part]:
        """The parts that are final with this piece of the text."""
        self._held += text
        while self._held and self._step():
            pass
        return self._taken()

    def finish(self) -> list[Part]:
        """The buffered part: no more text comes."""
        call = self._call
        if call is not None and not call.begun:
            self._add_text(self._before + call.raw)
        elif call is None and (not self._between or self._before):
            self._add_text(self._before + self._held)
        self._held = self._before = ""
        return self._taken()

    def _taken(self) -> list[Part]:
        parts, self._parts = self._parts, []
        if self._most is None:
            return parts
        return [part for part in parts if isinstance(part, AnswerText) or part.at < self._most]

    def _add_text(self, text: str) -> None:
        if text:
            self._parts.append(AnswerText(text))

    def _step(self) -> bool:
        """Parse as much as possible of the buffer; whether there may be more."""
        if self._call is not None:
            return self._read(self._call)
        if self._between:
            return self._skip()
        return self._look() if self._format.trigger else self._look_at_beginning()

    def _look(self) -> bool:
        """Text before the first call."""
        text, trigger = self._held, self._format.trigger
        at = text.find(trigger)
        if at >= 0:
            self._add_text(text[:at].rstrip())
            self._before = text[len(text[:at].rstrip()) : at + len(trigger)]
            self._held, self._between = text[at + len(trigger) :], True
            return True
        sure = text[: len(text) - overlap(text, trigger)].rstrip()
        self._add_text(sure)
        self._held = text[len(sure) :]
        return False

    def _look_at_beginning(self) -> bool:
        """Without a mark, an answer has calls only if it begins with one."""
        text, prelude = self._held.lstrip(), self._format.prelude
        if not self._only_text:
            if prelude.startswith(text):
                return False
            if text.startswith((prelude, "{")):
                self._before, self._held = self._held[: -len(text)], text
                self._between = True
                return True
            self._only_text = True
        self._add_text(self._held)
        self._held = ""
        return False

    def _skip(self) -> bool:
        """Skip text between calls, or before the first."""
        text = self._held.lstrip(_SEPARATORS)
        for mark in self._format.marks:
            if text.startswith(mark):
                text = text[len(mark) :].lstrip(_SEPARATORS)
        if not self.num_calls:
            self._before += self._held[: len(self._held) - len(text)]
        self._held = text
        opens = self._format.opens
        if text.startswith(opens):
            if self._format is TAGGED:
                self._call = _TaggedReader(self._schemas, self._format, self.num_calls)
            else:
                self._call = _CallReader(self._names, self._format, self.num_calls)
            return True
        if not text or any(mark.startswith(text) for mark in (*self._format.marks, opens)):
            return False
        # Neither call nor mark: text, to which all of the buffer belongs.
        self._between, self._only_text = False, True
        if self._before:
            self._add_text(self._before)
            self._before = ""
        return bool(text)

    def _read(self, call: "_CallReader | _TaggedReader") -> bool:
        rest = call.push(self._held)
        if call.begun:
            self._before = ""
        self._parts += call.taken()
        self._held = ""
        if rest is None:
            return False
        self._call = None
        if call.begun:
            self.num_calls += 1
        else:
            self._add_text(self._before + call.raw)
            self._before, self._between, self._only_text = "", False, True
        self._held = rest
        return True


class _CallReader:
    """Parses one JSON object that may be a call.

    Its `raw` text is buffered until the object is recognized as a call.
    """

    def __init__(self, names: Collection[str], tool_format: ToolFormat, index: int) -> None:
        self.begun = False
        self.raw = ""
        self._names = names
        self._format = tool_format
        self._index = index
        self._depth = _Depth()
        self._parts: list[Part] = []
        self._seen = 0
        self._complete = False

    def taken(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def push(self, text: str) -> str | None:
        """Returns the text after the object, None while it has not ended."""
        if self.begun:
            return self._go_on(text)
        self.raw += text
        head = _HEAD.match(self.raw)
        if head is not None and (name := _string(head[1])) in self._names:
            self._begin(name)
            self._depth = _Depth(1)
            return self._go_on(self.raw[head.end() :])
        end = self._depth.end(self.raw[self._seen :], 0)
        if end is None:
            self._seen = len(self.raw)
            return None
        end += self._seen
        self.raw, rest = self.raw[:end], self.raw[end:]
        self._take_whole()
        return rest

    def _begin(self, name: str) -> None:
        self.begun = True
        self._parts.append(CallBegun(self._index, self._format.new_id(), name))

    def _go_on(self, text: str) -> str | None:
        if not self._complete:
            end = self._depth.end(text, 1)
            if piece := text if end is None else text[:end]:
                self._parts.append(CallArguments(self._index, piece))
            if end is None:
                return None
            self._complete, text = True, text[end:]
        end = self._depth.end(text, 0)
        return None if end is None else text[end:]

    def _take_whole(self) -> None:
        """Parse a complete object with its keys in an unusual order, which may be no call."""
        try:
            call = _call(self.raw)
            name = _name(call.get("name", _NOTHING))
            arguments = bytes(call.get("arguments", call.get("parameters", _NOTHING))).decode().strip()
            text = _name(msgspec.Raw(arguments.encode())) if arguments.startswith('"') else arguments
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        if name in self._names and arguments.startswith(('"', "{")):
            self._begin(name)
            self._parts.append(CallArguments(self._index, text))


class _TaggedReader:
    """Parses one call between tags, as `_CallReader` does one object."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]], tool_format: ToolFormat, index: int) -> None:
        self._call = tagged_call.TaggedCall(schemas)
        self._format = tool_format
        self._index = index
        self._parts: list[Part] = []
        self.begun = False

    @property
    def raw(self) -> str:
        return self._call.raw

    def taken(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def push(self, text: str) -> str | None:
        """Returns the text after the call, None while it has not ended."""
        arguments, rest = self._call.push(text)
        if self._call.name and not self.begun:
            self.begun = True
            self._parts.append(CallBegun(self._index, self._format.new_id(), self._call.name))
        if arguments:
            self._parts.append(CallArguments(self._index, arguments))
        return rest


class _Depth:
    """Tracks the nesting depth of JSON's braces and brackets in a text."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._quoted = self._escaped = False

    def end(self, text: str, level: int) -> int | None:
        """The index where the text returns to this level; None if it does not."""
        for at, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = character == "\\", character != '"'
            elif character == '"':
                self._quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == level:
                    return at + 1
        return None


def _string(written: str) -> str:
    try:
        return str(json.loads(written))
    except ValueError:
        return ""
