"""Anthropic's API: `/v1/messages` over every pool that serves chats."""

import time
from collections.abc import Callable
from functools import partial

import msgspec

from adapters import statuses
from adapters.base import Answer
from adapters.errors import InferenceError, Unsupported
from adapters.http1.message import Request, Response
from adapters.offload import messages
from adapters.wire.anthropic import errors as anthropic_errors
from adapters.wire.anthropic import requests as wire
from adapters.wire.anthropic.answers import MessageEvents, message_of
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount, route_names
from adapters.wire.field_names import MESSAGES
from gateway.auth.keys import Principal
from gateway.fronts import decoding, errors, rate_limits
from gateway.fronts.door import STREAMED, Door, DoorPath, Fields
from gateway.fronts.openai import require_json
from gateway.fronts.paths import MESSAGES as PATH
from gateway.fronts.paths import MODELS
from gateway.telemetry import Record
from policies.routing import rules

"""The header that requests Anthropic's list of models at a path that OpenAI's API uses too."""
ESTIMATED = ("x-headrace-estimate", "true")
"""The header that marks a count of tokens as an estimate."""
_NOT_FOUND = "Unknown path. This gateway serves /v1/messages, /v1/messages/count_tokens and /v1/models."

_encode = msgspec.json.Encoder().encode


class AnthropicFront:
    """The handler of `/v1/messages` and the paths below, and of `/v1/models` for Anthropic's clients."""

    def __init__(self, door: Door, created: int) -> None:
        self._door = door
        self._core = door.core
        self._created = created
        self._one = DoorPath("/v1/models/{model}", self._model)
        self._routes = {
            PATH: DoorPath("/v1/messages", self._message),
            PATH + b"/count_tokens": DoorPath("/v1/messages/count_tokens", self._count),
            MODELS: DoorPath("/v1/models", self._models),
        }

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [*self._routes.values(), self._one]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = self._routes.get(http.target)
        if route is None and http.target.startswith(MODELS + b"/"):
            route = self._one
        return await self._door.serve(http, route, _NOT_FOUND, _refusal, self.headers, anthropic_errors.as_event)

    async def _message(self, principal: Principal, http: Request, record: Record) -> Response:
        read = partial(wire.decode_message, betas=http.headers.get("anthropic-beta"))
        return await self.message(principal, http, record, await _body(http), read)

    async def message(
        self,
        principal: Principal,
        http: Request,
        record: Record,
        body: bytes,
        read: Callable[[bytes], MessagesRequest],
        stream_of: type["MessageBody"] | None = None,
    ) -> Response:
        """Answer a message. `read` is a function of a module, which decodes the body. `stream_of` is the class of a
        streamed body, if that has another wire."""
        request = await decoding.decode(self._core.snapshot, read, body, route_names)
        answer = await self._core.handle(principal, request, http.headers, record)
        request = answer.routed(request)
        record.ignored = tuple(map(MESSAGES.field, record.ignored))
        headers = [("content-type", answer.content_type), *self.headers(record), *answer.headers]
        if answer.body is None:
            events = None
            if answer.form.wire != "anthropic":
                events = MessageEvents(wire.stops(request), request.model, wire.names(request))
            stream = (stream_of or MessageBody)(answer, events, record.request_id)
            return Response(answer.status, [*headers, *STREAMED], stream)
        return Response(answer.status, headers, _whole(request, answer))

    async def _count(self, principal: Principal, http: Request, record: Record) -> Response:
        read = partial(wire.decode_count, betas=http.headers.get("anthropic-beta"))
        return await self.count(principal, http, record, await _body(http), read)

    async def count(
        self, principal: Principal, http: Request, record: Record, body: bytes, read: Callable[[bytes], TokenCount]
    ) -> Response:
        """Count tokens by the model's own server; estimate if the server cannot count."""
        request = await decoding.decode(self._core.snapshot, read, body, route_names)
        try:
            answer = await self._core.handle(principal, request, http.headers, record)
        except Unsupported:
            estimate = await messages.estimate(request.chat, request.size)
            response = self._respond(record, _encode({"input_tokens": estimate}))
            return Response(200, [*response.headers, ESTIMATED], response.body)
        return Response(200, [("content-type", "application/json"), *self.headers(record)], answer.body or b"")

    async def _models(self, principal: Principal, http: Request, record: Record) -> Response:
        """All models that serve chats, on one page."""
        snapshot = self._core.snapshot
        visible = [model for model in self._door.visible(principal) if model.name not in snapshot.tensor_models]
        models = [wire.model(name, self._created) for model in visible for name, _, _ in rules.names(model)]
        return self._respond(record, wire.encode_models(models))

    async def _model(self, principal: Principal, http: Request, record: Record) -> Response:
        name = http.path.removeprefix(MODELS.decode() + "/")
        self._door.model_of(principal, name)
        return self._respond(record, _encode(wire.model(name, self._created)))

    def _respond(self, record: Record, body: bytes) -> Response:
        self._core.end(record)
        return Response(200, [("content-type", "application/json"), *self.headers(record)], body)

    def headers(self, record: Record) -> Fields:
        """The headers of every response."""
        core = self._core
        now = core.clock()
        allowances = record.allowances or core.ledger.shown(record.tenant, now)
        limits = rate_limits.anthropic_headers(allowances, now, time.time())
        return [("request-id", record.request_id), *self._door.headers(record), *limits]


async def _body(http: Request) -> bytes:
    require_json(http)
    return await http.read()


def _whole(request: MessagesRequest, answer: Answer) -> bytes:
    assert answer.body is not None
    if answer.form.wire == "anthropic":
        return answer.body
    return message_of(answer.body, answer.usage, wire.stops(request), request.model, wire.names(request))


def _refusal(error: InferenceError, headers: Fields) -> Response:
    return errors.anthropic_response(MESSAGES.of(error), headers)


class MessageBody:
    """The events of a stream, forwarded unchanged or made from a chat's chunks. An `error` event, the last one,
    reports a broken stream."""

    __slots__ = ("_answer", "_events", "_over", "_request_id")

    def __init__(self, answer: Answer, events: MessageEvents | None, request_id: str) -> None:
        self._answer = answer
        self._events = events
        self._request_id = request_id
        self._over = False

    def __aiter__(self) -> "MessageBody":
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._next()
        except InferenceError as error:
            MESSAGES.of(error)
            self._over = True
            self._answer.end(error)
            return self._failed(error)

    def _failed(self, error: InferenceError) -> bytes:
        type_ = errors.anthropic_type(statuses.http_status(error))
        return anthropic_errors.encode_event(error, type_, self._request_id)

    async def _next(self) -> bytes:
        answer, events = self._answer, self._events
        if events is None:
            return await answer.__anext__()
        while True:
            try:
                piece = await answer.__anext__()
            except StopAsyncIteration:
                self._over = True
                if last := events.end(answer.usage):  # the upstream's stream has no end of its own
                    return last
                raise
            if out := events.take(piece, answer.usage):
                return out

    async def aclose(self) -> None:
        await self._answer.aclose()
