"""OpenAI's API: decodes HTTP requests, calls `core.handle`, encodes HTTP responses."""

from collections.abc import Awaitable, Callable
from functools import partial

from adapters.base import Answer
from adapters.errors import CallerError, InferenceError
from adapters.http1.message import Request, Response
from adapters.requests import GenerateRequest
from adapters.wire import sse
from adapters.wire.openai import chat as wire
from adapters.wire.responses.requests import decode_chat
from config.catalogue.published import PublishedFacts
from gateway.auth.keys import Principal
from gateway.fronts import decoding, errors
from gateway.fronts.door import STREAMED, Door, DoorPath
from gateway.telemetry import Record
from policies.routing import rules

JSON = "application/json"
_NOT_FOUND = (
    "Unknown path. This gateway serves /v1/chat/completions, /v1/responses, /v1/messages, /v1/completions, "
    "/v1/embeddings and /v1/models, and for tensors /v2 and /v1/models/NAME:predict."
)


class OpenAIFront:
    """The handler of OpenAI's paths, and of unknown paths."""

    def __init__(self, door: Door, created: int) -> None:
        self._door = door
        self._core = door.core
        self._created = created
        self._facts = PublishedFacts()
        generate = partial(partial, self._generate)
        self._routes = {
            b"/v1/chat/completions": DoorPath("/v1/chat/completions", generate("chat", decode_chat)),
            b"/v1/completions": DoorPath("/v1/completions", generate("completions", wire.decode_completion)),
            b"/v1/embeddings": DoorPath("/v1/embeddings", generate("embeddings", wire.decode_embedding)),
            b"/v1/models": DoorPath("/v1/models", self._models),
        }

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return list(self._routes.values())

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request."""
        route = self._routes.get(http.target)
        return self._door.serve(http, route, _NOT_FOUND, errors.openai_response, event_of=sse.encode)

    async def _generate(
        self,
        operation: str,
        decode: Callable[[bytes], GenerateRequest],
        principal: Principal,
        http: Request,
        record: Record,
    ) -> Response:
        require_json(http)
        body = await http.read()
        snapshot = self._core.snapshot
        request = await decoding.decode(snapshot, decode, body, operation=operation)
        answer = await self._core.handle(principal, request, http.headers, record)
        headers = [("content-type", answer.content_type), *self._door.headers(record), *answer.headers]
        if answer.body is not None:
            return Response(answer.status, headers, answer.body)
        response = Response(answer.status, [*headers, *STREAMED], StreamBody(answer))
        response.write_to = answer.write_to
        return response

    async def _models(self, principal: Principal, http: Request, record: Record) -> Response:
        visible = self._door.visible(principal)
        tensor_models, facts = self._core.snapshot.tensor_models, await self._facts.of(self._core.snapshot.config)
        models = [
            {
                **wire.model(name, self._created, "tensor" if model.name in tensor_models else "llm"),
                **facts.get(model.name, {}),
            }
            for model in visible
            for name, _, _ in rules.names(model)
        ]
        return self._door.respond(record, wire.encode_models(models))


class StreamBody:
    """The chunks of an answer. A failure after the first chunk is an error event, which ends the stream without
    `[DONE]` and without a finish_reason."""

    __slots__ = ("_answer", "_broken")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._broken = False

    def __aiter__(self) -> "StreamBody":
        return self

    async def __anext__(self) -> bytes:
        if self._broken:
            raise StopAsyncIteration
        try:
            return await self._answer.__anext__()
        except InferenceError as error:
            self._broken = True
            return sse.encode(errors.openai_body(error))

    async def aclose(self) -> None:
        await self._answer.aclose()


def require_json(http: Request) -> None:
    """Raises `CallerError` for a body of another content type."""
    content_type = http.headers.get("content-type")
    if content_type is None or content_type == JSON:
        return
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise CallerError("Send the body as `Content-Type: application/json`.", code="unsupported_media_type")
