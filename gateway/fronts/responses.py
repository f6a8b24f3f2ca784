"""OpenAI's Responses: transcoded for servers of chats, forwarded to servers that support Responses."""

from typing import Any, Protocol

import msgspec

from adapters import offload
from adapters.base import Answer
from adapters.errors import CallerError, InferenceError
from adapters.http1.message import Request, Response
from adapters.requests import ChatRequest, ResponsesRequest
from adapters.wire.body import open_body
from adapters.wire.field_names import RESPONSES
from adapters.wire.responses import answers
from adapters.wire.responses import requests as wire
from adapters.wire.responses.events import ResponseEvents, refusal_event, whole
from adapters.wire.responses.native import NativeEvents
from gateway.auth.keys import Principal
from gateway.fronts import decoding, errors, input_tokens
from gateway.fronts.door import STREAMED, Door, DoorPath
from gateway.fronts.openai import require_json
from gateway.fronts.paths import RESPONSES as PATH
from gateway.telemetry import Record

_UNKNOWN = "Unknown path. This gateway serves /v1/responses and the paths below it."


_encode = msgspec.json.Encoder().encode


class StoredRequest(Protocol):
    """A request that stores its response, or continues a stored one."""

    model: str
    """The model by the name that the client requests, once it is known."""

    @property
    def repeated(self) -> dict[str, Any]:
        """The fields of the answer that report how it is stored."""
        ...

    def dropped(self) -> "StoredRequest":
        """The request on a route that drops `store`."""
        ...

    async def finish(self, answer: bytes) -> None:
        """Store a whole Response, which is JSON."""
        ...


class ResponseStorage(Protocol):
    """Stores responses, and has the paths below `/v1/responses` that read them."""

    async def opened(self, principal: Principal, body: bytes) -> tuple[bytes, StoredRequest | None]:
        """The body with the stored items before its own, and what is stored of it. Raises `InferenceError`."""
        ...

    def routes(self) -> list[DoorPath]:
        """All routes."""
        ...

    def route(self, target: bytes) -> DoorPath:
        """The route of a path below `/v1/responses`."""
        ...


class ResponsesFront:
    """The handler of `/v1/responses` and the paths below."""

    def __init__(self, door: Door, storage: ResponseStorage | None = None) -> None:
        self._door = door
        self._core = door.core
        self._storage = storage
        self._create = DoorPath("/v1/responses", self._answer)
        self._counts = input_tokens.InputTokens(door, storage).route

    def routes(self) -> list[DoorPath]:
        """All routes."""
        stored = [] if self._storage is None else self._storage.routes()
        return [self._create, self._counts, *stored]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        target = http.target
        route: DoorPath | None = None
        if target == PATH:
            route = self._create
        elif target == input_tokens.PATH:
            route = self._counts
        elif target.startswith(PATH + b"/") and self._storage is not None:
            route = self._storage.route(target)
        return await self._door.serve(http, route, _UNKNOWN, errors.openai_response, event_of=refusal_event)

    async def _answer(self, principal: Principal, http: Request, record: Record) -> Response:
        require_json(http)
        body, exchange = await http.read(), None
        if self._storage is not None:
            body, exchange = await self._storage.opened(principal, body)
            record.stored = exchange is not None
        request, shell = await self._read(principal, body)
        if exchange is not None:
            resolved = self._core.snapshot.catalogue.find(request.model)
            exchange.model = request.model if resolved is None else resolved.name or request.model
        answer = await self._handled(principal, request, http, record)
        record.ignored = [RESPONSES.field(name) for name in record.ignored]
        if exchange is not None and "store" in record.trace.ignored.dropped:
            exchange = exchange.dropped()
        if exchange is not None and shell is not None:
            shell.repeat(**exchange.repeated)
        headers = [*self._door.headers(record), *answer.headers]
        if answer.body is None:
            fields = [("content-type", "text/event-stream"), *headers, *STREAMED]
            events = NativeEvents() if shell is None else ResponseEvents(shell)
            return Response(answer.status, fields, _Stream(answer, events, exchange))
        encoded = answer.body if shell is None else whole(answer.body, shell, answer.usage)
        if exchange is not None:
            encoded = encoded if shell is not None else _with(encoded, exchange.repeated)
            await exchange.finish(encoded)
        return Response(answer.status, [("content-type", "application/json"), *headers], encoded)

    async def _read(
        self, principal: Principal, body: bytes
    ) -> tuple[ChatRequest | ResponsesRequest, answers.Shell | None]:
        """The request, and for servers of chats the Response that its answer becomes. Raises `CallerError`."""
        snapshot = self._core.snapshot
        if await self._is_native(principal, body):
            return await decoding.decode(snapshot, wire.decode_native, body, wire.route_names, wire.OPERATION), None
        request, fields, given = await decoding.decode(snapshot, wire.decode, body, wire.route_names, wire.OPERATION)
        return request, answers.Shell(fields, given)

    async def _handled(
        self, principal: Principal, request: ChatRequest | ResponsesRequest, http: Request, record: Record
    ) -> Answer:
        """The answer when it begins. Errors use the field names of Responses."""
        try:
            return await self._core.handle(principal, request, http.headers, record)
        except CallerError as error:
            raise RESPONSES.of(error) from None

    async def _is_native(self, principal: Principal, body: bytes) -> bool:
        """Whether all servers of the model support Responses, and no guard has to read the answer as that of a chat.

        An invalid body is rejected later, by its decoder.
        """
        snapshot = self._core.snapshot
        if not snapshot.responses_models:
            return False
        if (named := await offload.parse(body, wire.model_of, body)) is None:
            return False
        model = snapshot.catalogue.find(named or snapshot.config.default_models.of(wire.OPERATION) or "")
        if model is None or model.rules.model not in snapshot.responses_models:
            return False
        return not snapshot.guards_answers(principal.tenant, model.rules.model)


def _with(response: bytes, repeated: dict[str, Any]) -> bytes:
    """A server's own Response with the fields that the gateway stores."""
    return _encode({**open_body(response), **repeated})


class _Stream:
    """The events of an answer. An error event reports a broken stream and ends it."""

    __slots__ = ("_answer", "_ended", "_events", "_exchange", "_over")

    def __init__(self, answer: Answer, events: ResponseEvents | NativeEvents, exchange: StoredRequest | None) -> None:
        self._answer = answer
        self._exchange = exchange
        self._events = events
        self._over = False
        """Whether the last event has been returned."""
        self._ended = False
        """Whether the answer has ended."""

    def __aiter__(self) -> "_Stream":
        return self

    async def __anext__(self) -> bytes:
        while not self._ended:
            out = await self._next()
            if (exchange := self._exchange) is not None and (final := self._events.final) is not None:
                self._exchange = None
                await exchange.finish(final)
            if out:
                return out
        raise StopAsyncIteration

    async def _next(self) -> bytes:
        answer, events = self._answer, self._events
        try:
            piece = await answer.__anext__()
            if self._over:
                return b""
            out = events.take(piece)
            if events.done:
                self._over = True
                out += events.end(answer.usage)
        except StopAsyncIteration:
            self._ended = True
            return b"" if self._over else events.end(answer.usage)
        except InferenceError as error:
            self._ended = True
            answer.end(RESPONSES.of(error))
            await answer.aclose()
            return b"" if self._over else events.fail(error, answer.usage)
        return out

    async def aclose(self) -> None:
        await self._answer.aclose()
