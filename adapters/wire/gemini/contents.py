"""Translates the messages of a chat into Gemini's contents."""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire.anthropic.chat_turns import NO_TEXT, arguments
from adapters.wire.body import field
from adapters.wire.gemini import signatures
from adapters.wire.gemini.generations import ModelGeneration
from adapters.wire.gemini.parts import MessageContent, parts_of
from adapters.wire.gemini.tools import own_name
from adapters.wire.openai.known_fields import DefinedFields

Object = dict[str, Any]
_ABSENT = Raw(b"")


class _Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str
    provider_specific_fields: Raw = _ABSENT


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    function: _Function
    type: Literal["function"] = "function"
    extra_content: Raw = _ABSENT
    provider_specific_fields: Raw = _ABSENT

    def own(self) -> tuple[str, str | None]:
        """Its id and its signature."""
        provider = (self.provider_specific_fields, self.function.provider_specific_fields)
        return signatures.of_call(self.id, self.extra_content, *provider)


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """A chat message. `name` and reasoning have no equivalent; the last field must be null."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: MessageContent = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None
    thinking_blocks: list[Raw] | None = None
    extra_content: Raw = _ABSENT
    cache_control: Any = None
    refusal: str | None = None
    name: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    annotations: Any = None
    images: Any = None
    native_finish_reason: Any = None
    function_call: None = None


_messages = DefinedFields[list[_Message]](list[_Message])


class ContentTurns(NamedTuple):
    """The system instruction's parts, and the contents, which begin with the user's."""

    system: list[Object]
    contents: list[Object]


class _Calls:
    """The calls of one conversation that wait for results, each with its name and place."""

    def __init__(self) -> None:
        self._open: dict[str, list[tuple[str, int]]] = {}
        self._closed: dict[str, tuple[str, int]] = {}

    def add(self, id_: str, name: str, place: int) -> None:
        self._open.setdefault(id_, []).append((name, place))

    def of_result(self, id_: str) -> tuple[str, int]:
        """The function's name and the place of its call in the turn. Raises `ValueError`."""
        if waiting := self._open.get(id_):
            self._closed[id_] = waiting.pop(0)
        if id_ not in self._closed:
            raise ValueError("has a `tool_call_id` that no call before it has: Gemini needs the name of the function.")
        return self._closed[id_]


def turns_of(fields: Fields, generation: ModelGeneration, ignored: IgnoredFields, *, has_ids: bool) -> ContentTurns:
    """Translate the messages. `has_ids`: the API accepts the ids of calls. Raises `CallerError`."""
    messages = field(fields, "messages", _messages.reporting(ignored), required=True) or []
    translation = _Translation(generation, has_ids=has_ids)
    for i, message in enumerate(messages):
        try:
            translation.add(message)
        except ValueError as error:
            raise CallerError(f"`messages[{i}]` {error}", param="messages") from None
    return translation.turns()


class _Translation:
    def __init__(self, generation: ModelGeneration, *, has_ids: bool) -> None:
        self._generation = generation
        self._has_ids = has_ids
        self._system = list[Object]()
        self._contents = list[Object]()
        self._results: list[tuple[int, Object]] | None = None
        """The results of the open turn of tools, each with the place of its call."""
        self._files = list[Object]()
        """Pictures of tools, which follow their results."""
        self._calls = _Calls()

    def add(self, message: _Message) -> None:
        """Add a message. Raises `ValueError`."""
        if message.role == "tool":
            self._add_result(message)
            return
        self._close_results()
        if message.role == "assistant":
            self._append("model", self._answer(message))
            return
        if message.content is None:
            raise ValueError("has no `content`.")
        parts = parts_of(message.content)
        if message.role in ("system", "developer") and not self._contents:
            if any("text" not in part for part in parts):
                raise ValueError("has a picture or a file, and a system instruction is text only.")
            self._system += parts
        else:
            self._append("user", parts)

    def turns(self) -> ContentTurns:
        self._close_results()
        system, contents = self._system, self._contents
        if system and not self._generation.has_system:
            contents = [{"role": "user", "parts": system}, *contents]
            if len(contents) > 1 and contents[1]["role"] == "user":
                contents[:2] = [{"role": "user", "parts": [*system, *contents[1]["parts"]]}]
            system = []
        if not contents and system:
            contents, system = [{"role": "user", "parts": system}], []
        if not contents or contents[0]["role"] == "model":
            contents = [{"role": "user", "parts": [{"text": NO_TEXT}]}, *contents]
        return ContentTurns(system, contents)

    def _append(self, role: str, parts: list[Object]) -> None:
        """Append a turn, or extend the one before. Results of tools are alone in theirs: the models read a mixture as
        another role's."""
        if not parts:
            return
        last = self._contents[-1] if self._contents else None
        if last is not None and last["role"] == role and "functionResponse" not in last["parts"][0]:
            last["parts"] += parts
        else:
            self._contents.append({"role": role, "parts": parts})

    # ── the model's turns ─────────────────────────────────────────────────────────────────────────────

    def _answer(self, message: _Message) -> list[Object]:
        content = message.content if message.content is not None else message.refusal
        parts, calls = parts_of(content), message.tool_calls or []
        own, others = signatures.of_blocks(message.thinking_blocks or ())
        if message.extra_content:
            own = signatures.in_extra(message.extra_content) or own
        if own is not None:
            if parts and "text" in parts[-1]:
                parts[-1]["thoughtSignature"] = own
            else:
                parts.append({"text": "", "thoughtSignature": own})
        if not signatures.is_googles(call.id for call in calls):
            others = None
        for place, call in enumerate(calls):
            parts.append(self._call(call, place, others))
        return parts

    def _call(self, call: _Call, place: int, in_blocks: str | None) -> Object:
        """A call. Only the first of a step has a signature, unless the server has signed others too."""
        id_, signature = call.own()
        name = own_name(call.function.name)
        self._calls.add(call.id, name, place)
        function: Object = {"name": name, "args": arguments(call.function.arguments)}
        if self._has_ids:
            function["id"] = id_
        if place == 0 and signature is None:
            signature = in_blocks or (signatures.SKIPPED if self._generation.signed else None)
        return {"functionCall": function} | ({"thoughtSignature": signature} if signature else {})

    # ── results of tools ──────────────────────────────────────────────────────────────────────────────

    def _add_result(self, message: _Message) -> None:
        if message.tool_call_id is None:
            raise ValueError("has no `tool_call_id`.")
        name, place = self._calls.of_result(message.tool_call_id)
        parts = parts_of(message.content)
        files = [part for part in parts if "text" not in part]
        function: Object = {
            "name": name,
            "response": {"output": "\n".join([part["text"] for part in parts if "text" in part])},
        }
        if self._has_ids:
            function["id"] = signatures.of_call(message.tool_call_id, _ABSENT)[0]
        if files and self._generation.files_in_results:
            function["parts"] = files
        else:
            self._files += files
        if self._results is None:
            self._results = []
        self._results.append((place, {"functionResponse": function}))

    def _close_results(self) -> None:
        """End the turn of tools: its results in the order of their calls, because Vertex AI joins them by place."""
        if self._results is None:
            return
        results, files = sorted(self._results, key=lambda result: result[0]), self._files
        self._results, self._files = None, []
        self._contents.append({"role": "user", "parts": [part for _, part in results]})
        if files:
            self._contents.append({"role": "user", "parts": files})
