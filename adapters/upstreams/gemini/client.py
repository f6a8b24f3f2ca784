"""Adapter of servers of Gemini's API: forwards the bytes of contents, and transcodes a chat."""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import InferenceError, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.offload import messages
from adapters.registry import Address
from adapters.requests import ChatRequest, EmbeddingRequest, Fields, ModelRequest
from adapters.stream import OnePiece
from adapters.types import ANTHROPIC, GEMINI, OPENAI, Usage
from adapters.upstreams import dial, health
from adapters.upstreams.failed_status import MAX_ERROR_BODY, error_body, is_answer, retry_after
from adapters.upstreams.gemini.cached_contents import CachedContents
from adapters.upstreams.gemini.paths import GeminiPaths, VertexPaths
from adapters.upstreams.gemini.streams import GeminiChatStream, GeminiStream
from adapters.wire import decoding, error_table
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.gemini import errors
from adapters.wire.gemini.answers import AnswerSoFar, ContentAnswer, Counts, read, read_several, whole_events
from adapters.wire.gemini.cache_points import CachePlace
from adapters.wire.gemini.carried import without_ids, without_own
from adapters.wire.gemini.chat_to_content import ContentFields, content_fields, encoded
from adapters.wire.gemini.content_request import ContentRequest
from adapters.wire.gemini.content_to_chat import ContentChunks, completion_of
from adapters.wire.gemini.embeddings import EmbeddingCalls
from adapters.wire.gemini.tools import ClientNames
from adapters.wire.native_chat import NativeChat
from adapters.wire.openai import embeddings
from adapters.wire.openai.embeddings import TRANSLATED, Vector
from adapters.wire.prompt_cache import Breakpoints, ChatMark
from adapters.wire.reported_usage import MAX_TOKENS
from config.schema.config import PoolConfig
from config.schema.protocols.google import GeminiProtocol, VertexProtocol, location_of

TARGETS = 64
"""Paths of calls that an endpoint remembers."""
_STREAM = "streamGenerateContent?alt=sse"
_READ = ("cache_control",)
"""Fields without effect on a chat that this adapter reads by itself."""


class _Count(msgspec.Struct):
    totalTokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]  # noqa: N815 - the wire's own name


_count = msgspec.json.Decoder(_Count).decode
FIELDS = encode_fields([("user-agent", "headrace"), ("accept", "application/json, text/event-stream")])
POST_FIELDS = FIELDS + encode_fields([("content-type", "application/json")])
"""The header fields of every request with a body."""


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
    names = dial.names(pool) | dial.probe_path(pool)
    adapter = GeminiAdapter(client, paths, of_vertex=of_vertex, **names)
    if options.cached_contents and paths.caches is not None:
        points = None
        if (given := pool.prompt_cache) is not None:
            points = Breakpoints(given.system, given.tools, given.turns, given.ttl, given.min_tokens)
        adapter.caches = CachedContents(client, paths, POST_FIELDS, points, pool=pool.name, of_vertex=of_vertex)
    return adapter


class GeminiAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(
        self, client: Client, paths: GeminiPaths, *, of_vertex: bool = False, model: str | None = None, probe: str = ""
    ) -> None:
        self._client = client
        self._paths = paths
        self._of_vertex = of_vertex
        self._model = model
        self._target = lru_cache(TARGETS)(paths.of)
        self._probe_target = (client.base_path + probe if probe else paths.health).encode()
        self.caches: CachedContents | None = None
        """The cached beginnings of prompts; None if the pool has none."""

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
        await health.check(self._client, self._probe_target, FIELDS, timeout)

    async def aclose(self) -> None:
        if self.caches is not None:
            await self.caches.aclose()
        await self._client.aclose()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def _native(self, request: ContentRequest, call: Call) -> Answer:
        """Forward the client's own values, and return the response unchanged."""
        verb = _STREAM if request.stream else "generateContent"
        response = await self._generate(verb, request, self._own(request, call), (), call)
        content_type = (response.headers.get("content-type") or "").lower()
        if request.stream and content_type.startswith("text/event-stream"):
            return await GeminiStream(response, request.prompt_tokens, GEMINI).begun(call.deadline.first_byte)
        whole = await _json(response)
        counts = _merged(read_several(whole)).counts if request.stream else _read_whole(whole).counts
        usage = _usage(request, counts, whole)
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
            body = (await self._translated(chat, call)).fields
        if not self._of_vertex:
            body = {"generateContentRequest": {"model": self._paths.resource(model), **body}}
        response = await self._post("countTokens", request, encoded(body), call)
        with decoding.Checked():
            tokens = _count(await response.read(MAX_ERROR_BODY)).totalTokens
        counted = encoded({"input_tokens": tokens})
        return Answer(content_type="application/json", body=counted, usage=Usage(exact=True), form=ANTHROPIC)

    async def _embed(self, request: EmbeddingRequest, call: Call) -> Answer:
        model = self._model or request.model
        call.ignored.sift(request.fields, TRANSLATED)
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
        translated = await self._translated(request, call)
        response = await self._generate(
            _STREAM if request.stream else "generateContent", request, translated.fields, translated.places, call
        )
        created, names = int(time.time()), ClientNames(request.fields)
        if not request.stream:
            whole = await _json(response)
            answered = _read_whole(whole)
            usage = _usage(request, answered.counts, whole)
            completion = completion_of(answered, usage, created, model, names)
            return Answer(content_type="application/json", body=completion, usage=usage)
        chunks = ContentChunks(created, model, include_usage=request.include_usage, name_of=names)
        content_type = (response.headers.get("content-type") or "").lower()
        if content_type.startswith("text/event-stream"):
            return await GeminiChatStream(response, request, chunks).begun(call.deadline.first_byte)
        whole = await _json(response)
        answers = read_several(whole)
        usage = _usage(request, _merged(answers).counts, whole)
        events = b"".join([chunks.take(answered) for answered in answers])
        return OnePiece(events + chunks.end(usage), content_type="text/event-stream", usage=usage, form=OPENAI)

    async def _translated(self, request: ChatRequest, call: Call) -> ContentFields:
        """The fields of the request for a chat, with a message's own field for thinking and its marks of caches."""
        fields, marks = request.fields, tuple[ChatMark, ...]()
        if isinstance(request, NativeChat):
            await messages.translate(request, call.ignored, _READ)
            fields, marks = {**request.payload.thinking, **request.fields}, request.payload.marks
        model = self._model or request.model
        return content_fields(fields, model, call.ignored, of_vertex=self._of_vertex, marks=marks)

    async def _generate(
        self, verb: str, request: ModelRequest, fields: dict[str, Any], places: Sequence[CachePlace], call: Call
    ) -> ClientResponse:
        """Return the response to a prompt, whose marks of caches are at `places`. A request whose cache is lost is sent
        once more, whole."""
        caches = self.caches
        if caches is None or call.relay is not None:
            if places:
                call.ignored.ignore("cache_control")
        elif (places or caches.points is not None) and "cachedContent" not in fields:
            named = caches.named(fields, places, call, self._model or request.model)
            if named is not None:
                response = await self._sent(verb, request, encoded(named.fields), call)
                if is_answer(response.status):
                    caches.answered(named.digest)
                    return response
                body = await error_body(response)
                if not caches.is_lost(response.status, body):
                    raise self._failure(request, response, body)
                caches.forget(named.digest)
        return await self._post(verb, request, encoded(fields), call)

    async def _post(self, verb: str, request: ModelRequest, body: bytes, call: Call) -> ClientResponse:
        """Return a response with status 200; raise the typed error of any other status."""
        response = await self._sent(verb, request, body, call)
        if not is_answer(response.status):
            raise self._failure(request, response, await error_body(response))
        return response

    async def _sent(self, verb: str, request: ModelRequest, body: bytes, call: Call) -> ClientResponse:
        target = self._target(self._model or request.model, verb)
        fields = POST_FIELDS + encode_fields(call.fields)
        return await self._client.request(b"POST", target.encode(), fields, body, call.deadline)

    def _failure(self, request: ModelRequest, response: ClientResponse, body: bytes) -> InferenceError:
        failure = errors.typed(response.status, body, retry_after(response.headers))
        return failure if self._model is not None else error_table.by_client(failure, response.status, request.model)


async def _json(response: ClientResponse) -> bytes:
    """The body of a response. Raises `BackendError` if it is not JSON."""
    body = await response.read()
    if not (response.headers.get("content-type") or "").lower().startswith("application/json"):
        raise decoding.bad_response("The upstream's response has the wrong content type.")
    return body


def _read_whole(body: bytes) -> ContentAnswer:
    """A whole answer. Raises `BackendError` for none."""
    answered = read(body)
    _check([answered])
    return answered


def _merged(answers: list[ContentAnswer]) -> AnswerSoFar:
    """All chunks of an answer. Raises `BackendError` for no answer, and for a stream without its end."""
    _check(answers)
    so_far = AnswerSoFar()
    for answered in answers:
        so_far.add(answered)
    if not so_far.is_complete:
        raise decoding.bad_response("The upstream's stream ended before the end of its answer.")
    return so_far


def _check(answers: list[ContentAnswer]) -> None:
    for answered in answers:
        if answered.candidates or answered.is_blocked:
            return
    raise decoding.bad_response("The upstream's response has no candidates.")


def _usage(request: ChatRequest, counts: Counts | None, body: bytes) -> Usage:
    reported = counts and counts.usage
    usage = reported or Usage()
    usage.bytes = len(body)
    if reported is None:
        usage.estimate(request.prompt_tokens)
    return usage
