"""Translates the input of a Responses request into chat messages.

Clients send the items of earlier answers with each request, also those of other servers. No such item may refuse the
request, because it would refuse the whole session. One rule holds for each type that a chat does not have:

- A call that the client runs (`local_shell_call`, `tool_search_call`, …) has a `call_id` and an output. Both stay: the
  call as a function with the name of its type, and the output as its result.
- An item with `content` is a message of the user.
- Any other item is ignored. Such are calls that the API's servers run, whose results are in the text that follows, and
  encrypted texts of other servers.
"""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.ignored_fields import NOT_STORED, IgnoredFields
from adapters.wire import decoding
from adapters.wire.openai import kept_signatures
from adapters.wire.openai.known_fields import DefinedFields
from adapters.wire.responses import conversation
from adapters.wire.responses.conversation import ABSENT, ChatMessages, Message, Wrong, refused
from adapters.wire.responses.tools import INPUT, Tool, ToolNames

_ROLES = {"user": "user", "system": "system", "developer": "system"}
"""The roles of a chat. `developer` is OpenAI's newer name of `system`, which other servers refuse."""
_OF_ANY_CALL = frozenset({"type", "id", "call_id", "status", "caller", "created_by", "execution", "encrypted_content"})
"""Fields of a call that say nothing about what it calls."""
_WITH_TOOLS = frozenset({"additional_tools", "tool_search_output"})


class InputItem(msgspec.Struct):
    """An item of any type, which defines the fields that apply."""

    type: Any = None
    id: Any = None
    role: Any = None
    call_id: Any = None
    name: Any = None
    namespace: Any = None
    content: Raw = ABSENT
    arguments: Raw = ABSENT
    input: Raw = ABSENT
    output: Raw = ABSENT
    tools: Raw = ABSENT
    encrypted_content: Any = None

    @property
    def kind(self) -> str | None:
        """The type, which a message and a reference may lack."""
        if isinstance(self.type, str):
            return self.type
        if self.type is None and self.role is not None:
            return "message"
        return "item_reference" if self.type is None and self.id is not None and self.content == ABSENT else None


class _Thought(msgspec.Struct):
    text: str = ""


_items = msgspec.json.Decoder(list[InputItem])
_fields = msgspec.json.Decoder(list[dict[str, Raw]])
_thoughts = msgspec.json.Decoder(list[_Thought] | None)
_tools = DefinedFields[list[Tool]](list[Tool])
_encode = msgspec.json.Encoder().encode


def items_of(given: Raw) -> list[InputItem] | str:
    """Decode the input: a text, or its items. Raises `CallerError`."""
    try:
        if conversation.is_text(given):
            return conversation.text_of(given, "")
        items = _items.decode(given)
    except decoding.MALFORMED_JSON as error:
        raise refused("input", f"is not valid: {error}") from None
    except Wrong as wrong:
        raise refused("input", wrong.problem) from None
    if not items:
        raise refused("input", "must not be empty")
    return items


def tools_of(items: list[InputItem] | str, ignored: IgnoredFields) -> list[Tool]:
    """The tools that items add to those of the request. Raises `CallerError`."""
    tools = list[Tool]()
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if item.kind in _WITH_TOOLS and item.tools != ABSENT:
            try:
                tools += _tools.reporting(ignored).decode(item.tools)
            except decoding.MALFORMED_JSON as error:
                raise refused(f"input[{index}].tools", f"is not valid: {error}") from None
    return tools


def messages_of(
    items: list[InputItem] | str, given: Raw, instructions: str | None, names: ToolNames, ignored: IgnoredFields
) -> list[Message]:
    """Translate the items of an input, which is also `given` as JSON. Raises `CallerError` that names the item at
    fault."""
    conversation = ChatMessages()
    if instructions is not None:
        conversation.add("system", instructions)
    if isinstance(items, str):
        conversation.add("user", items)
        return conversation.messages()
    translation = _Translation(conversation, given, names, ignored)
    question = max((i for i, item in enumerate(items) if item.role == "user"), default=-1)
    for index, item in enumerate(items):
        conversation.is_old = index < question
        try:
            translation.add(item, index)
        except Wrong as wrong:
            raise refused(f"input[{index}]{wrong.where}", wrong.problem) from None
    return conversation.messages()


class _Translation:
    """The translation of one input."""

    def __init__(self, conversation: ChatMessages, given: Raw, names: ToolNames, ignored: IgnoredFields) -> None:
        self._to = conversation
        self._given = given
        self._names = names
        self._ignored = ignored
        self._raw: list[dict[str, Raw]] | None = None

    def add(self, item: InputItem, index: int) -> None:
        """Append an item. Raises `Wrong`."""
        kind = item.kind
        if kind == "message":
            self._message(item)
        elif kind == "function_call":
            name = self._names.in_chat(_given(item.name, ".name"), _optional(item.namespace))
            arguments = conversation.text_of(item.arguments, ".arguments") if item.arguments != ABSENT else ""
            self._to.call(_given(item.call_id, ".call_id"), name, arguments)
        elif kind == "custom_tool_call":
            name = self._names.in_chat(_given(item.name, ".name"), _optional(item.namespace))
            text = conversation.text_of(item.input, ".input") if item.input != ABSENT else ""
            self._to.call(_given(item.call_id, ".call_id"), name, _encode({INPUT: text}).decode())
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind == "item_reference":
            raise Wrong("", f"refers to a stored item: {NOT_STORED} (set `store: false` at the client)")
        elif kind is None:
            raise Wrong(".type", "is missing")
        elif kind == "compaction_trigger":
            raise Wrong("", "asks the server to compact the input, which it cannot: send a shorter input")
        else:
            self._other(kind, item, index)

    def _message(self, item: InputItem) -> None:
        if item.role == "assistant":
            content = conversation.history_of(item.content, ".content", self._ignored)
            refusals = [part["refusal"] for part in content if part["type"] == "refusal"]
            texts, _ = conversation.divided(content)
            is_empty = not texts and not conversation.is_text(item.content)
            self._to.answer(None if is_empty else texts, "\n".join(refusals) or None)
        elif isinstance(item.role, str) and item.role in _ROLES:
            self._to.add(_ROLES[item.role], conversation.joined(conversation.content_of(item.content, ".content")))
        else:
            raise Wrong(".role", "must be user, assistant, system or developer")

    def _reasoning(self, item: InputItem) -> None:
        """Encrypted thoughts of other servers have no text, and are left out."""
        if isinstance(item.encrypted_content, str) and (signed := kept_signatures.decode(item.encrypted_content)):
            self._to.sign(*signed)
        try:
            thoughts = (_thoughts.decode(item.content) if item.content != ABSENT else None) or []
        except decoding.MALFORMED_JSON as error:
            raise Wrong(".content", f"is not valid: {error}") from None
        if text := "".join(thought.text for thought in thoughts):
            self._to.think(text)

    def _other(self, kind: str, item: InputItem, index: int) -> None:
        """An item that a chat has no form for: see the rule of this module."""
        call_id = _optional(item.call_id) or (_optional(item.id) if kind.endswith("_call_output") else None)
        if kind.endswith("_output") and (call_id is not None or item.output != ABSENT):
            self._result(item, call_id, index)
        elif call_id is not None:
            arguments = _encode(self._own_fields(index)).decode()
            self._to.call(call_id, self._names.in_chat(kind.removesuffix("_call")), arguments)
        elif item.content not in (ABSENT, b"null") and kind not in _WITH_TOOLS:
            self._to.add("user", conversation.joined(conversation.history_of(item.content, ".content", self._ignored)))
        elif kind not in _WITH_TOOLS:
            self._ignored.ignore(kind)

    def _result(self, item: InputItem, call_id: str | None, index: int) -> None:
        if item.output == ABSENT:
            self._to.result(call_id, _encode(self._own_fields(index)).decode(), [])
        elif bytes(memoryview(item.output)[:1]) in (b'"', b"[", b"{"):
            self._to.result(
                call_id, *conversation.divided(conversation.history_of(item.output, ".output", self._ignored))
            )
        else:
            self._to.result(call_id, bytes(item.output).decode(), [])

    def _own_fields(self, index: int) -> dict[str, Raw]:
        """What an item says, as its own JSON."""
        if self._raw is None:
            self._raw = _fields.decode(self._given)
        return {name: raw for name, raw in self._raw[index].items() if name not in _OF_ANY_CALL}


def _optional(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _given(value: Any, where: str) -> str:
    if value is None:
        raise Wrong(where, "is missing")
    if not isinstance(value, str):
        raise Wrong(where, "must be a text")
    return value
