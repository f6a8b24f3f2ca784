"""Separates the text of an answer into thoughts, text and tool calls.

White space around thoughts and text belongs to neither. The result does not depend on how the text was cut into pushes.
"""

from collections.abc import Iterable
from typing import NamedTuple

from runtimes.llm.text.tokenizer import overlap
from runtimes.llm.text.tool_parser import AnswerText, CallArguments, CallBegun, ToolParser


class ThinkFormat(NamedTuple):
    """The texts before and after a thought."""

    opens: str
    closes: str


FORMATS = (ThinkFormat("<think>", "</think>"), ThinkFormat("[THINK]", "[/THINK]"))
"""The formats of Qwen, DeepSeek, SmolLM, GLM and others, and of Mistral."""


def think_format_of(template: str) -> ThinkFormat | None:
    """The marks of the models with this chat template; None if it mentions no thoughts."""
    return next((one for one in FORMATS if one.opens in template or one.closes in template), None)


class Thought(NamedTuple):
    """A piece of a thought."""

    text: str


class ThinkParser:
    """Reads one answer. `is_open`: its prompt ends within a thought."""

    def __init__(self, think_format: ThinkFormat, *, is_open: bool) -> None:
        self._format = think_format
        self._is_open = is_open
        self._held = ""
        self._step = self._begin

    @property
    def thinks(self) -> bool:
        """Whether the text so far ends within a thought."""
        return self._step in (self._open, self._think) or (self._is_open and self._step == self._begin)

    def push(self, text: str) -> list[Thought | AnswerText]:
        """The parts that are final with this piece of the text."""
        self._held += text
        parts: list[Thought | AnswerText] = []
        before = None
        while self._held and before != (self._step, self._held):
            before = (self._step, self._held)
            self._step(parts)
        return parts

    def finish(self) -> list[Thought | AnswerText]:
        """The buffered part: no more text comes."""
        held, self._held = self._held, ""
        if self.thinks:
            return [Thought(held.rstrip())] if held.strip() else []
        if self._step == self._begin:
            return [AnswerText(held)] if held else []
        return []

    def _begin(self, parts: list[Thought | AnswerText]) -> None:
        """Whether the answer begins with a thought."""
        text = self._held.lstrip()
        if text.startswith(self._format.opens):
            self._held, self._step = text[len(self._format.opens) :], self._open
        elif not self._format.opens.startswith(text):
            self._step = self._open if self._is_open else self._answer

    def _open(self, parts: list[Thought | AnswerText]) -> None:
        self._held = self._held.lstrip()
        if self._held:
            self._step = self._think

    def _think(self, parts: list[Thought | AnswerText]) -> None:
        text, closes = self._held, self._format.closes
        end = text.find(closes)
        sure = text[: end if end >= 0 else len(text) - overlap(text, closes)].rstrip()
        if sure:
            parts.append(Thought(sure))
        if end >= 0:
            self._held, self._step = text[end + len(closes) :], self._between
        else:
            self._held = text[len(sure) :]

    def _between(self, parts: list[Thought | AnswerText]) -> None:
        self._held = self._held.lstrip()
        if self._held:
            self._step = self._answer

    def _answer(self, parts: list[Thought | AnswerText]) -> None:
        parts.append(AnswerText(self._held))
        self._held = ""


Part = Thought | AnswerText | CallBegun | CallArguments


class AnswerParser:
    """Parses one answer. With `hides_thoughts` no `Thought` is among its parts."""

    def __init__(
        self, think: ThinkParser | None = None, tools: ToolParser | None = None, *, hides_thoughts: bool = False
    ) -> None:
        self._think = think
        self._tools = tools
        self._hides_thoughts = hides_thoughts

    @property
    def num_calls(self) -> int:
        return 0 if self._tools is None else self._tools.num_calls

    def push(self, text: str) -> list[Part]:
        """The parts that are final with this piece of the text."""
        return self._called(self._think.push(text) if self._think is not None else [AnswerText(text)])

    def finish(self) -> list[Part]:
        """The buffered parts: no more text comes."""
        parts = self._called(self._think.finish()) if self._think is not None else []
        return parts + ([] if self._tools is None else [*self._tools.finish()])

    def _called(self, parts: Iterable[Thought | AnswerText]) -> list[Part]:
        result: list[Part] = []
        for part in parts:
            if isinstance(part, Thought):
                result += [] if self._hides_thoughts else [part]
            elif self._tools is not None:
                result += self._tools.push(part.text)
            elif part.text:
                result.append(part)
        return result
