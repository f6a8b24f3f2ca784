"""OpenAI's Responses: transcoded for servers of chats, forwarded to servers that support Responses."""

import asyncio
import re
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
from gateway.telemetry.record import PersonalAnswer

_UNKNOWN = "Unknown path. This gateway serves /v1/responses and the paths below it."


_RESPONSE_ID = re.compile(rb'"(resp_[A-Za-z0-9_-]{1,128})"')
_encode = msgspec.json.Encoder().encode


class StoredRequest(Protocol):
    """A request that stores its response, or continues a stored one."""

    model: str
    """The model by the name that the client requests, once it is known."""

    @property
    def repeated(self) -> dict[str, Any]:
        """The fields of the answer that report how it is stored."""
        ...

    @property
    def previous(self) -> str | None:
        """The id of the response that the request continues, without what is sealed in it."""
        ...

    @property
    def sealed(self) -> str:
        """The sealed personal data of the response that the request continues; empty for none."""
        ...

    @property
    def conversation(self) -> str | None:
        """The id of the conversation to which the request belongs."""
        ...

    def hidden(self, personal: PersonalAnswer) -> "StoredRequest":
        """The request as it is stored: without personal data."""
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
            if exchange is not None:
                record.stored = True
                record.previous, record.sealed = exchange.previous or "", exchange.sealed
                record.in_conversation = exchange.conversation is not None
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
        stored = None if exchange is None else _Stored(exchange, record.personal)
        headers = [*self._door.headers(record), *answer.headers]
        if answer.body is None:
            fields = [("content-type", "text/event-stream"), *headers, *STREAMED]
            events = NativeEvents() if shell is None else ResponseEvents(shell)
            return Response(answer.status, fields, _Stream(answer, events, stored))
        encoded = answer.body if shell is None else whole(answer.body, shell, answer.usage)
        if exchange is not None and stored is not None:
            encoded = encoded if shell is not None else _with(encoded, exchange.repeated)
            await stored.finish(encoded)
            encoded = stored.labelled(encoded)
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


class _Stored:
    """What is stored of an answer. Of one with personal data only the placeholders, and its id has the values."""

    __slots__ = ("_exchange", "_id", "_personal")

    def __init__(self, exchange: StoredRequest, personal: PersonalAnswer | None) -> None:
        self._exchange = exchange
        self._personal = personal
        self._id: tuple[bytes, bytes] | None = None
        """The id of the Response, and the one that the client receives."""

    async def finish(self, answer: bytes) -> None:
        """Store a whole Response, which is JSON."""
        if (personal := self._personal) is None:
            await self._exchange.finish(answer)
        else:
            exchange, hidden = await asyncio.to_thread(self._hidden, personal, answer)  # of all texts before it too
            await exchange.finish(hidden)

    def _hidden(self, personal: PersonalAnswer, answer: bytes) -> tuple[StoredRequest, bytes]:
        return self._exchange.hidden(personal), personal.hidden(answer)

    def labelled(self, out: bytes) -> bytes:
        """The same bytes of an answer with the id that the client receives."""
        if (personal := self._personal) is None:
            return out
        if self._id is None:
            if (match := _RESPONSE_ID.search(out)) is None:
                return out
            self._id = match[0], b'"%b"' % personal.labelled(match[1].decode()).encode()
        return out.replace(*self._id)


class _Stream:
    """The events of an answer. An error event reports a broken stream and ends it."""

    __slots__ = ("_answer", "_ended", "_events", "_over", "_stored", "_to_store")

    def __init__(self, answer: Answer, events: ResponseEvents | NativeEvents, stored: _Stored | None) -> None:
        self._answer = answer
        self._stored = stored
        self._to_store = stored
        """The same until the answer is stored."""
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
            if (stored := self._to_store) is not None and (final := self._events.final) is not None:
                self._to_store = None
                await stored.finish(final)
            if out:
                return out if self._stored is None else self._stored.labelled(out)
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
