"""vLLM's OpenAI server with a thinking model of Qwen: what it refuses, how it streams, and how it names thoughts.

Fields that it does not know are ignored. A chat that its parsers or the model's template cannot take is refused.

Source: the server's code, its version 0.26, and the chat template of Qwen 3.5, November 2026.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

from aiohttp import web

from tests.servers.stand_ins.serving import serving
from tests.support.providers.openai_like import Row, received
from tests.support.providers.script import Counts, Failure, Provider, Reply, Script, ToolCall

Object = dict[str, Any]
Thoughts = Literal["reasoning", "reasoning_content"]
"""The field of thoughts: before 0.12 it was `reasoning_content`, in both directions."""
KEY, MODEL = "token-of-vllm", "Qwen/Qwen3.5-9B"
CONTEXT = 262_144
"""Its `max_model_len`."""
_PARTS = frozenset(["text", "refusal", "thinking", "image_url", "input_audio", "audio_url", "video_url"])
_EFFORTS = frozenset(["none", "minimal", "low", "medium", "high", "xhigh", "max"])


class Refused(Exception):
    """A refusal of the server."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, kind: str = "BadRequestError"):
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@asynccontextmanager
async def serve(script: Script, thoughts: Thoughts = "reasoning") -> AsyncIterator[str]:
    """The URL of a server that plays a script."""
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_post("/v1/chat/completions", partial(_chat, script, thoughts))
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/health", _healthy)
    app.router.add_get("/version", _version)
    app.router.add_get("/metrics", _metrics)
    async with serving(app) as url:
        yield url


async def _healthy(_: web.Request) -> web.Response:
    return web.Response()


async def _version(_: web.Request) -> web.Response:
    return web.json_response({"version": "0.26.0"})


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(text="# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0.0\n")


async def _models(http: web.Request) -> web.Response:
    if http.headers.get("authorization") != f"Bearer {KEY}":
        return web.json_response({"error": "Unauthorized"}, status=401)
    permission = {"id": "modelperm-1", "object": "model_permission", "created": 1, "allow_sampling": True}
    card = {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": MODEL, "parent": None}
    card |= {"max_model_len": CONTEXT, "permission": [permission]}
    return web.json_response({"object": "list", "data": [card]})


async def _chat(script: Script, thoughts: Thoughts, http: web.Request) -> web.StreamResponse:
    if http.headers.get("authorization") != f"Bearer {KEY}":
        return web.json_response({"error": "Unauthorized"}, status=401)
    body = await http.json()
    try:
        for fault in _faults(body):
            raise fault
        reply = script.next(received(_row(thoughts), body))
        if isinstance(reply, str) and reply != "in the stream":
            raise _FAILURES[reply]
    except Refused as error:
        if error not in _FAILURES.values():
            script.refused.append(str(error))
        return web.json_response(error.body, status=error.status)
    played = reply if isinstance(reply, Reply) else Reply("half of it")
    if not body.get("stream"):
        return web.json_response(_whole(body, played, thoughts))
    return await _streamed(http, body, played, thoughts, is_broken=played is not reply)


_FAILURES: dict[Failure, Refused] = {
    "rate": Refused("The server is overloaded.", status=503, kind="ServiceUnavailableError"),
}
"""It has no accounts and judges no content."""


def _row(thoughts: Thoughts) -> Row:
    """The words of a request, with thoughts only in the field that this version reads."""

    def thinks(body: Object) -> bool | None:
        for turn in body["messages"]:
            turn.pop("reasoning" if thoughts == "reasoning_content" else "reasoning_content", None)
        given: bool | None = (body.get("chat_template_kwargs") or {}).get("enable_thinking")
        return given

    return Row("vllm", "vLLM", "/v1", thinks=thinks, thoughts=thoughts)


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def _faults(body: Object) -> Iterator[Refused]:
    """Why the server refuses a body, in its order: the fields, the model, the turns, the template, the length."""
    yield from _fields(body)
    yield from _tools(body)
    if body.get("model") not in (None, MODEL):
        yield Refused(f"The model `{body['model']}` does not exist.", "model", 404, "NotFoundError")
    for turn in body["messages"]:
        yield from _turn(turn)
    yield from _template(body["messages"])
    length = body.get("max_completion_tokens") or body.get("max_tokens") or 1
    if length > CONTEXT:
        yield Refused(
            f"max_tokens={length} cannot be greater than max_model_len={CONTEXT}. (parameter=max_tokens, "
            f"value={length})",
            "max_tokens",
        )


def _fields(body: Object) -> Iterator[Refused]:
    if body.get("stream_options") and not body.get("stream"):
        yield Refused("Stream options can only be defined when `stream=True`.", "stream_options")
    if body.get("top_logprobs") and not body.get("logprobs"):
        yield Refused("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    if body.get("reasoning_effort", "none") not in _EFFORTS | {None}:
        yield _invalid("reasoning_effort", "Input should be 'none', 'minimal', 'low', 'medium', 'high' or 'xhigh'")
    if (salt := body.get("cache_salt")) is not None and not (isinstance(salt, str) and salt):
        yield Refused("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    form = body.get("response_format") or {}
    if form.get("type", "text") not in ("text", "json_object", "json_schema", "structural_tag"):
        yield _invalid("response_format", "Input should be 'text', 'json_object' or 'json_schema'")
    if form.get("type") == "json_schema" and form.get("json_schema") is None:
        yield Refused("When response_format type is 'json_schema', the 'json_schema' field must be provided.")


def _invalid(place: str, message: str) -> Refused:
    """The form of a value with a wrong type."""
    text = f"1 validation error:\n  {{'type': 'literal_error', 'loc': ('body', '{place}'), 'msg': {message!r}}}"
    return Refused(text, place, kind="Bad Request")


def _tools(body: Object) -> Iterator[Refused]:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools == []:
        yield Refused("`tools` must not be an empty array. Either provide at least one tool or omit the field.")
    for tool in tools or ():
        if tool.get("type") != "function":
            yield _invalid("tools", "Input should be 'function'")
    if choice in (None, "none"):
        return
    if not tools:
        yield Refused("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        if name not in [tool["function"]["name"] for tool in tools or ()]:
            yield Refused("The tool specified in `tool_choice` does not match any of the specified `tools`")
    elif choice not in ("auto", "required"):
        yield Refused(f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required"')


def _turn(turn: Object) -> Iterator[Refused]:
    content = turn.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") not in _PARTS:
            kinds = ", ".join(sorted(_PARTS))
            yield Refused(
                f"Unsupported chat content part type: {part.get('type')!r}. Supported types: {kinds}.", "type"
            )
    for call in turn.get("tool_calls") or ():
        try:
            json.loads(call["function"].get("arguments") or "{}")
        except ValueError as error:
            yield Refused(str(error))


def _template(turns: list[Object]) -> Iterator[Refused]:
    """What the template of the model raises."""
    if not any(turn["role"] == "user" for turn in turns):
        yield Refused("No user query found in messages.")
    for at, turn in enumerate(turns):
        if turn["role"] == "system" and at:
            yield Refused("System message must be at the beginning.")
        elif turn["role"] not in ("system", "user", "assistant", "tool"):
            yield Refused("Unexpected message role.")


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def _usage(counts: Counts) -> Object:
    """With `--enable-prompt-tokens-details`."""
    total = counts.prompt + counts.completion
    usage: Object = {"prompt_tokens": counts.prompt, "total_tokens": total, "completion_tokens": counts.completion}
    return usage | {"prompt_tokens_details": {"cached_tokens": counts.cached} if counts.cached else None}


def _finish(body: Object, reply: Reply) -> str:
    """A named tool ends with `stop`."""
    is_named = isinstance(body.get("tool_choice"), dict)
    return reply.finish or ("tool_calls" if reply.calls and not is_named else "stop")


def _whole(body: Object, reply: Reply, thoughts: Thoughts) -> Object:
    empty = dict.fromkeys(("refusal", "annotations", "audio", "function_call"))
    message = {"role": "assistant", "content": reply.text or None, **empty, thoughts: reply.thoughts or None}
    if reply.calls or thoughts == "reasoning_content":
        message["tool_calls"] = [_call(call) for call in reply.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(body, reply)}
    choice |= {"stop_reason": None, "token_ids": None}
    rest = dict.fromkeys(("service_tier", "system_fingerprint", "prompt_logprobs", "prompt_token_ids", "metrics"))
    head = {"id": "chatcmpl-8f2a", "object": "chat.completion", "created": 1, "model": body.get("model", MODEL)}
    return head | {"choices": [choice], "usage": _usage(reply.counts), "kv_transfer_params": None} | rest


def _call(call: ToolCall) -> Object:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _events(body: Object, reply: Reply, thoughts: Thoughts) -> Iterator[Object]:
    head = {"id": "chatcmpl-8f2a", "object": "chat.completion.chunk", "created": 1, "model": body.get("model", MODEL)}

    def chunk(delta: Object, finish: str | None = None, **rest: Any) -> Object:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
        return head | {"choices": [choice | ({"stop_reason": None} if finish else {})]} | rest

    yield chunk({"role": "assistant", "content": ""}, prompt_token_ids=None)
    for piece in _pieces(reply.thoughts):
        yield chunk({thoughts: piece})
    for piece in _pieces(reply.text):
        yield chunk({"content": piece})
    for at, call in enumerate(reply.calls):
        # The parsers leave out the arguments of the first piece, and the type and the id of the others.
        yield chunk({"tool_calls": [{"id": call.id, "type": "function", "index": at, "function": {"name": call.name}}]})
        for piece in _pieces(call.arguments):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({"content": ""} if not reply.calls else {}, _finish(body, reply))
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = {name: value for name, value in _usage(reply.counts).items() if value is not None}
        yield head | {"choices": [], "usage": usage}


def _pieces(text: str) -> Iterator[str]:
    """Tokens of three characters."""
    return (text[start : start + 3] for start in range(0, len(text), 3))


async def _streamed(
    http: web.Request, body: Object, reply: Reply, thoughts: Thoughts, *, is_broken: bool
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(http)
    for number, event in enumerate(_events(body, reply, thoughts)):
        if is_broken and number == 2:
            error = Refused("EngineCore encountered an issue.", status=500, kind="InternalServerError")
            await response.write(_data(error.body))
            break
        await response.write(_data(event))
    await response.write(b"data: [DONE]\n\n")
    return response


def _data(event: Object) -> bytes:
    return f"data: {json.dumps(event, separators=(',', ':'), ensure_ascii=False)}\n\n".encode()


def vllm(thoughts: Thoughts = "reasoning") -> Provider:
    """The server as one of the agents' matrix and of the checks of abilities, by its list of models alone."""
    return Provider(
        "vLLM",
        lambda url: {"endpoints": [url], "key": KEY, "model": MODEL, "protocol": "openai"},
        lambda script: serve(script, thoughts),
        model=MODEL,
        replays_thoughts=True,
    )
