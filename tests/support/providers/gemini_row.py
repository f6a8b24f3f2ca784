"""Gemini's rows in the table of abilities: the Gemini API, and Vertex AI, whose calls have no ids."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tests.support.providers.gemini import KEY, LOCATION, MODEL, PROJECT, TOKEN, Played, Refused, gemini
from tests.support.providers.gemini_faults import signature
from tests.support.providers.script import Counts, Failure, Provider, Received, Reply, Script, ToolCall, Turn

Object = dict[str, Any]
_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}
_INVALID = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
_FAILURES: dict[Failure, Refused] = {
    "no credit": Refused(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted. Please go to AI Studio."),
    "bad key": Refused(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", _INVALID),
    "rate": Refused(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota for requests a minute.", _RETRY),
}


@asynccontextmanager
async def serve(script: Script, *, has_ids: bool) -> AsyncIterator[str]:
    """The stub, which plays a script."""
    made = list[ToolCall]()

    def play(body: Object, model: str) -> Played:
        reply = script.next(_received(body, made))
        if reply == "moderation":
            return Played([], _usage(Counts()), "SAFETY")
        if reply == "in the stream":
            return Played([{"text": word} for word in ("one", "two", "three")], _usage(Counts()), breaks=True)
        if isinstance(reply, str):
            raise _FAILURES[reply]
        made.extend(reply.calls)
        return Played(_parts(reply, has_ids=has_ids), _usage(reply.counts), reply.finish or "STOP")

    async with gemini(play) as server:
        server.refused = script.refused
        yield server.url


def _parts(reply: Reply, *, has_ids: bool) -> list[Object]:
    parts = list[Object]()
    if reply.thoughts:
        parts.append({"text": reply.thoughts, "thought": True})
    if reply.text:
        parts.append({"text": reply.text})
    for place, call in enumerate(reply.calls):
        function = {"name": call.name, "args": json.loads(call.arguments)} | ({"id": call.id} if has_ids else {})
        parts.append({"functionCall": function} | ({} if place else {"thoughtSignature": signature(call.name)}))
    return parts


def _usage(counts: Counts) -> Object:
    """The thoughts are beside the answer, the cached tokens a part of the prompt."""
    usage = {
        "promptTokenCount": counts.prompt,
        "candidatesTokenCount": counts.completion - counts.reasoning,
        "totalTokenCount": counts.prompt + counts.completion,
    }
    usage |= {"thoughtsTokenCount": counts.reasoning} if counts.reasoning else {}
    return usage | ({"cachedContentTokenCount": counts.cached} if counts.cached else {})


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def _received(body: Object, made: list[ToolCall]) -> Received:
    """A request in words of no provider. Calls without ids have those of the script's calls."""
    config, choice = body.get("generationConfig", {}), body.get("toolConfig", {}).get("functionCallingConfig", {})
    tools = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    mode, allowed = choice.get("mode", ""), choice.get("allowedFunctionNames", ())
    thinking = config.get("thinkingConfig")
    functions = ({"name": tool["name"], "parameters": tool.get("parametersJsonSchema", {})} for tool in tools)
    return Received(
        turns=tuple(_turns(body["contents"], made)),
        tools=tuple(tool["name"] for tool in tools),
        demand={"ANY": "".join(allowed) or "required", "NONE": "none"}.get(mode, ""),
        schema=config.get("responseJsonSchema"),
        thinks=None if thinking is None else bool(thinking.get("includeThoughts")),
        length=config.get("maxOutputTokens"),
        functions=tuple(functions),
    )


def _turns(contents: list[Object], made: list[ToolCall]) -> Iterator[Turn]:
    """A turn of the script for each result, and one for the rest."""
    due = list[ToolCall]()
    for content in contents:
        parts = content["parts"]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        for result, call in zip(results, due, strict=True) if results else ():
            given = result["response"]
            output = given.get("output")
            text = output if isinstance(output, str) else json.dumps(given)
            yield Turn("tool", text, call_id=result.get("id") or call.id, images=_images(result.get("parts", ())))
        parts = [part for part in parts if "functionResponse" not in part]
        if not parts:
            continue
        due = [_call(part["functionCall"], made) for part in parts if "functionCall" in part]
        thoughts = [part["text"] for part in parts if part.get("thought")]
        yield Turn(
            "assistant" if content.get("role") == "model" else "user",
            "".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
            "".join(thoughts) if thoughts else None,
            tuple(due),
            images=_images(parts),
        )


def _call(function: Object, made: list[ToolCall]) -> ToolCall:
    arguments = json.dumps(function.get("args", {}))
    ids = (call.id for call in made if (call.name, json.loads(call.arguments)) == (function["name"], function["args"]))
    return ToolCall(function.get("id") or next(ids, ""), function["name"], arguments)


def _images(parts: Any) -> int:
    return sum("image/" in part.get("inlineData", {}).get("mimeType", "") for part in parts)


_VERTEX = {"name": "vertex", "project": PROJECT, "location": LOCATION}
GEMINI = {
    "gemini-api": Provider(
        "Gemini",
        lambda url: {"endpoints": [url], "key": KEY, "model": MODEL, "protocol": "gemini"},
        partial(serve, has_ids=True),
        model=MODEL,
        filters=True,
    ),
    "gemini-vertex": Provider(
        "Gemini in Vertex AI",
        lambda url: {"endpoints": [url], "key": TOKEN, "model": MODEL, "protocol": _VERTEX},
        partial(serve, has_ids=False),
        model=MODEL,
        filters=True,
    ),
}
