"""The Gemini API and Vertex AI on loopback, as strict as Google's.

The last text of the user decides the answer. `!NAME` causes the failure of that name, `think` adds thoughts where they
are shown, `call` calls every tool; every other text is repeated.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web

from tests.servers.stand_ins.serving import serving
from tests.support.providers import gemini_caches
from tests.support.providers.gemini_caches import Caches
from tests.support.providers.gemini_faults import faults, is_new, signature

KEY = "AIzaGeminiStandIn"
OTHER_KEY = "AIzaAnotherAccount"
TOKEN = "ya29.stand-in"
MODEL = "gemini-3-flash"
PROJECT, LOCATION = "acme-1", "europe-west4"
CONTEXT = 1000
"""Words that a prompt may have."""
Object = dict[str, Any]
_PLACE = re.compile(
    r"/(?P<version>v1|v1beta|v1beta1)(?P<vertex>/projects/[^/]+/locations/[^/]+)?"
    r"(?:/(?:publishers/google/)?models/(?P<model>[^/:]+)|/endpoints/(?P<endpoint>[^/:]+)):(?P<verb>\w+)"
)
_CACHES = "/{version:v1|v1beta|v1beta1}/{place:(?:projects/[^/]+/locations/[^/]+/)?}cachedContents"


_OPAQUE = {"args", "response", "properties", "parametersJsonSchema", "responseJsonSchema", "instances", "parameters"}


class Refused(Exception):
    """An error of the API."""

    def __init__(self, code: int, status: str, message: str, *details: Object) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = details

    @property
    def body(self) -> Object:
        error: Object = {"code": self.code, "message": str(self), "status": self.status}
        return {"error": error | ({"details": list(self.details)} if self.details else {})}


class Fault(Refused):
    """A refusal of a request that Google's parser or model cannot take."""


class Played(NamedTuple):
    """An answer of a script."""

    parts: list[Object]
    usage: Object
    reason: str = "STOP"
    breaks: bool = False
    """Whether an error ends its stream."""


_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}
FAILURES = {
    "quota": Refused(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan.", _RETRY),
    "overloaded": Refused(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "internal": Refused(500, "INTERNAL", "An internal error has occurred."),
    "long": Refused(
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "slow-down": Refused(504, "DEADLINE_EXCEEDED", "The request timed out. Please try again."),
    "denied": Refused(403, "PERMISSION_DENIED", "Generative Language API has not been used in project 7 before."),
}
FINISHES = {
    "filtered": "SAFETY",
    "recited": "RECITATION",
    "malformed": "MALFORMED_FUNCTION_CALL",
    "new": "A_NEW_REASON",
}


@dataclass
class Gemini:
    """A running one. `bodies` are the requests that it took, `headers` and `path` those of the last."""

    url: str = ""
    bodies: list[Object] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    calls: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    path: str = ""
    running: int = 0
    gives_ids: bool = True
    play: Callable[[Object, str], Played] | None = None
    """Answers the requests for contents, by the body and the model, in the place of the texts."""
    refused: list[str] = field(default_factory=list)
    """The faults of the requests that it has refused."""
    caches: Caches = field(default_factory=Caches)


@asynccontextmanager
async def gemini(play: Callable[[Object, str], Played] | None = None) -> AsyncIterator[Gemini]:
    """The stand-in on a free port."""
    state = Gemini(play=play)
    app = web.Application(middlewares=[_in_shape], client_max_size=64 * 1024**2)
    app.router.add_get("/{version}/models", _models)
    app.router.add_get("/v1beta1/publishers/google/models", _models)
    app.router.add_post(_CACHES, partial(_create_cache, state))
    app.router.add_route("*", _CACHES + "/{id}", partial(_use_cache, state))
    app.router.add_post("/{rest:.*}", partial(_call, state))
    async with serving(app) as state.url:
        yield state


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _in_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        given = request.headers.get("x-goog-api-key")
        if given not in (KEY, OTHER_KEY) and request.headers.get("authorization") != f"Bearer {TOKEN}":
            code = 401 if given is None else 400
            raise Refused(code, "UNAUTHENTICATED" if code == 401 else "INVALID_ARGUMENT", "API key not valid.")
        return await handler(request)
    except Refused as error:
        body: Any = error.body
        if request.query.get("alt") != "sse" and "stream" in request.path:
            body = [body]
        return web.json_response(body, status=error.code)
    except web.HTTPException as error:
        return web.json_response(Refused(error.status, "NOT_FOUND", error.reason).body, status=error.status)


async def _models(request: web.Request) -> web.Response:
    names = {"name": f"models/{MODEL}", "version": "001", "displayName": "Stand-in"}
    methods = ["generateContent", "countTokens", "createCachedContent", "batchGenerateContent"]
    model = {**names, "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536, "supportedGenerationMethods": methods}
    return web.json_response({"models": [model]})


async def _call(state: Gemini, request: web.Request) -> web.StreamResponse:
    place = _PLACE.fullmatch(request.path)
    if place is None:
        raise Refused(404, "NOT_FOUND", "Requested entity was not found.")
    state.calls += 1
    state.path = request.path
    state.headers = {name.lower(): value for name, value in request.headers.items()}
    model, of_vertex = place["model"] or place["endpoint"], "publishers" in request.path or place["vertex"] is not None
    if place["vertex"] not in (None, f"/projects/{PROJECT}/locations/{LOCATION}"):
        raise Refused(403, "PERMISSION_DENIED", "Permission denied on resource project.")
    if place["endpoint"] is None and not model.startswith(("gemini", "gemma", "text-")):
        raise Refused(404, "NOT_FOUND", f"models/{model} is not found for API version v1beta")
    raw = await request.read()
    try:
        body: Object = _camel(json.loads(raw))
    except ValueError:
        raise Refused(400, "INVALID_ARGUMENT", "Invalid JSON payload received. Expected a value.") from None
    answer = _VERBS.get(place["verb"])
    if answer is None:
        raise Refused(404, "NOT_FOUND", "Requested entity was not found.")
    state.raw.append(raw)
    state.bodies.append(body)
    state.running += 1
    try:
        return await answer(state, request, _with_cache(state, request, body, model), model, of_vertex)
    except Fault as error:
        state.refused.append(str(error))
        raise
    finally:
        state.running -= 1


# ── cached contents ───────────────────────────────────────────────────────────────────────────────────────


def _account(request: web.Request) -> str:
    return request.headers.get("x-goog-api-key") or request.headers["authorization"]


def _entry(state: Gemini, request: web.Request, name: str) -> gemini_caches.CachedEntry:
    entry = state.caches.entries.get(name)
    if entry is None or entry.key != _account(request):
        raise Refused(*state.caches.lost)
    return entry


async def _create_cache(state: Gemini, request: web.Request) -> web.Response:
    body: Object = _camel(await request.json())
    prefix = request.match_info["place"]
    if state.caches.failure is not None:
        raise Refused(*state.caches.failure)
    tokens = words([body.get(name) for name in (*gemini_caches.HEAD, "contents")])
    if (wrong := gemini_caches.fault(body, tokens, of_vertex=bool(prefix))) is not None:
        raise Refused(400, "INVALID_ARGUMENT", wrong)
    return web.json_response(gemini_caches.stored(state.caches, body, _account(request), prefix, tokens).body)


async def _use_cache(state: Gemini, request: web.Request) -> web.Response:
    name = f"{request.match_info['place']}cachedContents/{request.match_info['id']}"
    entry = _entry(state, request, name)
    if request.method == "DELETE":
        del state.caches.entries[name]
        return web.json_response({})
    if request.method == "PATCH":
        body: Object = _camel(await request.json())
        if set(body) not in ({"ttl"}, {"expireTime"}):
            raise Refused(400, "INVALID_ARGUMENT", "Only ttl and expire_time can be updated.")
        entry.ttl = int(str(body.get("ttl", "60s")).removesuffix("s"))
        state.caches.renewed.append(name)
    return web.json_response(entry.body)


def _with_cache(state: Gemini, request: web.Request, body: Object, model: str) -> Object:
    """The request with the contents of the cache that it names."""
    if (name := body.get("cachedContent")) is None:
        return body
    entry = _entry(state, request, name)
    if (wrong := gemini_caches.misuse(body, model, entry)) is not None:
        raise Fault(400, "INVALID_ARGUMENT", wrong)
    return gemini_caches.whole(body, entry)


def _camel(value: Any) -> Any:
    """The value with names in camel case: Google's parser takes both cases."""
    if isinstance(value, list):
        return [_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {re.sub("_([a-z])", lambda match: match[1].upper(), name): inner for name, inner in value.items()}
    return {name: inner if name in _OPAQUE else _camel(inner) for name, inner in renamed.items()}


def _checked(body: Object, model: str, of_vertex: bool, *, counts: bool = False) -> None:
    for wrong in faults(body, model, of_vertex=of_vertex, counts=counts):
        raise Fault(400, "INVALID_ARGUMENT", wrong)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def words(value: Any) -> int:
    """The tokens of a prompt or an answer: words of the texts in it."""
    if isinstance(value, dict):
        value = [inner for name, inner in value.items() if name not in ("thoughtSignature", "data")]
    if isinstance(value, list):
        return sum(map(words, value))
    return len(value.split()) if isinstance(value, str) else 0


def parts_of(state: Gemini, body: Object, model: str, *, of_vertex: bool) -> tuple[list[Object], str]:
    """The parts of the answer, and the reason of its end."""
    last = body["contents"][-1]["parts"]
    texts = [part["text"] for part in last if "text" in part]
    results = [part["functionResponse"]["response"] for part in last if "functionResponse" in part]
    prompt = texts[-1] if texts else f"found {json.dumps(results)}"
    if prompt.startswith("!") and (failure := FAILURES.get(prompt[1:])):
        raise failure
    config, parts = body.get("generationConfig", {}), list[Object]()
    if config.get("thinkingConfig", {}).get("includeThoughts") and "think" in prompt:
        parts += [{"text": "Let me ", "thought": True}, {"text": "see.", "thought": True}]
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    tools = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    if tools and mode != "NONE" and ("call" in prompt.split() or mode == "ANY"):
        return [*parts, *_calls(state, tools, model, has_ids=state.gives_ids and not of_vertex)], "STOP"
    if "responseJsonSchema" in config or "responseSchema" in config or config.get("responseMimeType"):
        prompt = json.dumps({"said": prompt})
    if prompt[:1] == "!" and prompt[1:] in FINISHES:
        content = [] if prompt == "!malformed" else [{"text": "Part of it"}]
        return content, FINISHES[prompt[1:]]
    answer = prompt.split(" ")
    most = config.get("maxOutputTokens", 10_000)
    spoken = [{"text": f" {word}" if i else word} for i, word in enumerate(answer[:most])]
    if is_new(model):
        spoken.append({"text": "", "thoughtSignature": signature(prompt)})
    return [*parts, *spoken], "MAX_TOKENS" if len(answer) > most else "STOP"


def _played(state: Gemini, body: Object, model: str, *, of_vertex: bool) -> Played:
    """The answer of the script, or that which the texts decide."""
    if state.play is not None:
        return state.play(body, model)
    parts, reason = parts_of(state, body, model, of_vertex=of_vertex)
    entry = state.caches.entries.get(body.get("cachedContent", ""))
    return Played(parts, _usage(body, parts) | ({"cachedContentTokenCount": entry.tokens} if entry else {}), reason)


def _calls(state: Gemini, tools: list[Object], model: str, *, has_ids: bool) -> list[Object]:
    parts = list[Object]()
    for i, tool in enumerate(tools):
        call: Object = {"name": tool["name"], "args": {"n": i, "text": "π/2"} if i else {}}
        if has_ids:
            call["id"] = f"fc-{len(state.bodies)}-{i}"
        part: Object = {"functionCall": call}
        if not i and is_new(model):
            part["thoughtSignature"] = signature(tool["name"])
        parts.append(part)
    return parts


def _usage(body: Object, parts: list[Object]) -> Object:
    thoughts = words([part for part in parts if part.get("thought")])
    answered = words([part for part in parts if not part.get("thought")])
    prompt = words([body.get("systemInstruction"), body["contents"], body.get("tools")])
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": answered,
        "totalTokenCount": prompt + answered + thoughts,
    }
    if thoughts:
        usage["thoughtsTokenCount"] = thoughts
    if prompt > 50:
        usage["cachedContentTokenCount"] = 40
    return usage


def _answer(body: Object, model: str, parts: list[Object], reason: str | None, usage: Object | None) -> Object:
    candidate: Object = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    answer: Object = {"candidates": [candidate]}
    if usage is not None:
        answer["usageMetadata"] = usage
    return answer | {"modelVersion": model, "responseId": "rsp-stand-in"}


def _blocked(body: Object, model: str) -> Object | None:
    texts = [part.get("text") for part in body["contents"][-1]["parts"]]
    if "!blocked" not in texts:
        return None
    usage = {"promptTokenCount": words(body["contents"]), "totalTokenCount": words(body["contents"])}
    feedback = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage}
    return feedback | {"modelVersion": model, "responseId": "rsp-stand-in"}


async def _generate(
    state: Gemini, request: web.Request, body: Object, model: str, of_vertex: bool
) -> web.StreamResponse:
    _checked(body, model, of_vertex)
    if (blocked := _blocked(body, model)) is not None:
        return web.json_response(blocked)
    played = _played(state, body, model, of_vertex=of_vertex)
    answer = _answer(body, model, _merged(played.parts), played.reason, played.usage)
    return web.json_response(text=json.dumps(answer, ensure_ascii=False))


def _merged(parts: list[Object]) -> list[Object]:
    """The parts of a whole answer, which has neighbouring texts as one."""
    merged = list[Object]()
    for part in parts:
        last = merged[-1] if merged else {}
        if "text" in part and "text" in last and last.get("thought") == part.get("thought"):
            merged[-1] = {**last, **part, "text": last["text"] + part["text"]}
        else:
            merged.append(part)
    return merged


def _chunks(body: Object, model: str, played: Played) -> Iterator[Object]:
    parts, usage = played.parts, played.usage
    for i in range(len(parts)):
        so_far = {**usage, "candidatesTokenCount": i, "totalTokenCount": usage["promptTokenCount"] + i}
        yield _answer(body, model, [parts[i]], None, so_far)
    # The last chunk may leave out what earlier ones had.
    last = {name: count for name, count in usage.items() if name != "cachedContentTokenCount"}
    yield _answer(body, model, [], played.reason, last) | ({} if parts else {"responseId": "rsp-stand-in"})


async def _stream(state: Gemini, request: web.Request, body: Object, model: str, of_vertex: bool) -> web.StreamResponse:
    _checked(body, model, of_vertex)
    blocked = _blocked(body, model)
    played = Played([], {}) if blocked else _played(state, body, model, of_vertex=of_vertex)
    chunks = [blocked] if blocked else list(_chunks(body, model, played))
    is_sse = request.query.get("alt") == "sse"
    kind = "text/event-stream" if is_sse else "application/json; charset=UTF-8"
    response = web.StreamResponse(headers={"content-type": kind})
    await response.prepare(request)
    text = json.dumps(body["contents"][-1], ensure_ascii=False)
    for i, chunk in enumerate(chunks):
        if i == 2 and "!cut" in text:
            assert request.transport is not None
            request.transport.close()
            return response
        if i == 2 and "!silent" in text:
            break
        if i == 2 and ("!broken" in text or played.breaks):
            await response.write(json.dumps(FAILURES["overloaded"].body, indent=2).encode())
            return response
        written = json.dumps(chunk, ensure_ascii=False).encode()
        await response.write(b"data: %b\r\n\r\n" % written if is_sse else (b",\r\n" if i else b"[") + written)
        await asyncio.sleep(0.05 if "slow" in text else 0)
    if not is_sse:
        await response.write(b"]")
    return response


async def _count(state: Gemini, request: web.Request, body: Object, model: str, of_vertex: bool) -> web.StreamResponse:
    inner = body
    if not of_vertex:
        if set(body) - {"contents", "generateContentRequest"} or len(body) != 1:
            raise Refused(400, "INVALID_ARGUMENT", "Only one of contents and generate_content_request may be set.")
        inner = body.get("generateContentRequest", body)
        if "generateContentRequest" in body and inner.get("model") != f"models/{model}":
            raise Refused(400, "INVALID_ARGUMENT", "generate_content_request.model is required")
    _checked(inner, model, of_vertex, counts=True)
    counted = words([inner.get("systemInstruction"), inner["contents"], inner.get("tools")])
    return web.json_response({"totalTokens": counted})


def _vector(text: str, size: int) -> list[float]:
    return [round((len(text) + i) / 1000, 3) for i in range(size)]


async def _embed(state: Gemini, request: web.Request, body: Object, model: str, of_vertex: bool) -> web.StreamResponse:
    entries = body.get("requests", [body])
    if len(entries) > 100:
        raise Refused(400, "INVALID_ARGUMENT", "at most 100 requests can be in one batch")
    vectors = list[Object]()
    for one in entries:
        one = one | one.pop("embedContentConfig", {}) if of_vertex else one
        if set(one) - {"model", "content", "taskType", "title", "outputDimensionality"}:
            raise Refused(400, "INVALID_ARGUMENT", "Unknown name at 'requests[0]': Cannot find field.")
        if "requests" in body and not of_vertex and one.get("model") != f"models/{model}":
            raise Refused(400, "INVALID_ARGUMENT", "model in the batch request must match the model in the path")
        text = "".join(part["text"] for part in one["content"]["parts"])
        vectors.append({"values": _vector(text, one.get("outputDimensionality", 4))})
    return web.json_response({"embeddings": vectors} if "requests" in body else {"embedding": vectors[0]})


async def _predict(
    state: Gemini, request: web.Request, body: Object, model: str, of_vertex: bool
) -> web.StreamResponse:
    if not of_vertex or set(body) - {"instances", "parameters"}:
        raise Refused(400, "INVALID_ARGUMENT", "Invalid request")
    if len(body["instances"]) > (1 if model.startswith("gemini-embedding") else 250):
        raise Refused(400, "INVALID_ARGUMENT", "too many instances")
    size = body.get("parameters", {}).get("outputDimensionality", 4)
    predictions = [
        {
            "embeddings": {
                "values": _vector(one["content"], size),
                "statistics": {"token_count": words(one["content"]), "truncated": False},
            }
        }
        for one in body["instances"]
    ]
    return web.json_response({"predictions": predictions, "metadata": {"billableCharacterCount": 1}})


_VERBS = {
    "generateContent": _generate,
    "streamGenerateContent": _stream,
    "countTokens": _count,
    "embedContent": _embed,
    "batchEmbedContents": _embed,
    "predict": _predict,
}
