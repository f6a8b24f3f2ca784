"""Azure OpenAI: deployments with dated versions, and v1, with the filter of content of both.

The last message decides: `!hate` is refused by the filter of prompts, `!filtered` has its answer cut by the filter,
`!burst` finds the quota of the second exhausted. Every other text is repeated.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from tests.servers.stand_ins.serving import serving

Object = dict[str, Any]

KEY, TOKEN = "azure-key", "entra-token"
DEPLOYMENT = "gpt-5-eu"
VERSION = "2024-10-21"
_SAFE = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}
_HATE = {**_SAFE, "hate": {"filtered": True, "severity": "high"}, "jailbreak": {"filtered": False, "detected": False}}
FILTERED: Object = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": _HATE},
    }
}
MOST_INPUTS = 2048


@dataclass
class Azure:
    """A running one: the targets and bodies of its requests."""

    url: str = ""
    targets: list[str] = field(default_factory=list)
    bodies: list[Object] = field(default_factory=list)


@asynccontextmanager
async def azure() -> AsyncIterator[Azure]:
    """It on a free port."""
    state = Azure()
    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", partial(_answer, state))])
    async with serving(app) as state.url:
        yield state


def _error(status: int, message: str, code: str | None = None, **headers: str) -> web.Response:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    return web.json_response(body, status=status, headers=headers)


async def _answer(state: Azure, http: web.Request) -> web.StreamResponse:
    state.targets.append(http.raw_path)
    keys = [name for name in ("api-key", "authorization") if name in http.headers]
    if len(keys) != 1 or http.headers[keys[0]] not in (KEY, f"Bearer {TOKEN}"):
        message = "Access denied due to invalid subscription key or wrong API endpoint."
        return _error(401, message, "401")
    dated = re.fullmatch(r"/openai/deployments/([^/]+)(/.*)", http.path)
    is_v1 = http.path.startswith("/openai/v1/")
    path = dated[2] if dated else http.path.removeprefix("/openai/v1" if is_v1 else "/openai")
    version = http.query.get("api-version")
    if (version is None) != is_v1 and version != "preview":
        return _error(404, "Resource not found", "404")
    if http.method == "GET":
        return web.json_response({"data": [{"id": DEPLOYMENT, "object": "model"}]})
    body = json.loads(await http.read())
    state.bodies.append(body)
    if path == "/responses":  # never below a deployment
        return _error(404, "Resource not found", "404") if dated else web.json_response(_response(body))
    if (dated[1] if dated else body.get("model")) != DEPLOYMENT:
        return _error(404, "The API deployment for this resource does not exist.", "DeploymentNotFound")
    if path == "/embeddings":
        return _embeddings(body)
    return await _chat(http, body)


def _embeddings(body: Object) -> web.Response:
    inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
    if len(inputs) > MOST_INPUTS:
        return _error(400, f"Invalid 'input': array too long. Expected at most {MOST_INPUTS} items.")
    data = [{"object": "embedding", "index": i, "embedding": [0.5]} for i in range(len(inputs))]
    usage = {"prompt_tokens": len(inputs), "total_tokens": len(inputs)}
    return web.json_response({"object": "list", "data": data, "model": "embed", "usage": usage})


def _response(body: Object) -> Object:
    content = [{"type": "output_text", "text": str(body["input"]), "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": body["model"],
            "output": [message], "usage": usage}  # fmt: skip


async def _chat(http: web.Request, body: Object) -> web.StreamResponse:
    last = body["messages"][-1]["content"]
    text = last if isinstance(last, str) else str(last[-1].get("text"))
    old = http.query.get("api-version", "9") < "2024-09"
    refused = "max_completion_tokens" if old else "max_tokens"
    for name in (refused, *(["stream_options"] if old else [])):
        if name in body:
            return _error(
                400, f"Unsupported parameter: '{name}' is not supported with this model.", "unsupported_parameter"
            )
    if text == "!hate":
        return web.json_response(FILTERED, status=400)
    if text == "!burst":
        headers = {"retry-after-ms": "1500", "retry-after": "2", "x-ratelimit-remaining-requests": "0"}
        return _error(
            429, "Requests have exceeded the call rate limit. Please retry after 2 seconds.", "429", **headers
        )
    finish = "content_filter" if text == "!filtered" else "stop"
    headers = {"x-ratelimit-remaining-requests": "9", "x-ratelimit-remaining-tokens": "999"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    if not body.get("stream"):
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5", "usage": usage,
                 "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _SAFE}],
                 "choices": [{**choice, "content_filter_results": _HATE if finish != "stop" else _SAFE}]}  # fmt: skip
        return web.json_response(whole, headers=headers)
    response = web.StreamResponse(headers={"content-type": "text/event-stream", **headers})
    await response.prepare(http)
    for chunk in _chunks(text, finish, usage if body.get("stream_options") else None):
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


def _chunks(text: str, finish: str, usage: Object | None) -> Iterator[Object]:
    """The first has no choice and no id, the last but one is of the asynchronous filter: a choice without a delta."""
    prompt = [{"prompt_index": 0, "content_filter_results": _SAFE}]
    yield {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": prompt}
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    deltas: list[Object] = [{"role": "assistant", "content": "", "refusal": None}, {"content": text}]
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None, "content_filter_results": {}}
        yield {**base, "choices": [choice]}
    offsets = {"check_offset": 0, "start_offset": 0, "end_offset": len(text)}
    late = {"index": 0, "finish_reason": None, "content_filter_offsets": offsets, "content_filter_results": _SAFE}
    yield {"id": "", "object": "", "created": 0, "model": "", "choices": [late]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    if usage is not None:
        yield {**base, "choices": [], "usage": usage}
