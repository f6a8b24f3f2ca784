"""Translates the fields of a Responses request into those of a chat: lengths, formats, wishes."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.wire.openai.ignored_fields import IgnoredFields
from adapters.wire.reported_usage import MAX_TOKENS
from adapters.wire.responses.tools import Tool, ToolChoice, ToolNames, tool_fields

_ABSENT = Raw(b"")
_INCLUDE = frozenset({
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "message.output_text.logprobs", "reasoning.encrypted_content",
    "web_search_call.action.sources", "web_search_call.results",
})  # fmt: skip
"""Values of `include`. All but the log probabilities concern items that a chat's response does not have."""


class Reasoning(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The model's reasoning effort."""

    effort: str | None = None
    summary: str | None = None


class TextFormat(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The format of the text; `schema` and the fields after it belong to `json_schema`."""

    type: str
    name: str | None = None
    schema: Raw = _ABSENT
    description: str | None = None
    strict: bool | None = None


class ResponseText(msgspec.Struct, forbid_unknown_fields=True):
    """Options of the response's text."""

    format: TextFormat | None = None
    verbosity: str | None = None


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_obfuscation: bool | None = None
    include_usage: Any = None


class ResponsesBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request's fields, beside its input, that the response repeats or that a chat has in another form."""

    model: str
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    reasoning: Reasoning | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: float | None = None
    text: ResponseText | None = None
    tool_choice: str | ToolChoice | None = None
    tools: list[Tool] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    top_p: float | None = None
    user: str | None = None


def chat_fields(request: ResponsesBody, names: ToolNames, hints: IgnoredFields) -> dict[str, Any]:
    """The fields of a chat without its messages. Raises `CallerError` for fields that a chat cannot express."""
    tools = tool_fields(names, request.tool_choice, request.parallel_tool_calls)
    return {**_limits(request), **_wishes(request, hints), **_format(request), **tools}


def _limits(request: ResponsesBody) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.max_output_tokens is not None:
        fields["max_tokens"] = request.max_output_tokens
    if request.stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return fields


def _wishes(request: ResponsesBody, hints: IgnoredFields) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        hints.ignore("include_obfuscation")
    if set(request.include or ()) - _INCLUDE:
        hints.ignore("include")
    if request.top_logprobs or "message.output_text.logprobs" in (request.include or ()):
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    if request.reasoning is not None:
        if request.reasoning.summary not in (None, "auto"):
            hints.ignore("reasoning.summary")
        if request.reasoning.effort is not None:
            fields["reasoning_effort"] = request.reasoning.effort
    return fields


def _format(request: ResponsesBody) -> dict[str, Any]:
    text = request.text
    if text is None:
        return {}
    fields: dict[str, Any] = {} if text.verbosity in (None, "medium") else {"verbosity": text.verbosity}
    format_ = text.format
    if format_ is None or format_.type == "text":
        return fields
    if format_.type == "json_object":
        return {**fields, "response_format": {"type": "json_object"}}
    if format_.type != "json_schema" or format_.name is None or format_.schema == _ABSENT:
        message = "`text.format` is text, json_object, or a json_schema with name and schema."
        raise CallerError(message, param="text.format")
    schema: dict[str, Any] = {"name": format_.name, "schema": format_.schema}
    schema |= {} if format_.strict is None else {"strict": format_.strict}
    schema |= {} if format_.description is None else {"description": format_.description}
    return {**fields, "response_format": {"type": "json_schema", "json_schema": schema}}
