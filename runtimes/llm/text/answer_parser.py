"""Separates the text of an answer into thoughts, text and tool calls."""

from collections.abc import Iterable

from runtimes.llm.text.think_parser import ThinkParser, Thought
from runtimes.llm.text.tool_parser import AnswerText, CallArguments, CallBegun, ToolParser

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
