"""Bedrock's row in the table of abilities: Claude by Converse."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.providers.bedrock import CLAUDE, KEY, Refused, bedrock
from tests.support.providers.bedrock_shapes import signature
from tests.support.providers.script import Provider, Received, Reply, Script, ToolCall, Turn

Object = dict[str, Any]
_FAILURES = {"no credit": "payment", "moderation": "content", "rate": "ThrottlingException"}
_FAILURES |= {"bad key": "UnrecognizedClientException"}


@asynccontextmanager
async def serve(script: Script) -> AsyncIterator[str]:
    """The stub, which plays a script."""

    def play(body: Object, stream: bool) -> tuple[Object, str]:
        reply = script.next(_received(body, stream))
        if reply == "in the stream":
            return _answer(Reply("one two three")), "!mid ThrottlingException"
        if isinstance(reply, str):
            raise Refused.named(_FAILURES[reply])
        return _answer(reply), ""

    async with bedrock(play=play, refused=script.refused) as server:
        yield server.url


def _received(body: Object, stream: bool) -> Received:
    config, more = body.get("toolConfig", {}), body.get("additionalModelRequestFields", {})
    choice = config.get("toolChoice", {})
    text = body.get("outputConfig", {}).get("textFormat")
    return Received(
        turns=tuple(turn for message in body["messages"] for turn in _turns(message)),
        tools=tuple(tool["toolSpec"]["name"] for tool in config.get("tools", ()) if "toolSpec" in tool),
        demand="required" if "any" in choice else choice.get("tool", {}).get("name", ""),
        schema=json.loads(text["structure"]["jsonSchema"]["schema"]) if text else None,
        thinks=more["thinking"]["type"] != "disabled" if "thinking" in more else None,
        length=body.get("inferenceConfig", {}).get("maxTokens"),
        stream=stream,
        functions=tuple(
            {"name": spec["name"], "parameters": spec["inputSchema"]["json"]}
            for spec in (tool["toolSpec"] for tool in config.get("tools", ()) if "toolSpec" in tool)
        ),
    )


def _turns(message: Object) -> Iterator[Turn]:
    """The results of tools, and the rest of a turn."""
    rest = list[Object]()
    for block in message["content"]:
        if (result := block.get("toolResult")) is not None:
            parts = result["content"]
            text, images = "".join(part.get("text", "") for part in parts), sum("image" in part for part in parts)
            yield Turn("tool", text, call_id=result["toolUseId"], images=images)
        else:
            rest.append(block)
    if rest:
        calls = [block["toolUse"] for block in rest if "toolUse" in block]
        thoughts = [block["reasoningContent"]["reasoningText"]["text"] for block in rest if "reasoningContent" in block]
        yield Turn(
            message["role"],
            "".join(block.get("text", "") for block in rest),
            "".join(thoughts) if thoughts else None,
            tuple(ToolCall(call["toolUseId"], call["name"], json.dumps(call["input"])) for call in calls),
            images=sum("image" in block for block in rest),
        )


def _answer(reply: Reply) -> Object:
    content = list[Object]()
    if reply.thoughts:
        thought = {"text": reply.thoughts, "signature": signature(reply.thoughts)}
        content.append({"reasoningContent": {"reasoningText": thought}})
    if reply.text:
        content.append({"text": reply.text})
    for call in reply.calls:
        content.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": json.loads(call.arguments)}})
    counts = reply.counts
    usage = {"inputTokens": counts.prompt - counts.cached, "cacheReadInputTokens": counts.cached}
    usage |= {"outputTokens": counts.completion, "totalTokens": counts.prompt + counts.completion}
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if reply.calls else "end_turn",
        "usage": usage,
        "metrics": {"latencyMs": 1},
    }


BEDROCK = Provider(
    "Bedrock, Converse",
    lambda url: {"endpoints": [url], "key": KEY, "model": CLAUDE, "protocol": "bedrock"},
    serve,
    model=CLAUDE,
)
