"""Translates a request of `generateContent` into a chat.

Parts without an equivalent in a chat are left out and reported, as `ignored_fields` decides. The tools that Google runs
itself are left out too.
"""

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


class _Conversation:
    def __init__(self, ignored: IgnoredFields) -> None:
        self.messages: list[Object] = []
        self._ignored = ignored
        self._open: list[tuple[str, str | None, str]] = []
        """The name, the own id and the chat's id of each call without a result."""

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
                if (id_ := self._id_of(result.name, result.id)) is None:
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
        if texts or calls:
            self.messages.append(message)

    def _call(self, part: NativePart, otherwise: str) -> Object:
        call = part.function_call
        assert call is not None
        id_ = bounds.call_id(call.id or otherwise)
        self._open.append((call.name, call.id, id_))
        function = {"name": bounds.tool_name(call.name), "arguments": call.arguments}
        return {"id": id_, "type": "function", "function": function}

    def _id_of(self, name: str, id_: str | None) -> str | None:
        """The chat's id of the call that a result belongs to: by its id, or the first that waits by its name. None for
        a result without its call, which becomes a text of the user: clients count the tokens of such turns."""
        for i, (called, own, in_chat) in enumerate(self._open):
            if (own == id_) if id_ and own else called == name:
                del self._open[i]
                return in_chat
        return None
