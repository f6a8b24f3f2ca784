"""Translates the messages of plain chats into Gemini's contents in one loop.

Plain are texts, calls of tools and their results in the order of the calls: most chats. Every other chat, and one with
an error, takes the way of `contents`. Both ways give the same contents.
"""

from collections.abc import Sequence
from typing import Any

from adapters.wire.gemini import signatures
from adapters.wire.gemini.sent_messages import SentCall, SentMessage, args_of
from adapters.wire.gemini.tools import own_name

Object = dict[str, Any]


class _PlainTurns:
    """The turns of one conversation."""

    def __init__(self, *, has_ids: bool, unsigned: str | None) -> None:
        self._has_ids = has_ids
        self._unsigned = unsigned
        self._names: dict[str, str] = {}
        """Gemini's names of functions."""
        self._due: dict[str, tuple[str, int]] = {}
        """The calls that wait for results: the name, and the place in the turn."""

    def read(self, messages: Sequence[SentMessage]) -> tuple[list[Object], list[Object]] | None:
        """The system instruction's parts, and the contents; None for a chat that is not plain."""
        system, contents, due, has_ids = list[Object](), list[Object](), self._due, self._has_ids
        before, last, parts = "", 0, list[Object]()
        for message in messages:
            role, content = message.role, message.content
            if message.cache_control is not None or (content.__class__ is not str and content is not None):
                return None
            if role == "tool":
                id_ = message.tool_call_id
                if content is None or id_ is None or (call := due.pop(id_, None)) is None or signatures.IN_ID in id_:
                    return None
                name, place = call
                response: Object = {"output": content}
                result = (
                    {"name": name, "response": response, "id": id_} if has_ids else {"name": name, "response": response}
                )
                if before != "tool":
                    parts = [{"functionResponse": result}]
                    contents.append({"role": "user", "parts": parts})
                elif place < last:
                    return None
                else:
                    parts.append({"functionResponse": result})
                before, last = role, place
                continue
            new: list[Object] = [{"text": content}] if content else []
            if role == "assistant":
                if message.thinking_blocks or message.extra_content or (content is None and message.refusal):
                    return None
                if message.tool_calls and not self._add_calls(message.tool_calls, new):
                    return None
            elif role != "user":
                if contents:
                    return None
                system += new
                continue
            if not new:
                return None
            if role == before:
                parts += new
            else:
                parts, before = new, role
                contents.append({"role": "model" if role == "assistant" else "user", "parts": new})
        return (system, contents) if contents and contents[0]["role"] == "user" else None

    def _add_calls(self, calls: Sequence[SentCall], parts: list[Object]) -> bool:
        """Append the calls of a message. False if two calls that wait have one id."""
        due, signature = self._due, self._unsigned
        for place, call in enumerate(calls):
            id_, signed = call.own()
            if call.id in due:
                return False
            given = call.function
            if (name := self._names.get(given.name)) is None:
                name = self._names[given.name] = own_name(given.name)
            due[call.id] = name, place
            args = args_of(given.arguments)
            part: Object = {
                "functionCall": {"name": name, "args": args, "id": id_}
                if self._has_ids
                else {"name": name, "args": args}
            }
            if signed or (place == 0 and signature):
                part["thoughtSignature"] = signed or signature
            parts.append(part)
        return True


def plain_turns(
    messages: Sequence[SentMessage], *, has_ids: bool, unsigned: str | None
) -> tuple[list[Object], list[Object]] | None:
    """The system instruction's parts, and the contents; None for a chat that is not plain. `unsigned` is the signature
    of the first call of a message without one."""
    return _PlainTurns(has_ids=has_ids, unsigned=unsigned).read(messages)
