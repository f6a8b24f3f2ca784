"""What the strictest servers of chats demand of a request: OpenAI, Azure, Groq, Mistral and DeepSeek in one."""

import json
import re
from typing import Any

from adapters.requests import ChatRequest

_FIELDS = frozenset({
    "max_tokens", "messages", "model", "parallel_tool_calls", "reasoning_effort", "response_format", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_p", "user", "verbosity",
})  # fmt: skip
_MESSAGE = frozenset({"content", "extra_content", "reasoning_content", "refusal", "role", "tool_call_id", "tool_calls"})
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXT = {"text"}
_USER = {"text", "image_url", "file", "input_audio"}


def accepted(request: ChatRequest, *, answered: bool = True, thinks: bool = False) -> dict[str, Any]:
    """The body that a strict server accepts. `answered`: each call has a result. `thinks`: each call has a thought."""
    body = {name: json.loads(bytes(raw)) for name, raw in request.fields.items()}
    assert body.keys() <= _FIELDS
    tools = body.get("tools")
    assert tools or not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()
    names = [tool["function"]["name"] for tool in tools or ()]
    assert all(_NAME.fullmatch(name) for name in names)
    assert len(set(names)) == len(names)
    _check(body["messages"], answered=answered, thinks=thinks)
    return body


def _check(messages: list[dict[str, Any]], *, answered: bool, thinks: bool) -> None:
    assert messages
    calls: list[str] = []
    for index, message in enumerate(messages):
        role, content = message["role"], message["content"]
        assert message.keys() <= _MESSAGE
        assert role in ("system", "user", "assistant", "tool")
        assert role != "system" or index == 0 or messages[index - 1]["role"] != "system" or index > 1
        if role == "tool":
            calls.remove(message["tool_call_id"])
        else:
            assert not calls or not answered
            calls = [call["id"] for call in message.get("tool_calls", ())]
            assert all(_NAME.fullmatch(call["function"]["name"]) for call in message.get("tool_calls", ()))
            assert not calls or not thinks or message["reasoning_content"]
        if content is None:
            assert calls or message["refusal"]
        elif isinstance(content, list):
            assert content
            assert {part["type"] for part in content} <= (_USER if role == "user" else _TEXT)
    assert not calls or not answered
