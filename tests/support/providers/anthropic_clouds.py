"""Anthropic's Messages as Vertex AI, Bedrock, Claude Platform on AWS and Microsoft Foundry serve them, on one port.

Each cloud has its own paths and refuses what the others require. The answers are those of Anthropic's stand-in.
"""

import base64
import json
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web
from anthropic._constants import ANTHROPIC_API_VERSION
from anthropic.types import message_count_tokens_params

from tests.servers.stand_ins import anthropic as own
from tests.servers.stand_ins.anthropic import MODEL, Anthropic, Refused
from tests.servers.stand_ins.serving import serving

Object = dict[str, Any]

KEY = "cloud-key"
PROJECT, LOCATION, WORKSPACE = "acme-prod", "europe-west1", "wrkspc_01"
ARN = f"arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/{MODEL}"
BETAS = frozenset({"interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "tool-search-tool-2025-10-19"})
"""The betas that every cloud knows. Foundry and AWS know all."""
_VERTEX = f"/v1/projects/{PROJECT}/locations/{LOCATION}/publishers/anthropic/models"
_HINTS = {"service_tier", "speed", "inference_geo"}


@dataclass
class Clouds(Anthropic):
    """A running one. `paths` are those of its requests, `sent` the whole bodies as the client wrote them."""

    def __post_init__(self) -> None:
        self.paths: list[str] = []
        self.verify: Callable[[web.Request, bytes], bool] = lambda request, body: False
        """Checks a SigV4 signature."""

    @property
    def sent(self) -> list[Object]:
        return [json.loads(raw) for raw in self.raw]


@asynccontextmanager
async def clouds() -> AsyncIterator[Clouds]:
    """The four clouds on a free port."""
    state = Clouds()
    app = web.Application(middlewares=[_in_shape])
    app[_STATE] = state
    app.add_routes(
        [
            web.post(f"{_VERTEX}/{{call}}", partial(_vertex, state)),
            web.post("/model/{model}/invoke", partial(_bedrock, state)),
            web.post("/model/{model}/invoke-with-response-stream", partial(_bedrock, state)),
            web.post("/model/{model}/count-tokens", partial(_bedrock_count, state)),
            web.post("/anthropic/v1/messages", partial(_foundry, state)),
            web.post("/v1/messages", partial(_aws, state)),
            web.get("/v1/models", _models),
        ]
    )
    async with serving(app) as state.url:
        yield state


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"data": []})


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


_STATE = web.AppKey("state", Clouds)


@web.middleware
async def _in_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    state = request.app[_STATE]
    try:
        raw = await request.read()
        if request.method == "POST":
            state.raw.append(raw)
            state.paths.append(request.raw_path)
            state.headers = {name.lower(): value for name, value in request.headers.items()}
        return await handler(request)
    except Refused as error:
        if request.path.startswith("/model/"):
            kind = _EXCEPTIONS.get(error.status, "InternalServerException")
            headers = {"x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/"}
            return web.json_response({"message": str(error)}, status=error.status, headers=headers)
        return web.json_response(error.body, status=error.status, headers=error.headers)


_EXCEPTIONS = {
    400: "ValidationException", 403: "AccessDeniedException", 404: "ResourceNotFoundException",
    424: "ModelErrorException", 429: "ThrottlingException", 529: "ServiceUnavailableException",
}  # fmt: skip


def _refuse(wrong: str) -> Refused:
    return Refused(400, "invalid_request_error", wrong)


def _check_body(body: Object, versions: Iterable[str], absent: Iterable[str]) -> Object:
    """The body as Anthropic's own API takes it."""
    if body.get("anthropic_version") not in {*versions, ANTHROPIC_API_VERSION}:
        raise _refuse("anthropic_version: Field required")
    for name in (*absent, *_HINTS):
        if name in body:
            raise _refuse(f"{name}: Extra inputs are not permitted")
    if '"scope"' in json.dumps(body):
        raise _refuse("system.0.cache_control.ephemeral.scope: Extra inputs are not permitted")
    return {name: value for name, value in body.items() if name not in ("anthropic_version", "anthropic_beta")}


def _check_betas(betas: Iterable[str]) -> None:
    if unknown := sorted(set(betas) - BETAS):
        raise _refuse(f"Unexpected value(s) `{unknown[0]}` for the `anthropic-beta` header.")


def _checked(state: Clouds, body: Object, **kind: Any) -> Object:
    return own.checked(state, json.dumps(body).encode(), **kind)


# ── Vertex AI ─────────────────────────────────────────────────────────────────────────────────────────────


async def _vertex(state: Clouds, request: web.Request) -> web.StreamResponse:
    if request.headers.get("authorization") != f"Bearer {KEY}":
        message = "Request had invalid authentication credentials."
        error = {"code": 401, "message": message, "status": "UNAUTHENTICATED"}
        return web.json_response({"error": error}, status=401)
    if "anthropic-version" in request.headers:
        raise _refuse("anthropic-version: the version belongs in the body")
    _check_betas(filter(None, request.headers.get("anthropic-beta", "").split(",")))
    model, _, verb = request.match_info["call"].partition(":")
    sent = json.loads(await request.read())
    if model == "count-tokens":
        body = _check_body(sent, ["vertex-2023-10-16"], ["stream", "max_tokens"])
        kind = message_count_tokens_params.MessageCountTokensParams
        return web.json_response({"input_tokens": own.words(_checked(state, body, kind=kind))})
    body = _check_body(sent, ["vertex-2023-10-16"], ["model"])
    if model != MODEL:
        error = {"code": 404, "message": f"Publisher Model `{model}` was not found.", "status": "NOT_FOUND"}
        return web.json_response({"error": error}, status=404)
    if verb != ("streamRawPredict" if body.get("stream") else "rawPredict"):
        raise _refuse("stream: the method of the URL does not match")
    if _last_text(body) == "!quota":
        error = {"code": 429, "message": "Quota exceeded for aiplatform.googleapis.com", "status": "RESOURCE_EXHAUSTED"}
        return web.json_response({"error": error}, status=429)
    return await _answer(request, _checked(state, {**body, "model": model}))


def _last_text(body: Object) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[-1].get("text"))


async def _answer(request: web.Request, body: Object) -> web.StreamResponse:
    message = own.answered(body)
    if not body.get("stream"):
        return web.json_response(message)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in own.events(message):
        await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return response


# ── Bedrock ───────────────────────────────────────────────────────────────────────────────────────────────


def _authorize(state: Clouds, request: web.Request, body: bytes) -> None:
    given = request.headers.get("authorization", "")
    if given != f"Bearer {KEY}" and not (given.startswith("AWS4-HMAC-SHA256 ") and state.verify(request, body)):
        raise Refused(403, "", "The security token included in the request is invalid.")


def _of_bedrock(state: Clouds, request: web.Request, raw: bytes) -> Object:
    if "anthropic-version" in request.headers:
        raise _refuse("the version belongs in the body")
    sent = json.loads(raw)
    body = _check_body(sent, ["bedrock-2023-05-31"], ["model", "stream"])
    betas = sent.get("anthropic_beta", [])
    if unknown := sorted(set(betas) - BETAS):
        raise _refuse(f"invalid beta flag {unknown[0]}")
    model = request.match_info["model"]
    if model not in (MODEL, ARN):
        raise _refuse("The provided model identifier is invalid.")
    streams = request.path.endswith("-stream")
    return _checked(state, {**body, "model": MODEL, **({"stream": True} if streams else {})})


async def _bedrock(state: Clouds, request: web.Request) -> web.StreamResponse:
    raw = await request.read()
    _authorize(state, request, raw)
    body = _of_bedrock(state, request, raw)
    message = own.answered(body)
    if not body.get("stream"):
        return web.json_response(message)
    response = web.StreamResponse(headers={"content-type": "application/vnd.amazon.eventstream"})
    await response.prepare(request)
    for event in own.events(message):
        await response.write(chunk(event))
        if "!broken" in event.get("delta", {}).get("text", ""):
            await response.write(failure("modelStreamErrorException", "The model failed."))
            return response
    return response


async def _bedrock_count(state: Clouds, request: web.Request) -> web.StreamResponse:
    raw = await request.read()
    _authorize(state, request, raw)
    inner = base64.b64decode(json.loads(raw)["input"]["invokeModel"]["body"], validate=True)
    return web.json_response({"inputTokens": own.words(_of_bedrock(state, request, inner))})


def chunk(event: Object) -> bytes:
    """A frame with one event of Anthropic's."""
    inner = {"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcdefgh"}
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(inner).encode())


def failure(kind: str, message: str) -> bytes:
    """A frame that ends a stream with an exception."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps({"message": message}).encode())


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """A frame of AWS's event stream, with texts as headers."""
    encoded = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    head = prelude + struct.pack(">I", zlib.crc32(prelude)) + encoded + payload
    return head + struct.pack(">I", zlib.crc32(head))


# ── Foundry and AWS: Anthropic's own bodies ───────────────────────────────────────────────────────────────


async def _foundry(state: Clouds, request: web.Request) -> web.StreamResponse:
    headers = request.headers
    given = headers.get("x-api-key"), headers.get("api-key"), headers.get("authorization")
    if given not in ((KEY, KEY, None), (None, None, f"Bearer {KEY}")):
        raise Refused(401, "authentication_error", "Access denied due to invalid subscription key or wrong endpoint.")
    return await _of_its_own(state, request)


async def _aws(state: Clouds, request: web.Request) -> web.StreamResponse:
    if request.headers.get("x-api-key") != KEY:
        _authorize(state, request, await request.read())
    if request.headers.get("anthropic-workspace-id") != WORKSPACE:
        raise _refuse("anthropic-workspace-id: header is required")
    return await _of_its_own(state, request)


async def _of_its_own(state: Clouds, request: web.Request) -> web.StreamResponse:
    if request.headers.get("anthropic-version") not in ("2023-06-01", ANTHROPIC_API_VERSION):
        raise _refuse("anthropic-version: header is required")
    return await _answer(request, own.checked(state, await request.read()))
