"""`/v1/responses`: a request becomes a chat, and the chat's answer a Response. Nothing is stored."""

import msgspec
from msgspec import Raw

from adapters import offload
from adapters.errors import BackendError, CallerError
from adapters.requests import ChatRequest
from adapters.types import Usage
from adapters.wire.body import open_body
from adapters.wire.openai.model_field import with_model
from adapters.wire.responses import answers
from adapters.wire.responses import requests as wire
from adapters.wire.responses.events import ResponseEvents, whole
from runtimes.llm.api.generation import AnswerStream

NULL = b"null"
_encode = msgspec.json.Encoder().encode


class ResponsesCall:
    """One request: its chat, and the Response that its answer becomes."""

    def __init__(self, chat: ChatRequest, request: wire.ResponsesBody, given: dict[str, Raw]) -> None:
        self.chat = _encode(chat.fields)
        """The request as `/v1/chat/completions` decodes it."""
        self.ignored = chat.ignored
        """Fields without effect on a chat."""
        self._shell = answers.Shell(request, given)

    def whole(self, chat: bytes) -> bytes:
        """The response to it."""
        return whole(chat, self._shell, Usage())

    def events(self, chat: AnswerStream) -> "ResponseEventStream":
        """The response as a stream of events."""
        return ResponseEventStream(chat, ResponseEvents(self._shell))


async def decode(body: bytes, default: str) -> ResponsesCall:
    """A request, decoded. A request without a model is for the `default`. Raises `CallerError`."""
    try:
        return ResponsesCall(*await offload.parse(body, wire.decode, body))
    except CallerError as error:
        if error.param != "model":
            raise
        fields = await offload.parse(body, open_body, body)
        if bytes(fields.get("model", NULL)) != NULL:
            raise
    body = await offload.parse(body, with_model, "application/json", body, default)
    return ResponsesCall(*await offload.parse(body, wire.decode, body))


class ResponseEventStream:
    """Converts a chat's stream to a Response's events. A broken stream ends with `response.failed`."""

    def __init__(self, chat: AnswerStream, events: ResponseEvents) -> None:
        self._chat = chat
        self._events = events
        self._ended = False

    def __aiter__(self) -> "ResponseEventStream":
        return self

    async def __anext__(self) -> bytes:
        while not self._ended:
            if out := await self._next():
                return out
        raise StopAsyncIteration

    async def _next(self) -> bytes:
        events = self._events
        try:
            out = events.take(await anext(self._chat))
        except StopAsyncIteration:
            self._ended = True
            return events.fail(self._chat.failure or BackendError("The answer was interrupted."), Usage())
        if events.done:
            self._ended = True
            out += events.end(Usage())
        return out

    async def aclose(self) -> None:
        await self._chat.aclose()
