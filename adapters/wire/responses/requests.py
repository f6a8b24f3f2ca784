"""Decodes OpenAI's Responses requests (API specification 2.3), as chats or for servers with the Responses API.

Fields that only steer the servers of Responses are left out of a chat and reported. Fields that refer to stored state
(`previous_response_id`, `background` and others) are refused: nothing is stored here, and state that an upstream stores
under the gateway's credential belongs to no tenant.
"""

import re
from collections.abc import Iterable

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.ignored_fields import CHAT, IgnoredFields, requests_nothing
from adapters.requests import ChatRequest, ResponsesRequest
from adapters.wire import decoding
from adapters.wire.body import mended, open_body
from adapters.wire.openai import chat as wire
from adapters.wire.openai.known_fields import DefinedFields
from adapters.wire.responses.answers import ResponsesBody as ResponsesBody
from adapters.wire.responses.answers import chat_fields
from adapters.wire.responses.input import items_of, messages_of, tools_of
from adapters.wire.responses.tools import ToolNames

OPERATION = "responses"
_FALSE = Raw(b"false")
_STATE = frozenset({"background", "conversation", "previous_response_id", "store"})
"""Fields about stored state."""
_CHATS_OWN = frozenset({
    "audio", "function_call", "functions", "logprobs", "max_completion_tokens", "max_tokens", "messages", "modalities",
    "n", "n_predict", "prediction", "reasoning_effort", "response_format", "verbosity", "web_search_options",
})  # fmt: skip
_STEERING = frozenset({
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier", "store",
})  # fmt: skip
"""Fields that OpenAI's chats have too, and that other servers refuse. Clients send them unasked."""
_TAKEN = frozenset(ResponsesBody.__struct_fields__) | {"input"}
_TRANSLATED = ((CHAT - _CHATS_OWN) | _TAKEN) - _STEERING
"""Fields that are translated or that chats have too."""
_FORWARDED = (CHAT - _CHATS_OWN - _TAKEN - _STEERING) | {
    "model",
    "temperature",
    "top_p",
    "user",
}
_PARAMS = {
    "max_completion_tokens": "max_output_tokens", "max_tokens": "max_output_tokens", "messages": "input",
    "reasoning_effort": "reasoning.effort", "response_format": "text.format", "verbosity": "text.verbosity",
}  # fmt: skip


class _Named(msgspec.Struct):
    model: str = ""


_body = DefinedFields[ResponsesBody](ResponsesBody)
_named = msgspec.json.Decoder(_Named).decode
_encode = msgspec.json.Encoder().encode


def decode(body: bytes) -> tuple[ChatRequest, ResponsesBody, dict[str, Raw]]:
    """Decode a request: as a chat, its decoded body with the tools of its items, and its encoded fields without the
    input. Raises `CallerError` that names the field at fault, also for one that a chat cannot express."""
    given, ignored = open_body(body), IgnoredFields()
    for name in sorted(given.keys() & _CHATS_OWN):
        if not requests_nothing(name, given[name]):
            message = f"`{name}` is a field of chats, not of Responses."
            raise CallerError(message, param=name, code="unknown_parameter")
    ignored.sift(given, _TRANSLATED | _CHATS_OWN)
    decoded = _decode_fields(given, ignored)
    written = given.pop("input", None)
    if written is None:
        raise CallerError("`input` is missing.", param="input")
    items = items_of(written)
    decoded.tools = [*(decoded.tools or ()), *tools_of(items, ignored)]
    names = ToolNames(decoded.tools)
    chat = {
        "messages": messages_of(items, written, decoded.instructions, names, ignored),
        **chat_fields(decoded, names, ignored),
    }
    fields = {name: raw for name, raw in given.items() if name in _FORWARDED}
    fields |= {name: Raw(_encode(value)) for name, value in chat.items()}
    request = wire.chat_request(fields, len(body), tuple(ignored.ignored))
    request.payload.is_translated = True
    return request, decoded, given


def decode_chat(body: bytes) -> ChatRequest:
    """Decode a chat. A body of Responses is one too: some clients send it to the path of chats, and read a chat's
    answer. Raises `CallerError` that names the field at fault."""
    try:
        return wire.decode_chat(body)
    except CallerError as error:
        given = open_body(body) if error.param == "messages" else {}
        if "input" not in given or "messages" in given:
            raise
    return decode(body)[0]


def _decode_fields(given: dict[str, Raw], ignored: IgnoredFields) -> ResponsesBody:
    own = {name: given[name] for name in ResponsesBody.__struct_fields__ if name in given}
    try:
        return _body.reporting(ignored).decode(_encode(own))
    except decoding.MALFORMED_JSON as error:
        raise _invalid(str(error)) from None


def model_of(body: bytes) -> str | None:
    """The model of a body: "" without one, None for a malformed body."""
    try:
        return mended(_named, body).model
    except decoding.MALFORMED_JSON:
        return None


def decode_native(body: bytes) -> ResponsesRequest:
    """Decode a request for servers with the Responses API, with `store: false`. Raises `CallerError`."""
    given, ignored = open_body(body), IgnoredFields()
    ignored.sift({name: raw for name, raw in given.items() if name in _STATE}, ())
    if "input" not in given:
        raise CallerError("`input` is missing.", param="input")
    request = wire.responses_request({**given, "store": _FALSE}, len(body))
    return replace(request, ignored=tuple(ignored.ignored))


def route_names(field: str) -> Iterable[str]:
    """The names of a chat's fields that a route's rewrite uses for a field of a Response."""
    return [name for name, path in _PARAMS.items() if path.partition(".")[0] == field]


def _invalid(message: str) -> CallerError:
    """Convert msgspec's message: "Expected `int`, got `str` - at `$.max_output_tokens`"."""
    problem, _, where = message.partition(" - at ")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", problem)
    path = [part for part in (where.strip("`").removeprefix("$").lstrip("."), missing and missing[1]) if part]
    param = ".".join(path)
    return CallerError(f"`{param}` is not valid: {problem}." if param else f"{problem}.", param=param or None)
