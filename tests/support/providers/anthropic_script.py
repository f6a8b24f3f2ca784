"""Anthropic's own API, and the clouds that answer with its bytes, as rows of the table of abilities."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tests.servers.stand_ins.anthropic import KEY as OWN_KEY
from tests.servers.stand_ins.anthropic import MODEL, Refused, anthropic, message_of, signature
from tests.support.providers.anthropic_clouds import KEY, LOCATION, PROJECT, WORKSPACE, clouds
from tests.support.providers.script import Failure, Provider, Received, Reply, Script, ToolCall, Turn

Object = dict[str, Any]

FAILURES: Mapping[Failure, Refused] = {
    "no credit": Refused(402, "billing_error", "There is an issue with your billing."),
    "moderation": Refused(400, "invalid_request_error", "Output blocked by content filtering policy"),
    "bad key": Refused(401, "authentication_error", "invalid x-api-key"),
    "rate": Refused(429, "rate_limit_error", "This request would exceed your rate limit."),
}


def play(script: Script, body: Object) -> Object:
    """The message that the script answers a request with."""
    reply = script.next(received(body))
    if reply == "in the stream":
        return message_of(body, [{"type": "text", "text": "a !broken one"}], "end_turn")
    if not isinstance(reply, Reply):
        raise FAILURES[reply]
    content: list[Object] = []
    if reply.thoughts:
        content.append({"type": "thinking", "thinking": reply.thoughts, "signature": signature(reply.thoughts)})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in reply.calls
    ]
    message = message_of(body, content, reply.finish or ("tool_use" if reply.calls else "end_turn"))
    message["id"] = f"msg_{len(script.received)}"  # agents join messages of one id
    counts = reply.counts
    message["usage"] = {
        "input_tokens": counts.prompt - counts.cached, "cache_read_input_tokens": counts.cached,
        "cache_creation_input_tokens": 0, "output_tokens": counts.completion,
    }  # fmt: skip
    return message


def received(body: Object) -> Received:
    """A request in the words of the script."""
    choice, thinking = body.get("tool_choice", {}), body.get("thinking", {}).get("type")
    return Received(
        tuple(turn for message in body["messages"] for turn in _turns(message)),
        tuple(tool["name"] for tool in body.get("tools", ())),
        {"any": "required", "none": "none", "tool": choice.get("name", "")}.get(choice.get("type", ""), ""),
        body.get("output_config", {}).get("format", {}).get("schema"),
        None if thinking is None else thinking != "disabled",
        body["max_tokens"],
        bool(body.get("stream")),
        tuple({"name": tool["name"], "parameters": tool["input_schema"]} for tool in body.get("tools", ())),
    )


def _turns(message: Object) -> list[Turn]:
    """A turn of the script for each result, and one for the rest."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    results = [
        Turn("tool", _text(block.get("content", "")), call_id=block["tool_use_id"], images=_images(block))
        for block in blocks
        if block["type"] == "tool_result"
    ]
    rest = [block for block in blocks if block["type"] != "tool_result"]
    if not rest:
        return results
    thoughts = [block["thinking"] for block in rest if block["type"] == "thinking"]
    calls = [
        ToolCall(block["id"], block["name"], json.dumps(block["input"]))
        for block in rest
        if block["type"] == "tool_use"
    ]
    images = _images({"content": rest})
    return [*results, Turn(message["role"], _text(rest), "".join(thoughts) or None, tuple(calls), images=images)]


def _images(block: Object) -> int:
    content = block.get("content", "")
    return 0 if isinstance(content, str) else sum(part["type"] == "image" for part in content)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def _serve(server: Any, script: Script) -> Any:
    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        async with server() as state:
            state.answer = partial(play, script)
            yield state.url

    return serving()


def _row(system: str, at: Object) -> Provider:
    """A row of Anthropic's own API, or of a cloud."""

    def pool(url: str) -> Object:
        key = KEY if at else OWN_KEY
        return {"endpoints": [url], "key": key, "model": MODEL, "protocol": {"name": "anthropic", **at}}

    return Provider(system, pool, partial(_serve, clouds if at else anthropic), model=MODEL)


CLAUDE = {
    "anthropic": _row("Anthropic", {}),
    "claude-vertex": _row("Claude in Vertex AI", {"at": "vertex", "project": PROJECT, "location": LOCATION}),
    "claude-aws": _row("Claude Platform on AWS", {"at": "aws", "region": "us-east-1", "workspace": WORKSPACE}),
    "claude-foundry": _row("Claude in Microsoft Foundry", {"at": "foundry"}),
}
