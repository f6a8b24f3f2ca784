"""Adapter of servers of Anthropic's Messages: forwards the bytes of a message, and transcodes a chat to a message."""

import time
from typing import Any

import msgspec
from msgspec import Raw

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.ignored_fields import COUNT
from adapters.offload import messages
from adapters.registry import Address
from adapters.requests import ChatRequest, ModelRequest
from adapters.stream import OnePiece
from adapters.types import ANTHROPIC, OPENAI, Usage
from adapters.upstreams import dial, health
from adapters.upstreams.anthropic.hosts import AwsHost, Body, FoundryHost, MessagesHost, VertexHost
from adapters.upstreams.anthropic.streams import ChatStream, MessageStream
from adapters.upstreams.failed_status import MAX_ERROR_BODY, error_body, is_answer, retry_after
from adapters.wire import decoding, error_table, sse
from adapters.wire.anthropic.answers import completion_of, read_message
from adapters.wire.anthropic.chat_to_message import message_fields
from adapters.wire.anthropic.chat_turns import without_own_thoughts
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from adapters.wire.anthropic.open_blocks import events_of_message
from adapters.wire.anthropic.tools import MAX_NAME, OwnNames
from adapters.wire.field_names import CHAT
from adapters.wire.openai.chat import events_of
from config.schema.config import PoolConfig
from config.schema.protocols.language import AnthropicProtocol

_NO_SUCH_PATH = frozenset({404, 405, 501})

_encode = msgspec.json.Encoder().encode


class _Count(msgspec.Struct):
    input_tokens: int


_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_count = msgspec.json.Decoder(_Count).decode


def make(pool: PoolConfig, address: Address) -> "AnthropicAdapter":
    """Return the adapter of one endpoint of a pool."""
    options = pool.protocol
    assert isinstance(options, AnthropicProtocol)
    client = dial.http1_client(pool, address)
    return AnthropicAdapter(client, options=options, **dial.names(pool), **dial.probe_path(pool))


def _host_of(options: AnthropicProtocol, base: str) -> MessagesHost:
    """The host of a pool's servers. `base` is the path of the endpoint's URL."""
    if options.at == "bedrock":
        from adapters.upstreams.anthropic.bedrock import BedrockHost

        return BedrockHost(options, base)
    kinds: dict[str | None, type[MessagesHost]] = {"vertex": VertexHost, "aws": AwsHost, "foundry": FoundryHost}
    return kinds.get(options.at, MessagesHost)(options, base)


class AnthropicAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(
        self,
        client: Client,
        *,
        model: str | None = None,
        probe: str | None = None,
        options: AnthropicProtocol | None = None,
    ) -> None:
        options = options or AnthropicProtocol(name="anthropic")
        self._client = client
        self._model = model
        self._max_tokens = options.max_tokens
        self._host = host = _host_of(options, client.base_path)
        health_path = probe or host.health
        self._probe_target = f"{host.base}{health_path or '/'}".encode()
        self._only_reaches = health_path is None
        accepts = ("accept", "application/json, text/event-stream")
        self._fields = encode_fields([("user-agent", "headrace"), accepts, *host.fields()])
        self._post_fields = self._fields + encode_fields([("content-type", "application/json")])

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, TokenCount):
            return await self._counted(request, call)
        if isinstance(request, MessagesRequest) and not request.payload.reworded:
            return await self._message(request, call)
        if isinstance(request, ChatRequest):
            return await self._chat(request, call)
        raise Unsupported(f"The model `{request.model}` takes chats only: its servers speak Anthropic's protocol.")

    async def probe(self, timeout: float) -> None:
        if self._only_reaches:
            await health.reach(self._client, self._probe_target, self._fields, timeout)
        else:
            await health.check(self._client, self._probe_target, self._fields, timeout)

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def _message(self, request: MessagesRequest, call: Call) -> Answer:
        """Forward the client's message, and return the response unchanged."""
        native = request.payload.native
        if "max_tokens" not in native:
            native = {**native, "max_tokens": Raw(b"%d" % self._max_tokens)}
        response = await self._post_message(request, self._own(request, native), request.payload.betas, call)
        if self._streams(request, response):
            stream = MessageStream(response, request.prompt_tokens, self._splitter(response))
            return await stream.begun(call.deadline.first_byte)
        body = await response.read()
        _check_type(response)
        usage = read_message(body).usage_of(request.prompt_tokens, len(body))
        if request.stream:
            events = events_of_message(body)
            return OnePiece(events, content_type="text/event-stream", usage=usage, form=ANTHROPIC)
        return Answer(content_type="application/json", body=body, usage=usage, form=ANTHROPIC)

    async def _chat(self, request: ChatRequest, call: Call) -> Answer:
        await messages.translate(request, call.ignored)
        fields = message_fields(request, self._model, self._max_tokens, call.ignored)
        betas = request.payload.betas if isinstance(request, MessagesRequest) else ""
        try:
            response = await self._post_message(request, fields, betas, call)
        except CallerError as error:
            # The message names the fields of a chat; the front door of another protocol translates them to its own.
            error.message = CHAT.sentence(error.message)
            raise
        created = int(time.time())
        if self._streams(request, response):
            stream = ChatStream(response, request, created, self._splitter(response))
            return await stream.begun(call.deadline.first_byte)
        body = await response.read()
        _check_type(response)
        message = read_message(body)
        usage = message.usage_of(request.prompt_tokens, len(body))
        completion = completion_of(message, created, OwnNames(request.fields, MAX_NAME))
        if request.stream:
            events = events_of(completion, include_usage=request.include_usage)
            return OnePiece(events, content_type="text/event-stream", usage=usage, form=OPENAI)
        return Answer(content_type="application/json", body=completion, usage=usage)

    async def _counted(self, request: TokenCount, call: Call) -> Answer:
        chat = request.chat
        if isinstance(chat, MessagesRequest):
            native = {name: raw for name, raw in chat.payload.native.items() if name not in ("max_tokens", "stream")}
            fields, betas = self._own(chat, native), chat.payload.betas
        else:
            message = message_fields(chat, self._model, self._max_tokens, call.ignored)
            fields, betas = {name: value for name, value in message.items() if name in COUNT}, ""
        host = self._host
        named = host.named_betas(betas, call.ignored)
        body = host.count_body(fields, named, call.ignored)
        target = host.count(self._model or chat.model)
        response = await self._post(target, request, body, named, call, may_be_missing=True)
        with decoding.Checked():
            reported = _count(host.count_of(await response.read(MAX_ERROR_BODY)))
        return Answer(content_type="application/json", body=_encode(reported), usage=Usage(exact=True), form=ANTHROPIC)

    def _own(self, request: MessagesRequest, native: dict[str, Raw]) -> dict[str, Any]:
        """The client's own values. A key that the client sends twice reaches the upstream once."""
        model = {} if self._model is None else {"model": self._model}
        return {**without_own_thoughts(native), **request.payload.added, **model}

    async def _post_message(self, request: ChatRequest, message: Body, betas: str, call: Call) -> ClientResponse:
        host = self._host
        named = host.named_betas(betas, call.ignored)
        body = host.body(message, named, call.ignored)
        target = host.message(self._model or request.model, stream=request.stream)
        return await self._post(target, request, body, named, call)

    async def _post(
        self,
        target: bytes,
        request: ModelRequest,
        body: bytes,
        betas: list[str],
        call: Call,
        *,
        may_be_missing: bool = False,
    ) -> ClientResponse:
        """Return a response with status 200; raise the typed error of any other status."""
        fields = self._post_fields + encode_fields([*call.fields, *self._host.beta_fields(betas)])
        response = await self._client.request(b"POST", target, fields, body, call.deadline)
        if may_be_missing and response.status in _NO_SUCH_PATH:
            response.close()
            raise Unsupported(f"The servers of `{request.model}` do not count tokens.")
        if not is_answer(response.status):
            reported = self._host.error(response.headers, await error_body(response))
            failure = error_table.judged(response.status, reported, retry_after(response.headers))
            if self._model is None:
                failure = error_table.by_client(failure, response.status, request.model)
            raise failure
        return response

    def _streams(self, request: ModelRequest, response: ClientResponse) -> bool:
        content_type = (response.headers.get("content-type") or "").lower()
        return request.stream and content_type.startswith(self._host.streamed)

    def _splitter(self, response: ClientResponse) -> sse.EventSplitter:
        return self._host.splitter(response.max_answer)


def _check_type(response: ClientResponse) -> None:
    content_type = (response.headers.get("content-type") or "").lower()
    if not content_type.startswith("application/json"):
        raise decoding.bad_response("The upstream's response has the wrong content type.")
