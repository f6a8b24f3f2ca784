"""Bedrock's `InvokeModel` with Anthropic's messages, over every pool that serves chats."""

import re
from collections.abc import Sequence
from urllib.parse import unquote

from adapters import statuses
from adapters.base import Answer
from adapters.errors import InferenceError
from adapters.http1.message import Request, Response
from adapters.wire.anthropic import requests as wire
from adapters.wire.anthropic.answers import MessageEvents
from adapters.wire.bedrock import errors as bedrock_errors
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

_CALL = re.compile(rb"/model/([^/]+)/(invoke|invoke-with-response-stream)")
_NOT_FOUND = "Unknown path. This gateway serves /model/MODEL/invoke and /model/MODEL/invoke-with-response-stream."


class BedrockFront:
    """The handler of these paths."""

    def __init__(self, door: Door, created: int) -> None:
        self._door = door
        self._anthropic = AnthropicFront(door, created)
        paths = ("invoke", "invoke-with-response-stream")
        self._routes = {path.encode(): DoorPath(f"/model/{{model}}/{path}", self._message) for path in paths}

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
        require_json(http)
        match = _CALL.fullmatch(http.target)
        assert match is not None
        own = {"model": unquote(match[1].decode("latin-1")), "stream": match[2] != b"invoke"}
        body = with_last_fields(await http.read(), own)
        read, anthropic = wire.decode_cloud_message, self._anthropic
        response = await anthropic.message(principal, http, record, body, read, FramedBody)
        if isinstance(response.body, FramedBody):
            response.headers = _framed(response.headers)
        return response

    def _headers(self, record: Record) -> Fields:
        return [("x-amzn-requestid", record.request_id), *self._anthropic.headers(record)]


class FramedBody(MessageBody):
    """The events of a stream as frames. An exception, the last frame, reports a broken stream."""

    __slots__ = ("_frames",)

    def __init__(self, answer: Answer, events: MessageEvents | None, request_id: str) -> None:
        super().__init__(answer, events, request_id)
        self._frames = EventFrames()

    async def _next(self) -> bytes:
        while not (frames := self._frames.take(await super()._next())):
            pass
        return frames

    def _failed(self, error: InferenceError) -> bytes:
        return bedrock_errors.encode_frame(statuses.http_status(error), error.message)


def _framed(headers: Sequence[tuple[str, str]]) -> Fields:
    own = [("content-type", CONTENT_TYPE), ("x-amzn-bedrock-content-type", "application/json")]
    return [*own, *[field for field in headers if field[0] != "content-type"]]


def _refusal(error: InferenceError, headers: Fields) -> Response:
    """Bedrock's error response: the exception is in a header."""
    error = MESSAGES.of(error)
    name, status = bedrock_errors.exception_of(statuses.http_status(error))
    kind = [("content-type", "application/json"), (bedrock_errors.TYPE_HEADER, name)]
    return Response(status, [*kind, *headers, *errors.advice(error)], bedrock_errors.encode(error.message))
