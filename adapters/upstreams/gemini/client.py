"""Adapter of servers of Gemini's API: forwards the bytes of contents, and transcodes a chat."""

import time
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.offload import messages
from adapters.registry import Address
from adapters.requests import ChatRequest, EmbeddingRequest, Fields, ModelRequest
from adapters.stream import OnePiece
from adapters.types import ANTHROPIC, GEMINI, OPENAI, Usage
from adapters.upstreams import dial, health
from adapters.upstreams.failed_status import MAX_ERROR_BODY, error_body, is_answer, retry_after
from adapters.upstreams.gemini.paths import GeminiPaths, VertexPaths
from adapters.upstreams.gemini.streams import GeminiChatStream, GeminiStream
from adapters.wire import decoding, error_table
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.gemini import errors
from adapters.wire.gemini.answers import AnswerSoFar, ContentAnswer, Counts, read, read_several, whole_events
from adapters.wire.gemini.carried import without_ids, without_own
from adapters.wire.gemini.chat_to_content import content_fields, encoded
from adapters.wire.gemini.content_request import ContentRequest
from adapters.wire.gemini.content_to_chat import ContentChunks, completion_of
from adapters.wire.gemini.embeddings import EmbeddingCalls
from adapters.wire.gemini.tools import ClientNames
from adapters.wire.native_chat import NativeChat
from adapters.wire.openai import embeddings
from adapters.wire.openai.embeddings import Vector
from adapters.wire.reported_usage import MAX_TOKENS
from config.schema.config import PoolConfig
from config.schema.protocols.google import GeminiProtocol, VertexProtocol, location_of

_STREAM = "streamGenerateContent?alt=sse"


class _Count(msgspec.Struct):
    totalTokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]  # noqa: N815 - the wire's own name


_count = msgspec.json.Decoder(_Count).decode


def make(pool: PoolConfig, address: Address) -> "GeminiAdapter":
    """Return the adapter of one endpoint of a pool."""
    client, options = dial.http1_client(pool, address), pool.protocol
    if isinstance(options, VertexProtocol):
        location = options.location or location_of(urlsplit(address.url).hostname or "")
        paths: GeminiPaths = VertexPaths(client.base_path, options.version, options.project, location)
    else:
        assert isinstance(options, GeminiProtocol)
        paths = GeminiPaths(client.base_path, options.version)
    of_vertex = isinstance(options, VertexProtocol)
    return GeminiAdapter(client, paths, of_vertex=of_vertex, **dial.names(pool), **dial.probe_path(pool))


class GeminiAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(
        self, client: Client, paths: GeminiPaths, *, of_vertex: bool = False, model: str | None = None, probe: str = ""
    ) -> None:
        self._client = client
        self._paths = paths
        self._of_vertex = of_vertex
        self._model = model
        self._probe_target = (client.base_path + probe if probe else paths.health).encode()
        accepts = ("accept", "application/json, text/event-stream")
        self._fields = encode_fields([("user-agent", "headrace"), accepts])
        self._post_fields = self._fields + encode_fields([("content-type", "application/json")])

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, TokenCount):
            return await self._counted(request, call)
        if isinstance(request, ContentRequest) and not request.payload.reworded:
            return await self._native(request, call)
        if isinstance(request, ChatRequest):
            return await self._chat(request, call)
        if isinstance(request, EmbeddingRequest):
            return await self._embed(request, call)
        raise Unsupported(f"The model `{request.model}` takes chats only: its servers speak Gemini's protocol.")

    async def probe(self, timeout: float) -> None:
        await health.check(self._client, self._probe_target, self._fields, timeout)

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def _native(self, request: ContentRequest, call: Call) -> Answer:
        """Forward the client's own values, and return the response unchanged."""
        verb = _STREAM if request.stream else "generateContent"
        response = await self._post(verb, request, encoded(self._own(request, call)), call)
        content_type = (response.headers.get("content-type") or "").lower()
        if request.stream and content_type.startswith("text/event-stream"):
            return await GeminiStream(response, request.prompt_tokens, GEMINI).begun(call.deadline.first_byte)
        whole = await _json(response)
        answers = read_several(whole) if request.stream else [read(whole)]
        usage = _usage(request, _merged(answers, is_stream=request.stream).counts, whole)
        if request.stream:
            entries = whole_events(whole)
            return OnePiece(entries, content_type="text/event-stream", usage=usage, form=GEMINI)
        return Answer(content_type="application/json", body=whole, usage=usage, form=GEMINI)

    def _own(self, request: ContentRequest, call: Call) -> Fields:
        """The client's own values. Vertex AI refuses ids of calls, and the Gemini API labels."""
        native = without_own({**request.payload.native, **request.payload.added})
        native = {name: raw for name, raw in native.items() if name != "model"}
        if self._of_vertex:
            return without_ids(native)
        if native.pop("labels", None) is not None:
            call.ignored.ignore("labels")
        return native

    async def _counted(self, request: TokenCount, call: Call) -> Answer:
        chat, model = request.chat, self._model or request.model
        if isinstance(chat, ContentRequest) and not chat.payload.reworded:
            body: dict[str, Any] = self._own(chat, call)
        else:
            body = content_fields(await self._chat_fields(chat, call), model, call.ignored, of_vertex=self._of_vertex)
        if not self._of_vertex:
            body = {"generateContentRequest": {"model": self._paths.resource(model), **body}}
        response = await self._post("countTokens", request, encoded(body), call)
        with decoding.Checked():
            tokens = _count(await response.read(MAX_ERROR_BODY)).totalTokens
        counted = encoded({"input_tokens": tokens})
        return Answer(content_type="application/json", body=counted, usage=Usage(exact=True), form=ANTHROPIC)

    async def _embed(self, request: EmbeddingRequest, call: Call) -> Answer:
        model = self._model or request.model
        calls = EmbeddingCalls(request.fields, model, self._paths.resource(model), of_vertex=self._of_vertex)
        vectors, size = list[Vector](), 0
        for body in calls.bodies():
            response = await self._post(calls.verb, request, body, call)
            whole = await _json(response)
            with decoding.Checked(OverflowError):  # a number out of the bounds of 32 bits
                vectors += calls.vectors(whole)
            size += len(whole)
        if len(vectors) != len(calls.fields.inputs):
            raise decoding.bad_response("The upstream's response has another number of embeddings than the request.")
        usage = Usage(calls.tokens or request.prompt_tokens, exact=bool(calls.tokens), bytes=size)
        name = calls.fields.model or model
        answer = embeddings.encode(vectors, model=name, tokens=usage.prompt_tokens, in_base64=calls.fields.base64)
        return Answer(content_type="application/json", body=answer, usage=usage)

    async def _chat(self, request: ChatRequest, call: Call) -> Answer:
        model = self._model or request.model
        fields = await self._chat_fields(request, call)
        body = encoded(content_fields(fields, model, call.ignored, of_vertex=self._of_vertex))
        response = await self._post(_STREAM if request.stream else "generateContent", request, body, call)
        created, names = int(time.time()), ClientNames(request.fields)
        if not request.stream:
            whole = await _json(response)
            answered = read(whole)
            usage = _usage(request, _merged([answered], is_stream=False).counts, whole)
            completion = completion_of(answered, usage, created, model, names)
            return Answer(content_type="application/json", body=completion, usage=usage)
        chunks = ContentChunks(created, model, include_usage=request.include_usage, name_of=names)
        content_type = (response.headers.get("content-type") or "").lower()
        if content_type.startswith("text/event-stream"):
            return await GeminiChatStream(response, request, chunks).begun(call.deadline.first_byte)
        whole = await _json(response)
        answers = read_several(whole)
        usage = _usage(request, _merged(answers, is_stream=True).counts, whole)
        events = b"".join([chunks.take(answered) for answered in answers])
        return OnePiece(events + chunks.end(usage), content_type="text/event-stream", usage=usage, form=OPENAI)

    async def _chat_fields(self, request: ChatRequest, call: Call) -> Fields:
        """The fields of the chat, with a message's own field for thinking."""
        if not isinstance(request, NativeChat):
            return request.fields
        await messages.translate(request, call.ignored)
        return {**request.payload.thinking, **request.fields}

    async def _post(self, verb: str, request: ModelRequest, body: bytes, call: Call) -> ClientResponse:
        """Return a response with status 200; raise the typed error of any other status."""
        target = self._paths.of(self._model or request.model, verb).encode()
        fields = self._post_fields + encode_fields(call.fields)
        response = await self._client.request(b"POST", target, fields, body, call.deadline)
        if not is_answer(response.status):
            wait = retry_after(response.headers)
            failure = errors.typed(response.status, await error_body(response), wait)
            if self._model is None:
                failure = error_table.by_client(failure, response.status, request.model)
            raise failure
        return response


async def _json(response: ClientResponse) -> bytes:
    """The body of a response. Raises `BackendError` if it is not JSON."""
    body = await response.read()
    if not (response.headers.get("content-type") or "").lower().startswith("application/json"):
        raise decoding.bad_response("The upstream's response has the wrong content type.")
    return body


def _merged(answers: list[ContentAnswer], *, is_stream: bool) -> AnswerSoFar:
    """All chunks of an answer. Raises `BackendError` for no answer, and for a stream without its end."""
    if not any(answered.candidates or answered.is_blocked for answered in answers):
        raise decoding.bad_response("The upstream's response has no candidates.")
    so_far = AnswerSoFar()
    for answered in answers:
        so_far.add(answered)
    if is_stream and not so_far.is_complete:
        raise decoding.bad_response("The upstream's stream ended before the end of its answer.")
    return so_far


def _usage(request: ChatRequest, counts: Counts | None, body: bytes) -> Usage:
    reported = counts and counts.usage
    usage = reported or Usage()
    usage.bytes = len(body)
    if reported is None:
        usage.estimate(request.prompt_tokens)
    return usage
