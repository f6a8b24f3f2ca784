"""Collects the messages of a chat from the items of a Response's input.

Items come in the order of events. A chat has one message for each step of the assistant, and directly after it the
results of its calls, whatever came between. Images of results follow in a user's message.
"""

from typing import Any

from msgspec import Raw

from adapters.wire.openai import bounds
from adapters.wire.openai.history import complete_thoughts
from adapters.wire.responses.parts import Part, as_parts

Message = dict[str, Any]

_CONTENT = ("content", "refusal", "tool_calls")


class _Step:
    """A message, the results of its calls, and their images and files."""

    __slots__ = ("files", "is_old", "message", "results")

    def __init__(self, message: Message, *, is_old: bool) -> None:
        self.message = message
        self.is_old = is_old
        self.results: list[Message] = []
        self.files: list[Part] = []

    def finished(self, extras: dict[str, Raw]) -> list[Message]:
        """The messages as a server expects them; none for one that says nothing."""
        message = self.message
        if message["role"] != "assistant":
            return [message]
        if self.is_old and "tool_calls" not in message:
            message.pop("reasoning_content", None)
        if all(message.get(name) is None for name in _CONTENT):
            return []
        for call in message.get("tool_calls", ()):
            if (extra := extras.get(call["id"])) is not None:
                call["extra_content"] = extra
        message.setdefault("content", None)  # servers require an explicit null
        return [message, *self.results, *([{"role": "user", "content": self.files}] if self.files else ())]


class ChatMessages:
    """The messages so far."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._open: _Step | None = None
        """The assistant's message, while it can take further parts."""
        self._waiting: dict[str, _Step] = {}
        """The message of each call without a result, by the call's id."""
        self._extras: dict[str, Raw] = {}
        self.is_old = False
        """Whether a question follows. Servers use no thoughts from before it, except those that led to calls."""

    def add(self, role: str, content: str | list[Part]) -> None:
        """Append a message that is not the assistant's."""
        self._open = None
        if not isinstance(content, str) and any(part["type"] != "text" for part in content):
            role = "user"  # the only one with images and files
        self._steps.append(_Step({"role": role, "content": content}, is_old=self.is_old))

    def answer(self, content: str | list[Part] | None, refusal: str | None) -> None:
        """Append a text of the assistant."""
        message = self._assistant("content").message
        message["content"] = content
        if refusal is not None:
            message["refusal"] = refusal

    def think(self, text: str) -> None:
        """Append a thought."""
        self._assistant("reasoning_content").message["reasoning_content"] = text

    def sign(self, call_id: str, extra: Raw) -> None:
        """What a server demands back with one of its calls."""
        self._extras[bounds.call_id(call_id)] = extra

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """Append a call of the assistant."""
        step, call_id = self._assistant(), bounds.call_id(call_id)
        function = {"name": name, "arguments": arguments}
        calls = step.message.setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})
        self._waiting[call_id] = step

    def result(self, call_id: str | None, content: str | list[Part], files: list[Part]) -> None:
        """Place the result of a call. One without its call is a text of the user."""
        call_id = bounds.call_id(call_id or "")
        step = self._waiting.pop(call_id, None)
        if step is None:
            self.add("user", [*as_parts(content), *files] if files else content)
            return
        self._open = None
        step.results.append({"role": "tool", "tool_call_id": call_id, "content": content})
        step.files += files

    def messages(self) -> list[Message]:
        """All messages in the order of a chat. Those of one role in a row become one, because templates of some models
        refuse others."""
        messages = list[Message]()
        for step in self._steps:
            for message in step.finished(self._extras):
                if messages and messages[-1]["role"] == message["role"] in ("system", "user"):
                    messages[-1]["content"] = _together(messages[-1]["content"], message["content"])
                else:
                    messages.append(message)
        complete_thoughts(messages)
        return messages

    def _assistant(self, without: str = "") -> _Step:
        """The assistant's open message if it lacks this field; otherwise a new one."""
        if self._open is None or without in self._open.message:
            self._open = _Step({"role": "assistant"}, is_old=self.is_old)
            self._steps.append(self._open)
        return self._open


def _together(content: str | list[Part], more: str | list[Part]) -> str | list[Part]:
    """The contents of two messages. Two texts stay a text: not every server accepts a list."""
    if isinstance(content, str) and isinstance(more, str):
        return f"{content}\n\n{more}"
    return [*as_parts(content), *as_parts(more)]
