"""The Response object that a chat's answer becomes."""

import re
import secrets
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.types import Usage
from adapters.wire.reported_usage import MAX_TOKENS
from adapters.wire.responses.tools import CallName, Tool, ToolChoice, ToolNames, tool_fields

# Translates the fields of a Responses request into those of a chat: lengths, formats, wishes.

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


Item = dict[str, Any]

_INCOMPLETE = {
    "length": "max_output_tokens", "model_length": "max_output_tokens", "content_filter": "content_filter",
}  # fmt: skip
_REPEATED = (
    "instructions", "max_output_tokens", "max_tool_calls", "metadata", "prompt_cache_key", "safety_identifier",
    "service_tier", "temperature", "top_p", "user",
)  # fmt: skip


_ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})[0-9a-f]{4}")


class Ids:
    """Unique ids of a response and its items."""

    __slots__ = ("_token", "response")

    def __init__(self) -> None:
        self._token = secrets.token_hex(16)
        self.response = f"resp_{self._token}"

    def item(self, prefix: str, index: int) -> str:
        return f"{prefix}_{self._token}{index:04x}"


def response_of(item: str) -> str | None:
    """The id of the Response that has an item of `Ids`; None for an id of another origin."""
    match = _ITEM_ID.fullmatch(item)
    return None if match is None else f"resp_{match[1]}"


class Shell:
    """A Response without its output: the request's fields that it repeats."""

    __slots__ = ("_repeated", "ids", "names")

    def __init__(self, request: ResponsesBody, given: dict[str, Raw]) -> None:
        self.ids = Ids()
        self.names = ToolNames(request.tools or ())
        reasoning, text = request.reasoning, request.text
        format_ = (
            _line(_formatted(given["text"]).format)
            if text is not None and text.format is not None
            else {"type": "text"}
        )
        self._repeated: dict[str, Any] = {
            "id": self.ids.response,
            "object": "response",
            "created_at": int(time.time()),
            "background": False,
            "model": request.model,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": reasoning and reasoning.effort, "summary": None},
            "store": False,
            "text": {"format": format_, "verbosity": (text and text.verbosity) or "medium"},
            "tool_choice": _line(given["tool_choice"]) if request.tool_choice is not None else "auto",
            "tools": _line(given["tools"]) if isinstance(request.tools, list) and "tools" in given else [],
            "top_logprobs": request.top_logprobs or 0,
            "truncation": "disabled",
            **{name: getattr(request, name) for name in _REPEATED},
        }

    def repeat(self, **fields: Any) -> None:
        """Replace fields that are repeated from the request."""
        self._repeated |= fields

    def response(
        self,
        status: str,
        output: list[Item],
        *,
        finish: str | None = None,
        usage: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The Response object with a status."""
        return {
            **self._repeated,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": error,
            "incomplete_details": {"reason": _INCOMPLETE[finish or ""]} if status == "incomplete" else None,
            "output": output,
            "usage": usage,
        }


def ending(finish: str | None) -> str:
    """The status of a Response for a chat's finish_reason."""
    return "incomplete" if finish in _INCOMPLETE else "completed"


class _Formatted(msgspec.Struct):
    format: Raw


_formatted = msgspec.json.Decoder(_Formatted).decode


def _line(raw: Raw) -> Raw:
    """JSON without line breaks, which would end an event."""
    return Raw(msgspec.json.format(bytes(raw), indent=-1))


# ── items and parts ─────────────────────────────────────────────────────────────────────────


def reasoning(id_: str, content: list[Item], status: str, encrypted: str | None = None) -> Item:
    item = {"type": "reasoning", "id": id_, "summary": [], "content": content, "status": status}
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def output_message(id_: str, content: list[Item], status: str) -> Item:
    return {"type": "message", "id": id_, "role": "assistant", "status": status, "content": content}


def function_call(id_: str, call_id: str, tool: CallName, arguments: str, status: str) -> Item:
    return {
        "type": "function_call",
        "id": id_,
        "call_id": call_id,
        **_named(tool),
        "arguments": arguments,
        "status": status,
    }


def custom_call(id_: str, call_id: str, tool: CallName, text: str, status: str) -> Item:
    return {"type": "custom_tool_call", "id": id_, "call_id": call_id, **_named(tool), "input": text, "status": status}


def _named(tool: CallName) -> Item:
    return {"name": tool.name} | ({} if tool.namespace is None else {"namespace": tool.namespace})


def output_text(text: str, logprobs: list[Item]) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def refusal(text: str) -> Item:
    return {"type": "refusal", "refusal": text}


def reasoning_text(text: str) -> Item:
    return {"type": "reasoning_text", "text": text}


def usage_of(usage: Usage) -> dict[str, Any]:
    """The `usage` of a Response."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
