"""The Response object that a chat's answer becomes."""

import re
import secrets
import time
from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire.responses.chat_fields import ResponsesBody
from adapters.wire.responses.tools import CallName, ToolNames

Item = dict[str, Any]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
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
