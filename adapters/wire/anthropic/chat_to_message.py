"""Translates a chat into a Messages request, for servers of Anthropic's API.

Parts without an equivalent there are left out and reported, or refused, as `ignored_fields` decides.
"""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields, with_allowed_tools
from adapters.requests import ChatRequest
from adapters.wire.anthropic import chat_turns as turns
from adapters.wire.anthropic.tools import choice_of, tools_of
from adapters.wire.body import field, is_given
from adapters.wire.native_chat import NativeChat
from adapters.wire.openai import bounds, thinking
from adapters.wire.openai.request_codec import bounded

Object = dict[str, Any]

_SAME = ("stream", "temperature", "thinking", "top_k", "top_p")
"""Fields that are copied unchanged."""
_TRANSLATED = (
    "max_completion_tokens", "max_tokens", "messages", "parallel_tool_calls", "reasoning_effort", "response_format",
    "safety_identifier", "service_tier", "stop", "tool_choice", "tools", "user",
)  # fmt: skip
_TRANSLATABLE = frozenset((
    *_SAME, *_TRANSLATED, *thinking.THINKING_FIELDS, "add_generation_prompt", "continue_final_message", "model",
    "stream_options",
))  # fmt: skip
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": None, "xhigh": "xhigh"}
"""`high` is Anthropic's default, and older models refuse the field."""
_MAX_USER = 256
_TIERS = {"auto": "auto", "default": "standard_only"}

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str | None)
_count = msgspec.json.Decoder(int | None)
_stop = msgspec.json.Decoder(str | list[str] | None)


class _Schema(msgspec.Struct):
    schema: Raw = Raw(b"{}")


class _ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_schema", "json_object"] = "text"
    json_schema: _Schema | None = None


_response_format = msgspec.json.Decoder(_ResponseFormat | None)


def message_fields(request: ChatRequest, model: str | None, max_tokens: int | None, ignored: IgnoredFields) -> Object:
    """The fields of `/v1/messages`. `max_tokens` applies to a chat without a limit; with None it has none, although
    Anthropic's own API demands one.

    Fields without effect are added to `ignored`. Raises `CallerError`.
    """
    wish = request.payload.thinking if isinstance(request, NativeChat) else {}
    fields = with_allowed_tools({**wish, **bounded(request.fields)})
    ignored.sift(fields, _TRANSLATABLE)
    system, messages = turns.turns_of(fields, ignored)
    body: Object = {name: fields[name] for name in _SAME if is_given(fields, name)}
    body["model"] = request.model if model is None else model
    body["messages"] = messages
    requested = field(fields, "max_completion_tokens", _count), field(fields, "max_tokens", _count)
    if (most := next((most for most in requested if most is not None), max_tokens)) is not None:
        body["max_tokens"] = most
    if system:
        body["system"] = system
    if stops := ignored.stops(field(fields, "stop", _stop)):
        body["stop_sequences"] = stops
    if user := field(fields, "user", _string) or field(fields, "safety_identifier", _string):
        body["metadata"] = {"user_id": bounds.user(user, _MAX_USER)}
    given = field(fields, "service_tier", _string)
    if (tier := _TIERS.get(given or "")) is not None:
        body["service_tier"] = tier
    if tools := tools_of(fields, ignored):
        body["tools"] = tools
        body |= choice_of(fields, ignored)
    return body | _output(fields, body)


def _output(fields: dict[str, Raw], body: Object) -> Object:
    """The effort of thinking, and the answer's form."""
    config: Object = {}
    encoded: Object = {}
    if "thinking" not in body and (wish := thinking.thinking_of_chat(fields)) is not None:
        body["thinking"] = wish
    effort = field(fields, "reasoning_effort", _string)
    if effort == "none":
        encoded["thinking"] = body.get("thinking", {"type": "disabled"})
    elif effort is not None:
        if effort not in _EFFORTS:
            message = "`reasoning_effort` is none, minimal, low, medium, high or xhigh."
            raise CallerError(message, param="reasoning_effort")
        config |= {"effort": word} if (word := _EFFORTS[effort]) else {}
    requested = field(fields, "response_format", _response_format)
    if requested is not None and requested.type == "json_object":
        message = "`response_format` needs a schema with this model: use `json_schema`."
        raise CallerError(message, param="response_format", code="unsupported_parameter")
    if requested is not None and requested.type == "json_schema":
        if requested.json_schema is None:
            raise CallerError("`response_format.json_schema` is missing.", param="response_format")
        config["format"] = {"type": "json_schema", "schema": requested.json_schema.schema}
    return encoded | {"output_config": config} if config else encoded
