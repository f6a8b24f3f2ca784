"""What a chat template takes, as probes show it, and messages in that form.

A template may read a content as one text, as a list of parts, or as both. Some loop over parts only, and lose every
text without an error. Some have no system turns, or take thoughts as parts of their own. Each case is rendered once
with a word that no template has: it arrives, or it does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtimes.llm.text.tool_words import joined

Message = Mapping[str, Any]
"""`role`, `content` and perhaps `name`, `tool_calls`, `tool_call_id`. A content is a text, or a list of parts."""
_ONE, _OTHER = "qzvprobeone", "qzvprobetwo"
_CALL = {"id": "qzvprobe0", "type": "function", "function": {"name": "qzv", "arguments": {}}}
_USER = {"role": "user", "content": "x"}
_AROUND: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "user": ([], []),
    "system": ([], [_USER]),
    "assistant": ([_USER], []),
    "tool": ([_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}], []),
}
"""The turns before and after a probe of each role."""

Render = Callable[[list[dict[str, Any]]], str | None]


@dataclass(frozen=True, slots=True)
class TemplateFeatures:
    """`texts` and `parts` are the roles whose content may be a text, or a list of parts."""

    texts: frozenset[str]
    parts: frozenset[str]
    has_system: bool
    """Whether a system turn is in the prompt."""
    refuses_system: bool
    has_thinking_parts: bool

    @classmethod
    def of(cls, render: Render) -> "TemplateFeatures":
        """Probe a template. `render` returns None if it refuses the messages."""
        texts = {role for role in _AROUND if _ONE in (_probed(render, role, _ONE) or "")}
        two = [{"type": "text", "text": _ONE}, {"type": "text", "text": _OTHER}]
        parts = {role for role in _AROUND if _has_parts(_probed(render, role, two))}
        thought = [{"type": "thinking", "thinking": _ONE, "closed": True}, {"type": "text", "text": _OTHER}]
        thinks = "assistant" in parts and _has_parts(_probed(render, "assistant", thought))
        form = "user" in texts, "user" in parts
        system, user = [{**turn, "content": _in_form("x", *form)} for turn in _probe("system", "x")]
        refuses = render([user]) is not None and render([system, user]) is None
        return cls(frozenset(texts), frozenset(parts), "system" in texts | parts, refuses, thinks)

    def adapted(self, messages: Sequence[Message], *, own: bool) -> list[dict[str, Any]]:
        """The messages in the template's form. `own`: the first system turn is not only the client's.

        The text of a system turn without a place is put in front of the user's next message. But a client's turn that
        a template skips is skipped, as its authors do.
        """
        if self.refuses_system or (own and not self.has_system):
            messages = _without_system(messages)
        return [self._in_form(message) for message in messages]

    def _in_form(self, message: Message) -> dict[str, Any]:
        role, content, thought = message["role"], message["content"], message.get("reasoning_content")
        if thought is not None and self.has_thinking_parts:
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
            parts = [part for part in parts if part["text"]]
            return {**message, "content": [{"type": "thinking", "thinking": thought, "closed": True}, *parts]}
        return {**message, "content": _in_form(content, role in self.texts, role in self.parts)}


def _in_form(content: Any, as_text: bool, as_parts: bool) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if as_parts and not as_text else content
    return content if as_parts else joined(content)


def _probed(render: Render, role: str, content: Any) -> str | None:
    """The prompt of a probe. A template of parts may refuse the other turns as texts, an empty one above all."""
    prompt = render(_probe(role, content))
    return render(_probe(role, content, parts_around=True)) if prompt is None else prompt


def _probe(role: str, content: Any, *, parts_around: bool = False) -> list[dict[str, Any]]:
    before, after = _AROUND[role]
    if parts_around:
        before, after = [[{**turn, "content": _in_form(turn["content"], False, True)} for turn in turns]
                         for turns in (before, after)]  # fmt: skip
    turn: dict[str, Any] = {"role": role, "content": content}
    if role == "tool":
        turn |= {"tool_call_id": _CALL["id"], "name": "qzv"}
    return [*before, turn, *after]


def _has_parts(prompt: str | None) -> bool:
    """Whether both texts of a list are there, and the list itself is not."""
    listed = prompt is not None and ("'type'" in prompt or '"type"' in prompt)
    return prompt is not None and _ONE in prompt and _OTHER in prompt and not listed


def _without_system(messages: Sequence[Message]) -> list[Message]:
    result: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "system":
            waiting.append(joined(message["content"]))
        elif message["role"] == "user" and waiting:
            text = "\n\n".join([*waiting, joined(message["content"])])
            result.append({**message, "content": text})
            waiting = []
        else:
            result.append(message)
    return [*result, {"role": "user", "content": "\n\n".join(waiting)}] if waiting else result
