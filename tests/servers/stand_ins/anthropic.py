"""Anthropic's API as its own client library describes it: fields that the library does not define are refused.

The last message decides the answer. `!NAME` causes the failure of that name, `think` adds thinking where allowed,
`call` calls every tool; every other text is repeated.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web
from anthropic.types import message_count_tokens_params, message_create_params

from tests.servers.stand_ins.serving import serving
from tests.servers.stand_ins.typed_dicts import mistakes

KEY = "sk-ant-stand-in"
MODEL = "claude-stand-in"
CONTEXT = 1000
"""Words that a prompt may have."""
_SAMPLING = {"temperature", "top_k", "top_p"}
"""Fields of older models, which the library no longer names."""
Object = dict[str, Any]


class Refused(Exception):
    """An error of the API."""

    def __init__(self, status: int, type_: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.type = type_
        self.headers = headers

    @property
    def body(self) -> Object:
        return {"type": "error", "error": {"type": self.type, "message": str(self)}, "request_id": "req_stand_in"}


FAILURES = {
    "overloaded": Refused(529, "overloaded_error", "Overloaded"),
    "rate": Refused(429, "rate_limit_error", "This request would exceed your rate limit.", **{"retry-after": "7"}),
    "long": Refused(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
    "large": Refused(413, "request_too_large", "Request exceeds the maximum size"),
    "api": Refused(500, "api_error", "Internal server error"),
    "timeout": Refused(504, "timeout_error", "Request timed out"),
    "credit": Refused(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "billing": Refused(402, "billing_error", "There is an issue with your billing."),
    "permission": Refused(403, "permission_error", "Your API key does not have permission."),
}


@dataclass
class Anthropic:
    """A running one. `bodies` are the requests that it took, `headers` what came with the last."""

    url: str = ""
    bodies: list[Object] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    running: int = 0


@asynccontextmanager
async def anthropic() -> AsyncIterator[Anthropic]:
    """The stand-in on a free port."""
    state = Anthropic()
    app = web.Application(middlewares=[_in_shape])
    app.add_routes(
        [
            web.post("/v1/messages", partial(_message, state)),
            web.post("/v1/messages/count_tokens", partial(_count, state)),
            web.get("/v1/models", _models),
        ]
    )
    async with serving(app) as state.url:
        yield state


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _in_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        if request.headers.get("x-api-key") != KEY:
            raise Refused(401, "authentication_error", "invalid x-api-key")
        if request.headers.get("anthropic-version") != "2023-06-01":
            raise Refused(400, "invalid_request_error", "anthropic-version: header is required")
        return await handler(request)
    except Refused as error:
        return web.json_response(error.body, status=error.status, headers=error.headers)
    except web.HTTPException as error:
        refused = Refused(error.status, "not_found_error", error.reason)
        return web.json_response(refused.body, status=error.status)


async def _models(request: web.Request) -> web.Response:
    model = {"type": "model", "id": MODEL, "display_name": "Stand-in", "created_at": "2026-01-01T00:00:00Z"}
    return web.json_response({"data": [model], "has_more": False, "first_id": MODEL, "last_id": MODEL})


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


async def _body_of(state: Anthropic, request: web.Request, kind: Any) -> Object:
    if request.content_type != "application/json":
        raise Refused(415, "invalid_request_error", "Unsupported media type")
    raw = await request.read()
    state.raw.append(raw)
    state.headers = {name.lower(): value for name, value in request.headers.items()}
    return checked(state, raw, kind)


def checked(state: Anthropic, raw: bytes, kind: Any = message_create_params.MessageCreateParams) -> Object:
    """The fields of a body, if the library defines them all and the turns are in order."""
    try:
        body: Object = json.loads(raw)
    except ValueError:
        raise Refused(400, "invalid_request_error", "The request body is not valid JSON") from None
    for wrong in mistakes({name: value for name, value in body.items() if name not in _SAMPLING}, kind):
        raise Refused(400, "invalid_request_error", wrong)
    if body["model"] != MODEL:
        raise Refused(404, "not_found_error", f"model: {body['model']}")
    if not 0 <= body.get("temperature", 1) <= 1:
        raise Refused(400, "invalid_request_error", "temperature: range: 0..1")
    _check_turns(body["messages"])
    state.bodies.append(body)
    return body


def _check_turns(messages: list[Object]) -> None:
    if not messages or messages[0]["role"] != "user":
        raise Refused(400, "invalid_request_error", "messages: first message must use the user role")
    open_calls = set[str]()
    for i, message in enumerate(messages):
        blocks = _blocks(message)
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if open_calls - results:
            wrong = f"messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately after"
            raise Refused(400, "invalid_request_error", wrong)
        if results - open_calls:
            raise Refused(
                400, "invalid_request_error", f"messages.{i}: unexpected `tool_use_id` in `tool_result` blocks"
            )
        for block in blocks:
            if block["type"] == "text" and not block["text"]:
                raise Refused(400, "invalid_request_error", "messages: text content blocks must be non-empty")
            if block["type"] == "thinking" and block["signature"] != _signature(block["thinking"]):
                raise Refused(400, "invalid_request_error", f"messages.{i}: Invalid `signature` in `thinking` block")
        open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}


def _blocks(message: Object) -> list[Object]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _signature(thought: str) -> str:
    return hashlib.sha256(thought.encode()).hexdigest()


def words(body: Object) -> int:
    """The tokens of a prompt."""
    return len(json.dumps([body.get("system"), body["messages"], body.get("tools")]).split())


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def answered(body: Object) -> Object:
    """The answer to a message."""
    last = [block for block in _blocks(body["messages"][-1]) if block["type"] == "text"]
    prompt = last[-1]["text"] if last else "what the tool found"
    if prompt.startswith("!") and (failure := FAILURES.get(prompt[1:])):
        raise failure
    content = list[Object]()
    if "think" in prompt and body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        thought = "Let me see."
        content.append({"type": "thinking", "thinking": thought, "signature": _signature(thought)})
    if body.get("output_config", {}).get("format"):
        prompt = json.dumps({"said": prompt})
    for stop in body.get("stop_sequences", ()):
        if stop in prompt:
            text = prompt.partition(stop)[0]
            return _message_of(body, [*content, {"type": "text", "text": text}], "stop_sequence", stop)
    if "call" in prompt and body.get("tools") and body.get("tool_choice", {}).get("type") != "none":
        calls = [
            {"type": "tool_use", "id": f"toolu_{i}", "name": tool["name"], "input": {"n": i} if i else {}}
            for i, tool in enumerate(body["tools"])
        ]
        return _message_of(body, [*content, {"type": "text", "text": "One moment."}, *calls], "tool_use")
    words = prompt.split(" ")
    reason = "max_tokens" if len(words) > body["max_tokens"] else "end_turn"
    return _message_of(body, [*content, {"type": "text", "text": " ".join(words[: body["max_tokens"]])}], reason)


def _message_of(body: Object, content: list[Object], reason: str, sequence: str | None = None) -> Object:
    cached = 5 if "cache_control" in json.dumps(body) else 0
    return {
        "id": "msg_stand_in",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": {
            "input_tokens": words(body),
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": sum(len(json.dumps(block).split()) for block in content),
        },
    }


async def _message(state: Anthropic, request: web.Request) -> web.StreamResponse:
    body = await _body_of(state, request, message_create_params.MessageCreateParams)
    state.running += 1
    try:
        if not body.get("stream"):
            return web.json_response(answered(body), headers={"request-id": "req_stand_in"})
        message = answered(body)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in events(message):
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            text = event.get("delta", {}).get("text", "")
            if "!broken" in text:
                error = FAILURES["overloaded"].body
                await response.write(f"event: error\ndata: {json.dumps(error)}\n\n".encode())
                return response
            await asyncio.sleep(0.05 if "slow" in text else 0)
        return response
    finally:
        state.running -= 1


_EMPTY: dict[str, Object] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}


def events(message: Object) -> Iterator[Object]:
    """The events of its stream."""
    usage = {**message["usage"], "output_tokens": 1}
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for i, block in enumerate(message["content"]):
        yield {"type": "content_block_start", "index": i, "content_block": {**block, **_EMPTY[block["type"]]}}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": i, "delta": delta}
        yield {"type": "content_block_stop", "index": i}
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


def _deltas(block: Object) -> Iterator[Object]:
    if block["type"] == "text":
        for i, word in enumerate(block["text"].split(" ")):
            yield {"type": "text_delta", "text": f" {word}" if i else word}
    elif block["type"] == "thinking":
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["input"]:
        written = json.dumps(block["input"])
        yield {"type": "input_json_delta", "partial_json": written[:3]}
        yield {"type": "input_json_delta", "partial_json": written[3:]}


async def _count(state: Anthropic, request: web.Request) -> web.Response:
    body = await _body_of(state, request, message_count_tokens_params.MessageCountTokensParams)
    return web.json_response({"input_tokens": words(body)})
