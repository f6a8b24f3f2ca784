"""Adapter of servers of Gemini's API: transcodes a chat to `generateContent`."""

import time
from urllib.parse import urlsplit

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.offload import messages
from adapters.registry import Address
from adapters.requests import ChatRequest, Fields, ModelRequest
from adapters.stream import OnePiece
from adapters.types import OPENAI, Usage
from adapters.upstreams import dial, health
from adapters.upstreams.failed_status import error_body, is_answer, retry_after
from adapters.upstreams.gemini.paths import GeminiPaths, VertexPaths
from adapters.upstreams.gemini.streams import GeminiChatStream
from adapters.wire import decoding, error_table
from adapters.wire.anthropic.message_request import MessagesRequest
from adapters.wire.gemini import errors
from adapters.wire.gemini.answers import ContentAnswer, read, read_several
from adapters.wire.gemini.chat_to_content import content_fields, encoded
from adapters.wire.gemini.content_to_chat import ContentChunks, completion_of
from adapters.wire.gemini.tools import ClientNames
from adapters.wire.openai import thinking
from config.schema.config import PoolConfig
from config.schema.protocols.google import GeminiProtocol, VertexProtocol, location_of


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
        if isinstance(request, ChatRequest):
            return await self._chat(request, call)
        raise Unsupported(f"The model `{request.model}` takes chats only: its servers speak Gemini's protocol.")

    async def probe(self, timeout: float) -> None:
        await health.check(self._client, self._probe_target, self._fields, timeout)

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def _chat(self, request: ChatRequest, call: Call) -> Answer:
        model = self._model or request.model
        fields = await self._chat_fields(request, call)
        body = encoded(content_fields(fields, model, call.ignored, of_vertex=self._of_vertex))
        verb = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        response = await self._post(verb, request, body, call)
        created, names = int(time.time()), ClientNames(request.fields)
        content_type = (response.headers.get("content-type") or "").lower()
        chunks = ContentChunks(created, model, include_usage=request.include_usage, name_of=names)
        if request.stream and content_type.startswith("text/event-stream"):
            return await GeminiChatStream(response, request, chunks).begun(call.deadline.first_byte)
        whole = await response.read()
        if not content_type.startswith("application/json"):
            raise decoding.bad_response("The upstream's response has the wrong content type.")
        if not request.stream:
            answered = read(whole)
            usage = _usage(request, answered, whole)
            completion = completion_of(answered, usage, created, model, names)
            return Answer(content_type="application/json", body=completion, usage=usage)
        events = b"".join([chunks.take(answered) for answered in read_several(whole)])
        usage = (chunks.counts and chunks.counts.usage) or Usage()
        return OnePiece(events + chunks.end(usage), content_type="text/event-stream", usage=usage, form=OPENAI)

    async def _chat_fields(self, request: ChatRequest, call: Call) -> Fields:
        """The fields of the chat, with a message's own field for thinking."""
        if not isinstance(request, MessagesRequest):
            return request.fields
        await messages.translate(request, call.ignored)
        return {**request.fields, **thinking.thinking_of_message(request.payload.native, request.fields, "own")}

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


def _usage(request: ChatRequest, answered: ContentAnswer, body: bytes) -> Usage:
    reported = answered.usageMetadata and answered.usageMetadata.usage
    usage = reported or Usage()
    usage.bytes = len(body)
    if reported is None:
        usage.estimate(request.prompt_tokens)
    return usage
