"""Translates a request of `generateContent` into a chat.

Parts without an equivalent in a chat are left out and reported, as `ignored_fields` decides. The tools that Google runs
itself are left out too.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire.body import field
from adapters.wire.gemini import carried, native_parts
from adapters.wire.gemini.native_config import NativeConfig, config_decoder, schema_of, tool_fields
from adapters.wire.gemini.native_parts import NativeContent, NativePart
from adapters.wire.openai import bounds
from adapters.wire.openai.history import complete_thoughts

Object = dict[str, Any]

_TRANSLATED = frozenset({
    "contents", "generationConfig", "model", "serviceTier", "systemInstruction", "toolConfig", "tools",
})  # fmt: skip
_CONFIG = (
    "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty", "max_output_tokens",
)  # fmt: skip
_DEFAULTS = {"top_p": 0.95, "top_k": 64}
"""The defaults of Google's models, which its clients always send. Other providers refuse one of the two, or both."""
_MEDIA = {"inline_data": "inlineData", "file_data": "fileData"}
"""Parts that a chat's assistant cannot have."""
_NOT_STORED = "`cachedContent` is not possible with this model: no contents are stored here, so send them in full."

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str | None)


def chat_fields(native: Fields, added: Fields, *, stream: bool) -> tuple[Fields, tuple[str, ...]]:
    """The fields of a chat's body, and the fields without effect on it. Raises `CallerError`.

    `added` are fields of a chat for which the protocol has no name.
    """
    ignored = IgnoredFields()
    if field(native, "cachedContent", _string):
        raise CallerError(_NOT_STORED, param="cachedContent", code="unsupported_parameter")
    ignored.sift(native, _TRANSLATED)
    messages = [*_system(native, ignored), *_conversation(native, ignored)]
    if not messages:
        raise CallerError("`contents` has nothing that a chat can have.", param="contents")
    chat: Object = {"messages": messages, **_config(native, ignored), **tool_fields(native, ignored)}
    if stream:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    if messages[-1]["role"] == "assistant":  # the response continues this message
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    if tier := field(native, "serviceTier", _string):
        chat["service_tier"] = "default" if tier == "standard" else tier
    fields = {name: Raw(_encode(value)) for name, value in chat.items()}
    return {**fields, **added, "model": native["model"]}, tuple(ignored.ignored)


def _config(native: Fields, ignored: IgnoredFields) -> Object:
    config = field(native, "generationConfig", config_decoder.reporting(ignored)) or NativeConfig()
    if config.candidate_count not in (None, 1):
        message = "`generationConfig.candidateCount` is not possible with this model: it returns one answer."
        raise CallerError(message, param="generationConfig.candidateCount", code="unsupported_parameter")
    if any(kind.upper() != "TEXT" for kind in config.response_modalities or ()):
        message = "`generationConfig.responseModalities` is TEXT only with this model."
        raise CallerError(message, param="generationConfig.responseModalities", code="unsupported_parameter")
    named = {name: getattr(config, name) for name in _CONFIG}
    named["max_tokens"] = named.pop("max_output_tokens")
    chat: Object = {name: value for name, value in named.items() if value is not None}
    if all(chat.get(name) == value for name, value in _DEFAULTS.items()):
        for name in _DEFAULTS:
            del chat[name]
            ignored.ignore(name)
    if stops := ignored.stops(config.stop_sequences):
        chat["stop"] = stops
    if config.response_logprobs:
        chat["logprobs"] = True
        if config.logprobs:
            chat["top_logprobs"] = config.logprobs
    if (effort := config.effort) is not None:
        chat["reasoning_effort"] = effort
    given = config.response_json_schema or config.response_schema
    if given is not None:
        schema = {"name": "answer", "schema": schema_of(given), "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif config.response_mime_type == "application/json":
        chat["response_format"] = {"type": "json_object"}
    for name in ("speechConfig", "mediaResolution", "enableEnhancedCivicAnswers", "audioTimestamp"):
        if name in config.others:
            ignored.ignore(name)
    return chat


# ── contents ──────────────────────────────────────────────────────────────────────────────────────────


def _system(native: Fields, ignored: IgnoredFields) -> Iterator[Object]:
    given = field(native, "systemInstruction", native_parts.system.reporting(ignored))
    if isinstance(given, str):
        yield {"role": "system", "content": given}
    elif given is not None and (text := "\n".join([part.text for part in given.parts if part.text])):
        yield {"role": "system", "content": text}


def _conversation(native: Fields, ignored: IgnoredFields) -> list[Object]:
    given = field(native, "contents", native_parts.contents.reporting(ignored), required=True) or []
    conversation = _Conversation(ignored)
    for i, content in enumerate(given if isinstance(given, list) else [given]):
        try:
            conversation.add(content, i)
        except ValueError as error:
            raise CallerError(f"`contents[{i}]` {error}", param="contents") from None
    complete_thoughts(conversation.messages)
    return conversation.messages


class _OpenCall:
    """A call without a result: its id in the chat."""

    __slots__ = ("id", "is_open", "place")

    def __init__(self, id_: str, place: int) -> None:
        self.id = id_
        self.place = place
        self.is_open = True


class _OpenCalls:
    """The calls without a result, in the order of their turns."""

    def __init__(self) -> None:
        self._count = 0
        self._by_key: dict[tuple[str, str | None], deque[_OpenCall]] = {}
        """By name and id: of ("", id), of (name, "") for calls without an id, and of (name, None) for all."""

    def add(self, name: str, own: str | None, id_: str) -> None:
        """Add a call with its own id, and its id in the chat."""
        self._count += 1
        call = _OpenCall(id_, self._count)
        for key in ((name, None), ("", own) if own else (name, "")):
            self._by_key.setdefault(key, deque()).append(call)

    def take(self, name: str, own: str | None) -> str | None:
        """The chat's id of the first call with this id, or of this name if one of the two has no id."""
        keys = [("", own), (name, "")] if own else [(name, None)]
        calls = [call for key in keys if (call := self._first(key)) is not None]
        if not calls:
            return None
        first = min(calls, key=lambda call: call.place)
        first.is_open = False
        return first.id

    def _first(self, key: tuple[str, str | None]) -> _OpenCall | None:
        waiting = self._by_key.get(key)
        while waiting and not waiting[0].is_open:
            waiting.popleft()
        return waiting[0] if waiting else None


class _Conversation:
    def __init__(self, ignored: IgnoredFields) -> None:
        self.messages: list[Object] = []
        self._ignored = ignored
        self._open = _OpenCalls()

    def add(self, content: NativeContent, place: int) -> None:
        """Add a turn. Raises `ValueError`."""
        if content.role == "model":
            self._answer(content.parts, place)
        elif content.role in ("user", "function", ""):
            self._user(content.parts)
        else:
            raise ValueError("has a role other than user and model.")

    def _user(self, parts: list[NativePart]) -> None:
        """Results of tools come first, each in a message of its own. Their pictures follow in the user's message."""
        own = list[Object]()
        for part in parts:
            if (result := part.function_response) is not None:
                if (id_ := self._open.take(result.name, result.id)) is None:
                    # clients count the tokens of turns whose calls are not among them
                    own.append({"type": "text", "text": result.text})
                else:
                    self.messages.append({"role": "tool", "tool_call_id": id_, "content": result.text})
                own += [media.part() for each in result.parts or () if (media := each.inline_data or each.file_data)]
        own += [inner for part in parts for inner in self._part(part)]
        if own:
            self._append("user", own)

    def _append(self, role: str, parts: list[Object]) -> None:
        last = self.messages[-1] if self.messages else {}
        if last.get("role") == role == "user":
            before = last["content"]
            parts = [*([{"type": "text", "text": before}] if isinstance(before, str) else before), *parts]
            self.messages.pop()
        is_text = len(parts) == 1 and parts[0]["type"] == "text"
        self.messages.append({"role": role, "content": parts[0]["text"] if is_text else parts})

    def _part(self, part: NativePart) -> Iterator[Object]:
        """The parts of a user's message."""
        if part.text:
            yield {"type": "text", "text": part.text}
        elif (media := part.inline_data or part.file_data) is not None:
            yield media.part()
        elif part.function_call is not None:
            raise ValueError("has a `functionCall`, which only the model makes.")

    def _answer(self, parts: list[NativePart], place: int) -> None:
        texts = [part.text for part in parts if part.text and not part.thought]
        thoughts = "".join([part.text for part in parts if part.text and part.thought])
        message: Object = {"role": "assistant", "content": "".join(texts) if texts else None}
        if thoughts:
            message["reasoning_content"] = thoughts
        calls = list[Object]()
        for part in parts:
            extra = carried.fields_of(part.thought_signature) if part.thought_signature else {}
            if part.function_call is None:
                message |= extra
                continue
            if blocks := extra.pop("thinking_blocks", None):
                message["thinking_blocks"] = blocks
            if (thought := extra.pop("reasoning_content", None)) and not thoughts:
                message["reasoning_content"] = thought
            calls.append(self._call(part, f"call_{place}_{len(calls)}") | extra)
        if calls:
            message["tool_calls"] = calls
        if any(part.executable_code is not None or part.tool_call is not None for part in parts):
            self._ignored.ignore("executableCode")
        for name, wire in _MEDIA.items():
            if any(getattr(part, name) is not None for part in parts):
                self._ignored.ignore(wire)
        if texts or calls:
            self.messages.append(message)

    def _call(self, part: NativePart, otherwise: str) -> Object:
        call = part.function_call
        assert call is not None
        id_ = bounds.call_id(call.id or otherwise)
        self._open.add(call.name, call.id, id_)
        function = {"name": bounds.tool_name(call.name), "arguments": call.arguments}
        return {"id": id_, "type": "function", "function": function}
