"""Translates a chat's response into a Response object."""

import re
import secrets
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.types import Usage
from adapters.wire import decoding
from adapters.wire.openai import kept_signatures
from adapters.wire.openai.chat_usage import ChatUsage
from adapters.wire.responses.chat_fields import ResponsesBody
from adapters.wire.responses.custom_input import input_of
from adapters.wire.responses.tools import CallName, ToolNames

Item = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_REPEATED = (
    "instructions", "max_output_tokens", "max_tool_calls", "metadata", "prompt_cache_key", "safety_identifier",
    "service_tier", "temperature", "top_p", "user",
)  # fmt: skip


class Function(msgspec.Struct):
    """The function of a call, or of a piece of one."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct):
    """A tool call or a piece of one; pieces of one call have the same `index`."""

    function: Function | None = None
    index: Annotated[int, Meta(ge=0)] | None = None
    id: str | None = None
    extra_content: Raw = Raw(b"")


class ChatMessage(msgspec.Struct):
    """A message or a piece of one. Servers have two names for reasoning."""

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def thought(self) -> str | None:
        return self.reasoning_content or self.reasoning


class LogProbs(msgspec.Struct):
    """Log probabilities of the content's tokens, which have the same form in both APIs."""

    content: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct):
    message: ChatMessage
    finish_reason: str | None = None
    logprobs: LogProbs | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    usage: ChatUsage | None = None


_ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})[0-9a-f]{4}")
_completion = msgspec.json.Decoder(_Completion).decode


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


def whole(body: bytes, shell: Shell, counted: Usage) -> bytes:
    """Translate a chat's response. Raises `BackendError`."""
    decoded = decoding.decode(_completion, body)
    choice = decoded.choices[0]
    status = ending(choice.finish_reason)
    output = _items(choice.message, shell.ids, shell.names, status, choice.logprobs)
    usage = usage_of(decoded.usage, counted)
    return _encode(shell.response(status, output, finish=choice.finish_reason, usage=usage))


def _items(message: ChatMessage, ids: Ids, names: ToolNames, status: str, logprobs: LogProbs | None) -> list[Item]:
    items: list[Item] = []
    if message.thought:
        items.append(reasoning(ids.item("rs", 0), [reasoning_text(message.thought)], "completed"))
    parts = [refusal(message.refusal)] if message.refusal else []
    if message.content or not (parts or message.tool_calls):
        parts.insert(0, output_text(message.content or "", (logprobs and logprobs.content) or []))
    if parts:
        items.append(output_message(ids.item("msg", len(items)), parts, status))
    for call in message.tool_calls or ():
        if call.function is None or not call.function.name:
            raise decoding.bad_response("The upstream's response has a function call without a name.")
        call_id = call.id or ids.item("call", len(items))
        if (kept := kept_signatures.encode(call_id, call.extra_content)) is not None:
            items.append(reasoning(ids.item("rs", len(items)), [], "completed", kept))
        tool, arguments = names.of_call(call.function.name), call.function.arguments or ""
        id_ = ids.item(tool.prefix, len(items))
        if tool.is_custom:
            items.append(custom_call(id_, call_id, tool, input_of(arguments), status))
        else:
            items.append(function_call(id_, call_id, tool, arguments, status))
    return items


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


def usage_of(reported: ChatUsage | None, counted: Usage) -> dict[str, Any]:
    """The usage that the server reports, or else the gateway's count."""
    prompt, completion, cached, written, thought = counted.prompt_tokens, counted.completion_tokens, 0, 0, 0
    if reported is not None:
        prompt, completion = reported.prompt_tokens or 0, reported.completion_tokens or 0
        if reported.prompt_tokens_details is not None:
            cached = reported.prompt_tokens_details.cached_tokens or 0
            written = reported.prompt_tokens_details.cache_write_tokens or 0
        if reported.completion_tokens_details is not None:
            thought = reported.completion_tokens_details.reasoning_tokens or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": prompt + completion,
    }
