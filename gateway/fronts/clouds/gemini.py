"""Gemini's API: `/v1beta/models/NAME:generateContent` and its other calls over every pool that serves chats.

Gemini's calls at Vertex AI come here too (`gateway/fronts/paths.py`). Their project and location select nothing."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec

from adapters import statuses
from adapters.base import Answer
from adapters.errors import CallerError, InferenceError, Unsupported
from adapters.http1.message import Request, Response
from adapters.offload import messages
from adapters.requests import EmbeddingRequest
from adapters.wire import decoding as wire_decoding
from adapters.wire import sse
from adapters.wire.field_names import CONTENTS
from adapters.wire.gemini import errors as gemini_errors
from adapters.wire.gemini import requests as wire
from adapters.wire.gemini.chat_to_answer import ContentEvents, answer_of
from adapters.wire.gemini.content_request import ContentRequest
from adapters.wire.gemini.native_config import FunctionNames, shows_thoughts
from gateway.auth.keys import Principal
from gateway.fronts import decoding, errors
from gateway.fronts.anthropic import ESTIMATED
from gateway.fronts.door import STREAMED, Answering, Door, DoorPath, Fields
from gateway.fronts.openai import require_json
from gateway.fronts.paths import GOOGLE_KEY
from gateway.telemetry import Record
from policies.routing import rules

_PATH = re.compile(r"/v1beta/models(?:/([^:]+?)(?::([A-Za-z]+))?)?/?")
_VERBS = ("generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents", "predict")
_NOT_FOUND = f"Unknown path. This gateway serves /v1beta/models, and below it {', '.join(_VERBS)}."
_ROUTES = {"generationConfig": ("temperature", "top_p", "top_k", "max_tokens", "stop", "seed")}
JSON = ("content-type", "application/json; charset=UTF-8")


class _Count(msgspec.Struct):
    input_tokens: int


_count = msgspec.json.Decoder(_Count).decode


def _route_names(name: str) -> Iterable[str]:
    """The names of one field in a route's rewrite."""
    return _ROUTES.get(name, ())


class GeminiFront:
    """The handler of `/v1beta/models` and the paths below."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._core = door.core
        row = "/v1beta/models/{model}"
        self._all = DoorPath("/v1beta/models", self._models)
        self._one = DoorPath(row, self._model)
        handlers: dict[str, Answering] = {
            "generateContent": partial(self._generate, streams=False),
            "streamGenerateContent": partial(self._generate, streams=True),
            "countTokens": self._tokens,
            "embedContent": partial(self._embed, several=False),
            "batchEmbedContents": partial(self._embed, several=True),
            "predict": self._predict,
        }
        self._verbs = {verb: DoorPath(f"{row}:{verb}", handler) for verb, handler in handlers.items()}

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._all, self._one, *self._verbs.values()]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        _take_key(http)
        target = _PATH.fullmatch(http.target.decode("latin-1"))
        route = None
        if target is not None:
            route = self._verbs.get(target[2]) if target[2] else self._one if target[1] else self._all
        event_of = sse.encode if _has_events(http) else None  # an array of JSON has no room for comments
        return await self._door.serve(http, route, _NOT_FOUND, _refusal, None, event_of)

    # ── contents ──────────────────────────────────────────────────────────────────────────────────────

    async def _generate(self, principal: Principal, http: Request, record: Record, *, streams: bool) -> Response:
        require_json(http)
        body = await http.read()
        model = _model_of(http)
        read = partial(wire.decode_content, model=model, stream=streams)
        request = await decoding.decode(self._core.snapshot, read, body, _route_names, model=model)
        answer = await self._core.handle(principal, request, http.headers, record)
        request = answer.routed(request)
        record.ignored = tuple(map(CONTENTS.field, record.ignored))
        headers = [*self._door.headers(record), *answer.headers]
        if answer.body is not None:
            return Response(answer.status, [JSON, *headers], _whole(request, answer, record.request_id))
        events = None
        if answer.form.wire != "gemini":
            names, shown = FunctionNames(request.payload.native), shows_thoughts(request.payload.native)
            events = ContentEvents(record.request_id, request.model, names, shows_thoughts=shown)
        is_array = not _has_events(http)
        kind = JSON if is_array else ("content-type", "text/event-stream")
        return Response(answer.status, [kind, *headers, *STREAMED], ContentBody(answer, events, is_array=is_array))

    async def _tokens(self, principal: Principal, http: Request, record: Record) -> Response:
        """Count tokens by the model's own server; estimate if the server cannot count."""
        require_json(http)
        body = await http.read()
        model = _model_of(http)
        read = partial(wire.decode_count, model=model)
        request = await decoding.decode(self._core.snapshot, read, body, _route_names, model=model)
        try:
            answer = await self._core.handle(principal, request, http.headers, record)
        except Unsupported:
            estimate = await messages.estimate(request.chat, request.size)
            response = self._door.respond(record, wire.encode_count(estimate), JSON[1])
            return Response(200, [*response.headers, ESTIMATED], response.body)
        counted = wire.encode_count(_count(answer.body or b"").input_tokens)
        return Response(200, [JSON, *self._door.headers(record)], counted)

    async def _embed(self, principal: Principal, http: Request, record: Record, *, several: bool) -> Response:
        require_json(http)
        read = partial(wire.decode_embeddings, several=several)
        return await self._embedded(principal, http, record, read, partial(wire.encode_embeddings, several=several))

    async def _predict(self, principal: Principal, http: Request, record: Record) -> Response:
        """Vertex AI's call for embeddings."""
        require_json(http)
        return await self._embedded(principal, http, record, wire.decode_prediction, wire.encode_prediction)

    async def _embedded(
        self,
        principal: Principal,
        http: Request,
        record: Record,
        decode: Callable[..., EmbeddingRequest],
        encode: Callable[[bytes], bytes],
    ) -> Response:
        body = await http.read()
        model = _model_of(http)
        request = await decoding.decode(self._core.snapshot, partial(decode, model=model), body, model=model)
        answer = await self._core.handle(principal, request, http.headers, record)
        with wire_decoding.Checked(IndexError):
            encoded = encode(answer.body or b"")
        return Response(200, [JSON, *self._door.headers(record), *answer.headers], encoded)

    # ── models ────────────────────────────────────────────────────────────────────────────────────────

    async def _models(self, principal: Principal, http: Request, record: Record) -> Response:
        """All models that serve text, on one page."""
        snapshot = self._core.snapshot
        visible = [model for model in self._door.visible(principal) if model.name not in snapshot.tensor_models]
        models = [wire.model(name) for model in visible for name, _, _ in rules.names(model)]
        return self._door.respond(record, wire.encode_models(models), JSON[1])

    async def _model(self, principal: Principal, http: Request, record: Record) -> Response:
        name = _model_of(http)
        self._door.model_of(principal, name)
        return self._door.respond(record, msgspec.json.encode(wire.model(name)), JSON[1])


def _take_key(http: Request) -> None:
    """Move a key from the query to a header: Google's clients may send it there, and nothing logs it from here on."""
    if "key=" not in http.query:
        return
    pairs = parse_qsl(http.query, keep_blank_values=True)
    http.query = urlencode([pair for pair in pairs if pair[0] != "key"])
    if GOOGLE_KEY not in http.headers and (key := next((value for name, value in pairs if name == "key"), "")):
        http.headers.raw[GOOGLE_KEY.encode()] = key.encode("latin-1", "replace")


def _has_events(http: Request) -> bool:
    """Whether the client takes a stream as events instead of an array."""
    return "alt=sse" in http.query.split("&")


def _model_of(http: Request) -> str:
    """The name of the model in the path."""
    target = _PATH.fullmatch(http.target.decode("latin-1"))
    if target is None or not target[1]:
        raise CallerError("The path has no name of a model.", code="bad_path")
    return unquote(target[1])


def _whole(request: ContentRequest, answer: Answer, id_: str) -> bytes:
    assert answer.body is not None
    if answer.form.wire == "gemini":
        return answer.body
    native = request.payload.native
    names, shown = FunctionNames(native), shows_thoughts(native)
    return answer_of(answer.body, answer.usage, id_, request.model, names, shows_thoughts=shown)


def _refusal(error: InferenceError, headers: Fields) -> Response:
    """Google's error response."""
    error = CONTENTS.of(error)
    status = statuses.http_status(error)
    return Response(status, [JSON, *headers, *errors.advice(error)], gemini_errors.encode_error(error, status))


class ContentBody:
    """The chunks of a stream, forwarded or made from a chat's, as events or as one JSON array. An error object, the
    last chunk, reports a broken stream."""

    __slots__ = ("_answer", "_is_array", "_is_begun", "_over", "_take")

    def __init__(self, answer: Answer, events: ContentEvents | None, *, is_array: bool) -> None:
        self._answer = answer
        self._take: ContentEvents | None = events
        self._is_array = is_array
        self._is_begun = self._over = False

    def __aiter__(self) -> "ContentBody":
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._next()
        except InferenceError as error:
            CONTENTS.of(error)
            self._over = True
            self._answer.end(error)
            return self._framed([gemini_errors.encode_error(error, statuses.http_status(error))], is_last=True)

    async def _next(self) -> bytes:
        answer, events = self._answer, self._take
        while True:
            try:
                piece = await answer.__anext__()
            except StopAsyncIteration:
                self._over = True
                last = events.end(answer.usage) if events is not None else []
                if last or self._is_array:
                    return self._framed(last, is_last=True)
                raise
            if events is not None:
                chunks = events.take(piece, answer.usage)
            elif self._is_array:
                chunks = [data for event in piece.split(b"\n\n") if (data := sse.data_of(event))]
            else:
                return piece
            if chunks:
                return self._framed(chunks)

    def _framed(self, chunks: list[bytes], *, is_last: bool = False) -> bytes:
        """The chunks as events, or as entries of the array."""
        if not self._is_array:
            return b"".join([b"data: %b\r\n\r\n" % chunk for chunk in chunks])
        out = b"" if self._is_begun else b"["
        for chunk in chunks:
            out += (b",\r\n" if self._is_begun else b"") + chunk
            self._is_begun = True
        return out + (b"]" if is_last else b"")

    async def aclose(self) -> None:
        await self._answer.aclose()
