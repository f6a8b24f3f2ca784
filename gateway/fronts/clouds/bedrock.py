"""Bedrock's `InvokeModel` with Anthropic's messages, its `Converse`, and counts, over every pool that serves chats."""

import re
from functools import partial
from typing import Protocol
from urllib.parse import unquote

from adapters import statuses
from adapters.base import Answer
from adapters.errors import InferenceError
from adapters.http1.message import Request, Response
from adapters.wire.anthropic import requests as wire
from adapters.wire.anthropic.answers import MessageEvents
from adapters.wire.bedrock import converse_answers, converse_requests
from adapters.wire.bedrock import errors as bedrock_errors
from adapters.wire.bedrock.converse_answers import ConverseFrames
from adapters.wire.bedrock.event_stream import CONTENT_TYPE
from adapters.wire.bedrock.invoked import EventFrames
from adapters.wire.body import with_last_fields
from adapters.wire.field_names import MESSAGES
from gateway.auth.keys import Principal
from gateway.fronts import errors
from gateway.fronts.anthropic import AnthropicFront, MessageBody
from gateway.fronts.door import Door, DoorPath, Fields
from gateway.fronts.openai import require_json
from gateway.telemetry import Record

_CALL = re.compile(rb"/model/([^/]+)/(invoke|invoke-with-response-stream|converse|converse-stream|count-tokens)")
_NOT_FOUND = (
    "Unknown path. This gateway serves /model/MODEL with /invoke, /invoke-with-response-stream, /converse, "
    "/converse-stream and /count-tokens."
)


class BedrockFront:
    """The handler of these paths."""

    def __init__(self, door: Door, created: int) -> None:
        self._door = door
        self._anthropic = AnthropicFront(door, created)
        answers = {
            "invoke": self._message,
            "invoke-with-response-stream": self._message,
            "converse": self._converse,
            "converse-stream": self._converse,
            "count-tokens": self._count,
        }
        self._routes = {path.encode(): DoorPath(f"/model/{{model}}/{path}", answer) for path, answer in answers.items()}

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return list(self._routes.values())

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        match = _CALL.fullmatch(http.target)
        route = None if match is None else self._routes[match[2]]
        door = self._door
        return await door.serve(http, route, _NOT_FOUND, _refusal, self._headers, authenticating=door.signed)

    async def _message(self, principal: Principal, http: Request, record: Record) -> Response:
        body, read = await _addressed(http), wire.decode_cloud_message
        response = await self._anthropic.message(principal, http, record, body, read, FramedBody)
        return _in_form(response, record)

    async def _converse(self, principal: Principal, http: Request, record: Record) -> Response:
        body, clock = await _addressed(http), self._door.core.clock

        def milliseconds() -> int:
            return int((clock() - record.started) * 1000)

        stream_of = partial(FramedBody, frames=ConverseFrames(milliseconds))
        response = await self._anthropic.message(principal, http, record, body, converse_requests.decode, stream_of)
        if isinstance(response.body, bytes) and response.status == 200:
            response.body = converse_answers.answer_of(response.body, milliseconds())
        return _in_form(response, record)

    async def _count(self, principal: Principal, http: Request, record: Record) -> Response:
        body = await _addressed(http)
        response = await self._anthropic.count(principal, http, record, body, converse_requests.decode_count)
        assert isinstance(response.body, bytes)
        response.body = converse_answers.count_of(response.body)
        return _in_form(response, record)

    def _headers(self, record: Record) -> Fields:
        return [("x-amzn-requestid", record.request_id), *self._anthropic.headers(record)]


class FrameEncoder(Protocol):
    """Encodes events as frames."""

    def take(self, piece: bytes) -> bytes:
        """Return the frames of the events that a piece completes."""
        ...


class FramedBody(MessageBody):
    """The events of a stream as frames. An exception, the last frame, reports a broken stream."""

    __slots__ = ("_frames",)

    def __init__(
        self, answer: Answer, events: MessageEvents | None, request_id: str, frames: FrameEncoder | None = None
    ) -> None:
        super().__init__(answer, events, request_id)
        self._frames = frames or EventFrames()

    async def _next(self) -> bytes:
        while not (frames := self._frames.take(await super()._next())):
            pass
        return frames

    def _failed(self, error: InferenceError) -> bytes:
        return bedrock_errors.encode_frame(statuses.http_status(error), error.message)


async def _addressed(http: Request) -> bytes:
    """The body with the model of the path, and whether the path is that of a stream."""
    require_json(http)
    match = _CALL.fullmatch(http.target)
    assert match is not None
    own = {"model": unquote(match[1].decode("latin-1")), "stream": match[2].endswith(b"-stream")}
    return with_last_fields(await http.read(), own)


def _in_form(response: Response, record: Record) -> Response:
    """The response with the headers of Bedrock's; a stream has the content type of frames."""
    headers = [("x-amzn-requestid", record.request_id), *response.headers]
    if isinstance(response.body, FramedBody):
        own = [("content-type", CONTENT_TYPE), ("x-amzn-bedrock-content-type", "application/json")]
        headers = [*own, *[field for field in headers if field[0] != "content-type"]]
    response.headers = headers
    return response


def _refusal(error: InferenceError, headers: Fields) -> Response:
    """Bedrock's error response: the exception is in a header."""
    error = MESSAGES.of(error)
    name, status = bedrock_errors.exception_of(statuses.http_status(error))
    kind = [("content-type", "application/json"), (bedrock_errors.TYPE_HEADER, name)]
    return Response(status, [*kind, *headers, *errors.advice(error)], bedrock_errors.encode(error.message))
