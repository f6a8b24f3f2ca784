"""Stubs of hosted APIs of OpenAI's family: one row each, as strict as the provider. Independent of the product's table.

Sources: the API references and official clients of the providers, November 2026.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.servers.stand_ins.serving import serving
from tests.support.providers.openai_like_errors import refusal
from tests.support.providers.script import Counts, Failure, Provider, Received, Reply, Script, ToolCall, Turn

Object = dict[str, Any]
KEY = "key-of-the-account"
ID = "chatcmpl-1"
THOUGHT = "hm hm"
"""Of a turn that this stub has answered itself."""

_COMMON = frozenset({
    "model", "messages", "stream", "stream_options", "temperature", "top_p", "stop", "tools", "tool_choice",
    "response_format", "max_tokens", "max_completion_tokens", "n",
})  # fmt: skip
_TURN = frozenset(["role", "content", "name", "tool_calls", "tool_call_id", "refusal"])
_THOUGHTS = frozenset(["reasoning", "reasoning_content", "reasoning_details", "thinking_blocks", "extra_content"])


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────────────


def usual(counts: Counts) -> Object:
    """OpenAI's."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def bare(counts: Counts) -> Object:
    """Without details."""
    return {name: value for name, value in usual(counts).items() if isinstance(value, int)}


def _deepseek(counts: Counts) -> Object:
    hit = {"prompt_cache_hit_tokens": counts.cached, "prompt_cache_miss_tokens": counts.prompt - counts.cached}
    return bare(counts) | hit | {"completion_tokens_details": {"reasoning_tokens": counts.reasoning}}


def _xai(counts: Counts) -> Object:
    """The completion is without the reasoning, the total is with it."""
    return usual(counts) | {"completion_tokens": counts.completion - counts.reasoning, "num_sources_used": 0}


def _mistral(counts: Counts) -> Object:
    return bare(counts) | {"num_cached_tokens": counts.cached, "prompt_audio_seconds": None}


def _moonshot(counts: Counts) -> Object:
    return bare(counts) | {"cached_tokens": counts.cached}


def _perplexity(counts: Counts) -> Object:
    """The reasoning is beside the completion, and in no total."""
    visible = Counts(counts.prompt, 0, counts.completion - counts.reasoning)
    return bare(visible) | {
        "reasoning_tokens": counts.reasoning,
        "citation_tokens": 7,
        "num_search_queries": 2,
    }


def _databricks(counts: Counts) -> Object:
    return bare(counts) | {"cache_read_input_tokens": counts.cached}


def _openrouter(counts: Counts) -> Object:
    return usual(counts) | {"cost": 0.01, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────

Thinks = Callable[[Object], bool | None]


def _no_switch(_: Object) -> None:
    return None


def _typed(body: Object) -> bool | None:
    return None if (given := body.get("thinking")) is None else given["type"] == "enabled"


def _effort(body: Object) -> bool | None:
    return None if (given := body.get("reasoning_effort")) is None else given != "none"


def _flat(body: Object) -> bool | None:
    return body.get("enable_thinking")


def _openrouter_switch(body: Object) -> bool | None:
    if (given := body.get("reasoning")) is None:
        return None
    assert not {"effort", "max_tokens"} <= given.keys(), "only one of effort and max_tokens"
    return bool(given.get("enabled", True))


@dataclass(frozen=True, slots=True)
class Row:
    """One provider."""

    name: str
    system: str
    root: str
    fields: frozenset[str] | None = None
    """The closed list of its fields, beside the common ones; None if it ignores fields that are not its own."""
    refused: frozenset[str] = frozenset()
    length: frozenset[str] = frozenset({"max_tokens", "max_completion_tokens"})
    choices: frozenset[str] = frozenset({"auto", "none", "required", "named"})
    efforts: frozenset[str] | None = None
    thinks: Thinks = _no_switch
    thoughts: Literal["", "reasoning", "reasoning_content", "chunks", "summary", "details"] = ""
    """The form of thoughts in its answers."""
    back: frozenset[str] = frozenset()
    """The fields of thoughts that it takes back."""
    replay: Callable[[list[Object], str], Iterator[str]] = lambda turns, model: iter(())
    """The faults of a history."""
    usage: Callable[[Counts], Object] = usual
    place: Literal["last", "choice", "x_groq"] = "last"
    always: bool = False
    """Whether a stream reports usage without `stream_options`."""
    calls: Literal["pieces", "whole", "objects"] = "pieces"
    comment: bytes = b""
    lacks: Mapping[str, str] = field(default_factory=dict)
    model: str = "m"
    key_header: str = "authorization"


def _loop(turns: list[Object], model: str) -> Iterator[str]:
    """DeepSeek: before v4 no thoughts of earlier questions, from v4 on thoughts in each turn."""
    last = max(at for at, turn in enumerate(turns) if turn["role"] == "user")
    for at, turn in enumerate(turns):
        if turn["role"] == "assistant" and "v4" in model and turn.get("reasoning_content") is None:
            yield "reasoning_content is missing in assistant message"
        if "v4" not in model and at < last and "reasoning_content" in turn:
            yield "reasoning_content must not be in the input"


def _all(turns: list[Object], _: str) -> Iterator[str]:
    calls = [turn for turn in turns if turn.get("tool_calls")]
    if any(turn.get("reasoning_content") for turn in turns):
        yield from (
            "reasoning_content is missing in assistant tool call message"
            for turn in calls
            if "reasoning_content" not in turn
        )


def _details(turns: list[Object], _: str) -> Iterator[str]:
    """OpenRouter: the details of a loop of tools go back unchanged."""
    for turn in turns:
        if (
            turn.get("tool_calls")
            and turn.get("reasoning") == THOUGHT
            and turn.get("reasoning_details") != [detail(THOUGHT)]
        ):
            yield "reasoning_details were changed"


def _filled(turns: list[Object], _: str) -> Iterator[str]:
    for turn in turns:
        if turn["role"] == "assistant" and not turn.get("content") and not turn.get("tool_calls"):
            yield "Assistant message must have either content or tool_calls, but not none."


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


TOO_PLAIN = {"cache": "It reports no tokens of a cache."}
NO_SWITCH = {"thinking": "It has no switch for thinking. `reasoning_effort` goes on."}
ROWS = [
    Row("openai", "OpenAI", "/v1", refused=_set("max_tokens"), length=_set("max_completion_tokens"), lacks=NO_SWITCH),
    Row("azure", "Azure OpenAI", "/openai/v1", refused=_set("max_tokens"), length=_set("max_completion_tokens"),
        lacks=NO_SWITCH, key_header="api-key"),
    Row("mistral", "Mistral", "/v1", length=_set("max_tokens"), efforts=_set("high none"), thinks=_effort,
        fields=_set("random_seed parallel_tool_calls presence_penalty frequency_penalty prompt_mode reasoning_effort "
                    "safe_prompt prediction metadata prompt_cache_key guardrails") - {"stream_options"},
        refused=_set("stream_options max_completion_tokens"), thoughts="chunks", replay=_filled, usage=_mistral,
        always=True, calls="objects", choices=_set("auto none any required named")),
    Row("groq", "Groq", "/openai/v1", refused=_set("logprobs top_logprobs logit_bias name"), thoughts="reasoning",
        back=_set("reasoning"), place="x_groq", lacks=NO_SWITCH),
    Row("gemini", "Gemini, OpenAI API", "/v1beta/openai", lacks=NO_SWITCH, back=_set("extra_content")),
    Row("vertex", "Vertex AI, OpenAI API", "/v1/projects/P/locations/L/endpoints/openapi", lacks=NO_SWITCH,
        back=_set("extra_content")),
    Row("bedrock", "Bedrock, OpenAI API", "/openai/v1", usage=bare, lacks=TOO_PLAIN | NO_SWITCH),
    Row("deepseek", "DeepSeek", "/v1", refused=_set("seed max_completion_tokens top_k logit_bias"),
        length=_set("max_tokens"), thinks=_typed, thoughts="reasoning_content", back=_set("reasoning_content"),
        replay=_loop, usage=_deepseek, comment=b": keep-alive\n\n", model="deepseek-chat",
        lacks={"images": "Its models read no images.", "schema": "It has `json_object` only."}),
    Row("xai", "xAI", "/v1", refused=_set("presence_penalty frequency_penalty stop logit_bias max_tokens"),
        length=_set("max_completion_tokens"), thoughts="reasoning_content", usage=_xai, calls="whole", model="grok-4",
        lacks=NO_SWITCH),
    Row("openrouter", "OpenRouter", "/api/v1", thinks=_openrouter_switch, thoughts="details",
        back=_set("reasoning reasoning_details"), replay=_details, usage=_openrouter,
        comment=b": OPENROUTER PROCESSING\n\n"),
    Row("together", "Together", "/v1", refused=_set("max_completion_tokens"), length=_set("max_tokens"),
        thinks=lambda body: body.get("reasoning", {}).get("enabled"), thoughts="reasoning", usage=bare,
        lacks=TOO_PLAIN),
    Row("fireworks", "Fireworks", "/inference/v1", thinks=_typed, thoughts="reasoning_content",
        back=_set("reasoning_content")),
    Row("cerebras", "Cerebras", "/v1", refused=_set("frequency_penalty presence_penalty logit_bias max_tokens"),
        length=_set("max_completion_tokens"), thoughts="reasoning", back=_set("reasoning"),
        lacks=NO_SWITCH | {"images": "Its models read no images."}),
    Row("perplexity", "Perplexity", "", refused=_set("tools tool_choice max_completion_tokens stream_options n seed"),
        length=_set("max_tokens"), usage=_perplexity, always=True,
        lacks=TOO_PLAIN | NO_SWITCH | dict.fromkeys(("tools", "parallel tools"), "It calls no tools of clients.")),
    Row("cohere", "Cohere, OpenAI API", "/compatibility/v1", choices=_set("required none"),
        refused=_set("logit_bias top_logprobs n modalities prediction audio service_tier parallel_tool_calls metadata "
                     "store user max_completion_tokens"),
        length=_set("max_tokens"), efforts=_set("high none"), thinks=_effort, usage=bare, lacks=TOO_PLAIN,
        replay=_filled),
    Row("moonshot", "Moonshot", "/v1", length=_set("max_tokens"), refused=_set("max_completion_tokens"), thinks=_typed,
        thoughts="reasoning_content", back=_set("reasoning_content"), replay=_all, usage=_moonshot, place="choice"),
    Row("zai", "Z.ai", "/api/paas/v4", length=_set("max_tokens"), thinks=_typed, thoughts="reasoning_content",
        back=_set("reasoning_content"), refused=_set("max_completion_tokens seed user n logprobs parallel_tool_calls"),
        lacks={"schema": "It has `json_object` only."}),
    Row("dashscope", "DashScope", "/compatible-mode/v1", length=_set("max_tokens"), thinks=_flat,
        thoughts="reasoning_content", back=_set("reasoning_content"), refused=_set("max_completion_tokens")),
    Row("deepinfra", "DeepInfra", "/v1/openai", length=_set("max_tokens"), refused=_set("max_completion_tokens"),
        thoughts="reasoning_content", back=_set("reasoning_content"), lacks=NO_SWITCH),
    Row("github", "GitHub Models", "/inference", lacks=NO_SWITCH),
    Row("databricks", "Databricks", "/serving-endpoints", length=_set("max_tokens"), thinks=_typed,
        refused=_set("max_completion_tokens"), usage=_databricks, thoughts="summary"),
    Row("huggingface", "Hugging Face router", "/v1", usage=bare, lacks=TOO_PLAIN | NO_SWITCH),
    Row("cloudflare", "Cloudflare", "/client/v4/accounts/A/ai/v1", length=_set("max_tokens"), usage=bare,
        refused=_set("max_completion_tokens"), lacks=TOO_PLAIN | NO_SWITCH),
]  # fmt: skip


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def faults(row: Row, body: Object) -> Iterator[str]:
    """Why the provider refuses a body."""
    if row.fields is not None:
        yield from (f"{name}: extra inputs are not permitted" for name in body.keys() - row.fields - _COMMON)
    yield from (f"Unsupported parameter: {name}" for name in row.refused & body.keys())
    if (effort := body.get("reasoning_effort")) is not None and row.efforts is not None and effort not in row.efforts:
        yield f"reasoning_effort: {effort}"
    choice: Any = body.get("tool_choice")
    if choice is not None and ("named" if isinstance(choice, dict) else choice) not in row.choices:
        yield f"tool_choice: {choice}"
    if "images" in row.lacks and '"image_url"' in json.dumps(body["messages"]):
        yield "image_url: unknown variant"
    if "schema" in row.lacks and body.get("response_format", {}).get("type") == "json_schema":
        yield "response_format: this type is unavailable now"
    due: list[str] = []
    for turn in body["messages"]:
        allowed = (_TURN | row.back) - ({"name"} & row.refused)
        yield from (f"messages: unknown {name}" for name in turn.keys() - allowed)
        if turn["role"] == "tool":
            if turn["tool_call_id"] not in due:
                yield f"tool_call_id {turn['tool_call_id']} is not one of {due}"
            due = [id_ for id_ in due if id_ != turn["tool_call_id"]]
            continue
        if due:
            yield f"calls {due} have no results"
        due = [call["id"] for call in turn.get("tool_calls") or ()]
        for call in turn.get("tool_calls") or ():
            yield from (f"tool_calls: unknown {name}" for name in call.keys() & (_THOUGHTS - row.back))
            json.loads(call["function"]["arguments"])
    yield from row.replay(body["messages"], body["model"])


def received(row: Row, body: Object) -> Received:
    """A request in words of no provider."""
    schema = body.get("response_format") or {}
    choice: Any = body.get("tool_choice") or ""
    tools: list[str] = [tool["function"]["name"] for tool in body.get("tools", ())]
    words = {"any": "required", "auto": ""}
    demand = choice["function"]["name"] if isinstance(choice, dict) else words.get(choice, choice)
    return Received(
        tuple(_turn(turn) for turn in body["messages"]),
        tuple(tools),
        tools[0] if demand == "required" and "named" not in row.choices and len(tools) == 1 else demand,
        schema.get("json_schema", {}).get("schema"),
        row.thinks(body),
        next((body[name] for name in sorted(row.length) if name in body), None),
        bool(body.get("stream")),
        tuple(tool["function"] for tool in body.get("tools") or ()),
    )  # fmt: skip


def _turn(turn: Object) -> Turn:
    content = turn.get("content")
    parts: list[Object] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    thoughts = [one["text"] for part in parts if part["type"] == "thinking" for one in part["thinking"]]
    own = turn.get("reasoning_content", turn.get("reasoning"))
    if details := turn.get("reasoning_details"):
        own = "".join(detail.get("text", "") for detail in details)
    calls = [
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in turn.get("tool_calls") or ()
    ]
    return Turn(
        turn["role"],
        "".join(part["text"] for part in parts if part["type"] == "text"),
        "".join(thoughts) if thoughts else own,
        tuple(calls),
        turn.get("tool_call_id", ""),
        sum(part["type"] == "image_url" for part in parts),
    )


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def whole(row: Row, reply: Reply) -> Object:
    """A whole answer."""
    message: Object = {"role": "assistant", "content": reply.text or None}
    if reply.thoughts and row.thoughts in _PARTS:
        text = [{"type": "text", "text": reply.text}] if reply.text else []
        message["content"] = [_PARTS[row.thoughts](reply.thoughts), *text]
    elif reply.thoughts and row.thoughts:
        message |= _thoughts(row, reply.thoughts)
    if reply.calls:
        message["tool_calls"] = [_call(row, call, at) for at, call in enumerate(reply.calls)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return _envelope("chat.completion", choices=[choice], usage=row.usage(reply.counts))


def events(row: Row, reply: Reply, *, usage: bool) -> Iterator[Object]:
    """The chunks of a stream."""

    def chunk(delta: Object, finish: str | None = None, **rest: Any) -> Object:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, **rest}
        return _envelope("chat.completion.chunk", choices=[choice])

    yield chunk({"role": "assistant", "content": ""})
    half = len(reply.thoughts) // 2
    for piece in (reply.thoughts[:half], reply.thoughts[half:]) if row.thoughts and reply.thoughts else ():
        made = {"content": [_PARTS[row.thoughts](piece)]} if row.thoughts in _PARTS else _thoughts(row, piece)
        yield chunk(made)
        if row.name == "xai":
            yield chunk(made)  # it may repeat a piece
    for piece in (reply.text[:2], reply.text[2:]) if reply.text else ():
        yield chunk({"content": [{"type": "text", "text": piece}] if row.thoughts in _PARTS else piece})
    for at, call in enumerate(reply.calls):
        first = _call(row, call, at) | {"index": 0 if row.calls == "objects" else at}
        if row.calls != "pieces":
            yield chunk({"tool_calls": [first]})
            continue
        yield chunk({"tool_calls": [first | {"function": {"name": call.name, "arguments": ""}}]})
        for piece in (call.arguments[:3], call.arguments[3:]):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    counts = row.usage(reply.counts)
    if row.place == "choice":
        yield chunk({}, _finish(reply), usage=counts)
    elif row.place == "x_groq":
        yield chunk({}, _finish(reply)) | {"x_groq": {"id": "req_1", "usage": counts}}
    elif row.always:
        yield chunk({}, _finish(reply)) | {"usage": counts}
    else:
        yield chunk({}, _finish(reply))
    if usage and row.place == "last" and not row.always:
        yield _envelope("chat.completion.chunk", choices=[], usage=counts)


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _thinking(text: str) -> Object:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _summary(text: str) -> Object:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text, "signature": ""}]}


_PARTS: dict[str, Callable[[str], Object]] = {"chunks": _thinking, "summary": _summary}
"""Thoughts as parts of the content."""


def _thoughts(row: Row, text: str) -> Object:
    if row.thoughts == "details":
        return {"reasoning": text, "reasoning_details": [detail(text)]}
    return {row.thoughts: text}


def detail(text: str) -> Object:
    """OpenRouter's, which it wants back unchanged."""
    return {"type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0}


def _call(row: Row, call: ToolCall, at: int) -> Object:
    arguments: Any = json.loads(call.arguments) if row.calls == "objects" and at % 2 else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _envelope(kind: str, **fields: Any) -> Object:
    return {"id": ID, "object": kind, "created": 1, "model": "m", "system_fingerprint": "fp_1", **fields}


# ── server ────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def serve(row: Row, script: Script) -> AsyncIterator[str]:
    """The URL of a stub, with the path that the provider documents."""

    async def chat(http: web.Request) -> web.StreamResponse:
        expected = KEY if row.key_header == "api-key" else f"Bearer {KEY}"
        if http.headers.get(row.key_header) != expected:
            return _refused(row, "bad key")
        body = await http.json()
        if wrong := list(faults(row, body)):
            script.refused += wrong
            return web.json_response({"error": {"message": wrong[0], "type": "invalid_request_error"}}, status=400)
        reply = script.next(received(row, body))
        if isinstance(reply, str) and reply != "in the stream":
            return _refused(row, reply)
        if not body.get("stream"):
            return web.json_response(whole(row, reply if isinstance(reply, Reply) else Reply()))
        return await _streamed(http, row, body, reply)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": row.model, "object": "model", "owned_by": "x"}]})

    async def rerank(http: web.Request) -> web.Response:
        """Cohere's own call: a text with a word of the question is near to it."""
        if http.headers.get("authorization") != f"Bearer {KEY}":
            return _refused(row, "bad key")
        body = await http.json()
        if wrong := body.keys() - {"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"}:
            script.refused += wrong
            return web.json_response({"message": f"unknown field: {wrong.pop()}"}, status=400)
        words = set(body["query"].split())
        scores = [len(words & set(text.split())) / len(words) for text in body["documents"]]
        ranked = sorted(range(len(scores)), key=lambda at: -scores[at])[: body.get("top_n")]
        results = [{"index": at, "relevance_score": scores[at]} for at in ranked]
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
        return web.json_response({"id": "rank-1", "results": results, "meta": meta})

    app = web.Application()
    app.router.add_post(f"{row.root}/chat/completions", chat)
    if row.name == "cohere":
        app.router.add_post("/v2/rerank", rerank)
    if row.name not in ("perplexity", "databricks", "github", "cloudflare", "cohere", "vertex", "bedrock"):
        app.router.add_get(f"{row.root}/models", models)
    async with serving(app) as url:
        yield url + row.root


def _refused(row: Row, failure: Failure) -> web.Response:
    status, body = refusal(row.name, failure)
    return web.json_response(body, status=status)


async def _streamed(http: web.Request, row: Row, body: Object, reply: Reply | Failure) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(http)
    if row.comment:
        await response.write(row.comment)
    options = body.get("stream_options") or {}
    played = reply if isinstance(reply, Reply) else Reply("half of it")
    for number, event in enumerate(events(row, played, usage=bool(options.get("include_usage")))):
        if isinstance(reply, str) and number == 2:
            name = b"event: error\n" if row.name == "groq" else b""
            await response.write(name + _data(refusal(row.name, "in the stream")[1]))
            break
        await response.write(_data(event))
        await asyncio.sleep(0)
    else:
        await response.write(b"data: [DONE]\n\n")
    return response


def _data(event: Object) -> bytes:
    return f"data: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


def provider(row: Row) -> Provider:
    """The row as a row of the table of abilities."""
    return Provider(
        row.system,
        lambda url: {"protocol": {"name": "openai", "dialect": row.name}, "endpoints": [url], "key": KEY,
                     "model": row.model},
        lambda script: serve(row, script),
        row.lacks,
        row.model,
        bool(row.thoughts),
        bool(row.back and row.thoughts) or row.name == "mistral",
    )  # fmt: skip
