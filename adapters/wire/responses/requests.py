"""Decodes OpenAI's Responses requests (API specification 2.3), as chats or for servers with the Responses API.

Fields that refer to stored state (`store`, `previous_response_id` and others) are refused: nothing is stored here, and
state that an upstream stores under the gateway's credential belongs to no tenant.
"""

import re
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.requests import ChatRequest, ResponsesRequest
from adapters.wire import decoding
from adapters.wire.body import mended, open_body
from adapters.wire.openai import chat as wire
from adapters.wire.openai.ignored_fields import IgnoredFields
from adapters.wire.responses.chat_fields import ResponsesBody as ResponsesBody
from adapters.wire.responses.chat_fields import chat_fields, unsupported
from adapters.wire.responses.input import NOT_STORED, messages_of

OPERATION = "responses"
_FALSE = Raw(b"false")
_NOT_STORED = f"is not possible: {NOT_STORED}"
_NOTHING = frozenset({b"null"})
_OF_STORED = {
    "background": (_NOT_STORED, _NOTHING | {b"false"}),
    "conversation": (_NOT_STORED, _NOTHING),
    "previous_response_id": (_NOT_STORED, _NOTHING),
    "store": (_NOT_STORED, _NOTHING | {b"false"}),
}
"""Fields that require stored state, and their neutral values."""
_OF_OTHERS = {
    "access_programs": ("is not supported", _NOTHING),
    "context_management": ("is not possible in a chat", _NOTHING | {b"[]"}),
    "image": ("is not possible in a chat", _NOTHING),
    "moderation": ("is not possible in a chat", _NOTHING),
    "prompt": (_NOT_STORED, _NOTHING),
    "truncation": ("is not possible: a chat is never truncated", _NOTHING | {b'"disabled"'}),
}
"""The reasons for fields that only servers with the Responses API support."""
_CHATS_OWN = frozenset({
    "audio", "function_call", "functions", "logprobs", "max_completion_tokens", "max_tokens", "messages", "modalities",
    "n", "n_predict", "prediction", "reasoning_effort", "response_format", "verbosity", "web_search_options",
})  # fmt: skip
_TAKEN = frozenset({
    "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "reasoning", "store",
    "stream", "stream_options", "text", "tool_choice", "tools", "top_logprobs", *_OF_STORED, *_OF_OTHERS,
})  # fmt: skip
"""Fields that are translated or left out; other fields are forwarded unchanged."""
_PARAMS = {
    "max_completion_tokens": "max_output_tokens", "max_tokens": "max_output_tokens", "messages": "input",
    "reasoning_effort": "reasoning.effort", "response_format": "text.format", "verbosity": "text.verbosity",
}  # fmt: skip

_NO_INPUT = Raw(b"null")


class _Named(msgspec.Struct):
    model: str = ""


_decode_body = msgspec.json.Decoder(ResponsesBody).decode
_named = msgspec.json.Decoder(_Named).decode
_encode = msgspec.json.Encoder().encode


def decode(body: bytes) -> tuple[ChatRequest, ResponsesBody, dict[str, Raw]]:
    """Decode a request: as a chat, its decoded body, and its encoded fields. Raises `CallerError` that names the field
    at fault, also for a field that a chat cannot express."""
    given = open_body(body)
    _refuse(given, _OF_STORED)
    _refuse(given, _OF_OTHERS)
    try:
        decoded = mended(_decode_body, body)
    except decoding.MALFORMED_JSON as error:
        raise _invalid(str(error)) from None
    fields = {name: raw for name, raw in given.items() if name not in _TAKEN}
    if foreign := sorted(fields.keys() & _CHATS_OWN):
        raise CallerError(
            f"`{foreign[0]}` is a field of chats, not of Responses.",
            param=foreign[0],
            code="unknown_parameter",
        )
    hints = IgnoredFields()
    chat = {"messages": messages_of(decoded.input, decoded.instructions), **chat_fields(decoded, hints)}
    fields |= {name: Raw(_encode(value)) for name, value in chat.items()}
    return wire.chat_request(fields, len(body), tuple(hints.ignored)), decoded, given


def decode_to_repeat(body: bytes) -> tuple[ChatRequest, ResponsesBody, dict[str, Raw]]:
    """Decode the fields without the input, which a response does not repeat."""
    request, decoded, given = decode(body)
    decoded.input = _NO_INPUT
    return request, decoded, {name: raw for name, raw in given.items() if name != "input"}


def model_of(body: bytes) -> str | None:
    """The model of a body: "" without one, None for a malformed body."""
    try:
        return mended(_named, body).model
    except decoding.MALFORMED_JSON:
        return None


def decode_native(body: bytes) -> ResponsesRequest:
    """Decode a request for servers with the Responses API, with `store: false`. Raises `CallerError`."""
    given = open_body(body)
    _refuse(given, _OF_STORED)
    if "input" not in given:
        raise CallerError("`input` is missing.", param="input")
    return wire.responses_request({**given, "store": _FALSE}, len(body))


def route_names(field: str) -> Iterable[str]:
    """The names of a chat's fields that a route's rewrite uses for a field of a Response."""
    return [name for name, path in _PARAMS.items() if path.partition(".")[0] == field]


def _refuse(given: dict[str, Raw], table: dict[str, tuple[str, frozenset[bytes]]]) -> None:
    for name, (why, neutral) in table.items():
        if name in given and bytes(given[name]) not in neutral:
            raise unsupported(name, why)


def _invalid(message: str) -> CallerError:
    """Convert msgspec's message: "Expected `int`, got `str` - at `$.max_output_tokens`"."""
    problem, _, where = message.partition(" - at ")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", problem)
    path = [part for part in (where.strip("`").removeprefix("$").lstrip("."), missing and missing[1]) if part]
    param = ".".join(path)
    return CallerError(f"`{param}` is not valid: {problem}." if param else f"{problem}.", param=param or None)
