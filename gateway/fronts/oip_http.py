"""The Open Inference Protocol's door over HTTP: the paths of Triton, and those that KServe adds to them."""

import re
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version as installed
from typing import NamedTuple, cast, get_args
from urllib.parse import unquote

from adapters.base import Answer
from adapters.errors import Forbidden, InferenceError
from adapters.http1.message import Request, Response
from adapters.types import InferKind, InferRequest, ModelPart, ModelQuery
from adapters.wire import compression, oip, oip_answers, oip_asked, oip_bodies, oip_generate, sse
from gateway.auth.keys import Principal
from gateway.fronts import errors, tensors
from gateway.fronts.door import Door, Fields, Route
from gateway.telemetry import Record
from policies import rules

_MODEL = re.compile(
    r"/v2/models/([^/]+)(?:/versions/([^/]+))?"
    r"(?:/(infer|infer_stream|generate|generate_stream|ready|config|stats|trace/setting))?"
)
_ORDER = re.compile(r"/v2/repository(?:/[^/]+)?/models/[^/]+/(?:load|unload)")
_INDEX = re.compile(r"/v2/repository(?:/[^/]+)?/index")
_OF_A_SERVER = re.compile(
    r"/v2/(?:(?:system|cuda)sharedmemory(?:/region/[^/]+)?/(?:status|register|unregister)|trace/setting|logging)"
)
_NOT_FOUND = "Unknown path. The Open Inference Protocol has /v2, /v2/health, /v2/models/NAME and what is below these."
_KINDS: frozenset[str] = frozenset(get_args(InferKind))
_LENGTH = "Inference-Header-Content-Length"
_JSON, _BINARY, _EVENTS = "application/json", "application/octet-stream", "text/event-stream"
EXTENSIONS = [name for name in oip_bodies.EXTENSIONS if name not in ("trace", "logging", "system_shared_memory")]
"""Of what servers can, what a gateway passes on: the others are between a server and its operator."""


class Target(NamedTuple):
    """What a path means: the verb is the path's last word, or `metadata` of a path that ends with the model."""

    verb: str
    model: str = ""
    version: str = ""


@lru_cache(4096)
def target_of(path: bytes) -> Target | None:
    """None for a path of nobody."""
    text = unquote(path.decode("latin-1"), errors="replace").rstrip("/")
    if match := _MODEL.fullmatch(text):
        return Target(match[3] or "metadata", match[1], match[2] or "")
    if text in ("/v2", "/v2/models"):
        return Target(text)
    if _INDEX.fullmatch(text):
        return Target("index")
    if _ORDER.fullmatch(text):
        return Target("order")
    return Target("of_a_server") if _OF_A_SERVER.fullmatch(text) else None


class OipFront:
    """The handler of `/v2`. `ready` tells whether this gateway is, for `/v2/health/ready`."""

    def __init__(self, door: Door, ready: Callable[[], bool]) -> None:
        self._door = door
        self._core = door.core
        self._ready = ready
        infer, ask = Route(("POST",), "infer", self._infer), Route(("GET",), "models", self._ask)
        elsewhere = Route(("GET", "POST"), "models", _elsewhere)
        self._routes = {
            "/v2": Route(("GET",), "models", self._server),
            "/v2/models": Route(("GET",), "models", self._names),
            "index": Route(("POST",), "models", self._index),
            "order": elsewhere,
            "of_a_server": elsewhere,
            "trace/setting": elsewhere,
            **dict.fromkeys(_KINDS, infer),
            **dict.fromkeys(get_args(ModelPart), ask),
        }

    def routes(self) -> list[Route]:
        """All there are."""
        return list(self._routes.values())

    async def __call__(self, http: Request) -> Response:
        """Answer one request. Probes need no key: they are told nothing of models."""
        if http.target.startswith(b"/v2/health/") and http.method in ("GET", "HEAD"):
            return self._health(http)
        target = target_of(http.target)
        route = None if target is None else self._routes[target.verb]
        return await self._door.serve(http, route, _NOT_FOUND, errors.oip_response)

    # ── of the gateway itself ─────────────────────────────────────────────────────────────────────────

    def _health(self, http: Request) -> Response:
        headers = [("content-type", _JSON)]
        what = http.target.removeprefix(b"/v2/health/")
        if what == b"live":
            return Response(200, headers, b'{"live":true}')
        if what != b"ready":
            return Response(404, headers, oip_answers.encode_error(_NOT_FOUND))
        return (
            Response(200, headers, b'{"ready":true}') if self._ready() else Response(503, headers, b'{"ready":false}')
        )

    async def _server(self, principal: Principal, http: Request, record: Record) -> Response:
        told = oip_bodies.ServerMetadata("headrace", installed("headrace"), EXTENSIONS)
        return self._door.told(record, oip_bodies.encode(told))

    async def _names(self, principal: Principal, http: Request, record: Record) -> Response:
        return self._door.told(record, oip_bodies.encode({"models": [name for name, _, _ in self._listed(principal)]}))

    async def _index(self, principal: Principal, http: Request, record: Record) -> Response:
        only_ready = oip_bodies.decode_index_request(await http.read())
        entries = [
            oip_bodies.IndexEntry(name, version, "READY" if alive else "UNAVAILABLE", "" if alive else "no endpoint")
            for name, version, alive in self._listed(principal)
            if alive or not only_ready
        ]
        return self._door.told(record, oip_bodies.encode(entries))

    def _listed(self, principal: Principal) -> list[tuple[str, str, bool]]:
        """Name, version and whether an endpoint is there, of each model that takes tensors and this client may use."""
        snapshot = self._core.snapshot
        alive = {name for name, pool in snapshot.pools.items() if any(e.health != "unhealthy" for e in pool.endpoints)}
        return [
            (name, version, any(pool in alive for route in model.routes for pool in route.pools()))
            for model in self._door.visible(principal)
            if model.name in snapshot.tensor_models
            for _, name, version in rules.names(model)
            if version or not model.versions
        ]

    # ── of a model ────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, principal: Principal, http: Request, record: Record) -> Response:
        target = target_of(http.target)
        assert target is not None
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        query = ModelQuery(model=model, version=version, about=cast(ModelPart, target.verb))
        body = await tensors.asked(self._core, principal, query, http, record)
        return Response(200, [("content-type", _JSON), *self._door.headers(record)], body)

    async def _infer(self, principal: Principal, http: Request, record: Record) -> Response:
        target, headers = target_of(http.target), http.headers
        assert target is not None
        body = await http.read()
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        encoding = (headers.get("content-encoding") or "").strip().lower()
        request = oip_asked.request_of(
            body,
            model=model,
            version=version,
            kind=cast(InferKind, target.verb),
            header_length=oip.header_length(headers.get(oip.HEADER)),
            encoding="" if encoding == "identity" else encoding,
            accepts=headers.get("accept-encoding") or "",
            limit=self._core.snapshot.config.http.max_body,
        )
        answer = await tensors.inferred(self._core, principal, request, http, record)
        told = [*self._door.headers(record), *answer.headers]
        return _whole(request, answer, told) if answer.body is not None else _stream(answer, told)


async def _elsewhere(principal: Principal, http: Request, record: Record) -> Response:
    raise Forbidden(
        "A gateway stands before many servers. Loading, shared memory, trace and log settings are for each of them: "
        "ask the server itself."
    )


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def _whole(request: InferRequest, answer: Answer, told: Fields) -> Response:
    """The bytes as they came, or written anew where the upstream speaks another wire."""
    form, body = answer.form, answer.body
    assert body is not None
    if form.wire == "oip-http":
        fields = [("content-type", answer.content_type), *told]
        if form.header_length is not None:
            fields.append((_LENGTH, str(form.header_length)))
        if form.encoding:
            fields.append(("content-encoding", form.encoding))
        return Response(answer.status, fields, body)
    response = tensors.read(answer)
    if request.kind == "generate":
        body, length = oip_generate.encode_generate(response), None
    else:
        body, length = oip_answers.encode_response(response, oip_answers.wanted(request.inference))
    fields = [("content-type", _JSON if length is None else _BINARY), *told]
    if length is not None:
        fields.append((_LENGTH, str(length)))
    if len(body) >= compression.SMALLEST and (coding := compression.chosen(request.accepts or None)) is not None:
        body = compression.compress(body, coding)
        fields.append(("content-encoding", coding))
    return Response(200, fields, body)


def _stream(answer: Answer, told: Fields) -> Response:
    fields = [("content-type", _EVENTS), *told, ("cache-control", "no-cache")]
    return Response(answer.status, fields, EventBody(answer))


class EventBody:
    """An answer's events. A break after the first is said in the stream, in the protocol's own form, and ends it."""

    __slots__ = ("_answer", "_broken")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._broken = False

    def __aiter__(self) -> "EventBody":
        return self

    async def __anext__(self) -> bytes:
        if self._broken:
            raise StopAsyncIteration
        try:
            return await self._answer.__anext__()
        except InferenceError as error:
            self._broken = True
            return sse.encode(oip_answers.encode_error(error.message))

    async def aclose(self) -> None:
        await self._answer.aclose()
