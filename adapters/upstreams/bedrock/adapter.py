"""Adapter of Bedrock's runtime: chats and messages by Converse, embeddings by InvokeModel, counts by CountTokens.

A chat becomes a message, and a message a request for Converse. An answer of Converse becomes a message, and for a
client of chats a chat.
"""

import re
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, NotFound, Unsupported
from adapters.http1.client import ClientResponse
from adapters.offload import messages
from adapters.registry import Address
from adapters.requests import ChatRequest, CompletionRequest, EmbeddingRequest, Fields, ModelRequest
from adapters.stream import OnePiece
from adapters.types import ANTHROPIC, OPENAI, Usage
from adapters.upstreams import dial
from adapters.upstreams.bedrock.embedding import embedded
from adapters.upstreams.bedrock.operations import Operations
from adapters.upstreams.bedrock.streams import ConverseStream
from adapters.upstreams.failed_status import MAX_ERROR_BODY
from adapters.upstreams.text.one_kind import OneKind
from adapters.upstreams.text.prompts import Prompts
from adapters.wire import decoding
from adapters.wire.anthropic.answers import ReadMessage, completion_of
from adapters.wire.anthropic.chat_to_message import message_fields
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from adapters.wire.anthropic.open_blocks import events_of_message, new_message
from adapters.wire.anthropic.stream_to_chat import ChatChunks, MessageStart
from adapters.wire.anthropic.tools import OwnNames
from adapters.wire.bedrock import event_stream
from adapters.wire.bedrock.content import NAME_BOUNDS
from adapters.wire.bedrock.converse_events import MessageWriter
from adapters.wire.bedrock.converse_to_message import encoded, message_of
from adapters.wire.bedrock.message_to_converse import ConverseOptions, converse_fields, counted_fields
from adapters.wire.bedrock.models import Operation, family_of
from adapters.wire.bedrock.plain_chats import plain_fields
from adapters.wire.error_table import UNKNOWN_MODEL
from adapters.wire.field_names import CHAT
from adapters.wire.native_chat import NativeChat
from adapters.wire.openai.chat import events_of
from adapters.wire.reported_usage import MAX_TOKENS
from config.schema.config import PoolConfig
from config.schema.protocols.bedrock import BedrockProtocol

_NOT_COUNTED = re.compile(r"support.{0,30}\bcount", re.IGNORECASE)
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(Fields).decode


class _Count(msgspec.Struct):
    inputTokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]  # noqa: N815


_count = msgspec.json.Decoder(_Count).decode


def make(pool: PoolConfig, address: Address) -> "BedrockAdapter":
    """Return the adapter of one endpoint of a pool."""
    options = pool.protocol
    assert isinstance(options, BedrockProtocol)
    return BedrockAdapter(Operations(dial.http1_client(pool, address), pool.model_name), options)


class BedrockAdapter:
    """Adapter of one endpoint."""

    def __init__(self, operations: Operations, options: BedrockProtocol) -> None:
        self._operations = operations
        self._options = options
        self._completions = OneKind(self, "chats", Prompts(), 0)
        always, streamed = dict[str, Any](), dict[str, Any]()
        if options.latency is not None:
            always["performanceConfig"] = {"latency": options.latency}
        streamed |= always
        if (guardrail := options.guardrail) is not None:
            named = {"guardrailIdentifier": guardrail.id, "guardrailVersion": guardrail.version}
            always["guardrailConfig"] = named
            streamed["guardrailConfig"] = {**named, "streamProcessingMode": guardrail.mode}
        self._always = {False: always, True: streamed}

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, TokenCount):
            return await self._counted(request, call)
        if isinstance(request, MessagesRequest) and not request.payload.reworded:
            return await self._message(request, call)
        if isinstance(request, ChatRequest):
            return await self._chat(request, call)
        if isinstance(request, CompletionRequest):
            return await self._completions.call(request, call)
        if isinstance(request, EmbeddingRequest):
            family = self._options.family or family_of(self._operations.model(request.model))
            return await embedded(self._operations, family, request, call)
        raise Unsupported(f"The model `{request.model}` takes chats and embeddings only: its servers are Bedrock's.")

    async def probe(self, timeout: float) -> None:
        await self._operations.probe(timeout)

    async def aclose(self) -> None:
        await self._operations.aclose()

    # ── chats ─────────────────────────────────────────────────────────────────────────────────────────

    async def _message(self, request: MessagesRequest, call: Call) -> Answer:
        """Answer a client of Messages."""
        names = OwnNames(request.payload.native, *NAME_BOUNDS)
        try:
            body = self._body(self._of_message(request, call), request)
            response = await self._operations.post(_operation(request), request.model, body, call)
        except CallerError as error:
            error.own_words = True
            raise
        start = self._start(request, response)
        if _streams(request, response):
            stream = ConverseStream(response, request, start, MessageWriter(), ANTHROPIC, names)
            return await stream.begun(call.deadline.first_byte)
        answer, usage = await _whole(request, response, start, names)
        message = encoded(answer)
        if request.stream:
            return OnePiece(events_of_message(message), content_type="text/event-stream", usage=usage, form=ANTHROPIC)
        return Answer(content_type="application/json", body=message, usage=usage, form=ANTHROPIC)

    async def _chat(self, request: ChatRequest, call: Call) -> Answer:
        """Answer a client of chats, or of another protocol that was translated into them."""
        await messages.translate(request, call.ignored)
        names, created = OwnNames(request.fields, *NAME_BOUNDS), int(time.time())
        try:
            body = self._body(self._of_chat(request, self._options.max_tokens, call), request)
            response = await self._operations.post(_operation(request), request.model, body, call)
        except CallerError as error:
            # The message names the fields of a message; the front door of another protocol translates a chat's.
            error.message, error.param = CHAT.sentence(error.message), error.param and CHAT.field(error.param)
            raise
        start = self._start(request, response)
        if _streams(request, response):
            chunks = ChatChunks(created, include_usage=request.include_usage)
            stream = ConverseStream(response, request, start, chunks, OPENAI, names)
            return await stream.begun(call.deadline.first_byte)
        message, usage = await _whole(request, response, start, names)
        completion = completion_of(message, created)
        if request.stream:
            events = events_of(completion, include_usage=request.include_usage)
            return OnePiece(events, content_type="text/event-stream", usage=usage, form=OPENAI)
        return Answer(content_type="application/json", body=completion, usage=usage)

    async def _counted(self, request: TokenCount, call: Call) -> Answer:
        chat = request.chat
        if isinstance(chat, MessagesRequest):
            converse = self._of_message(chat, call)
        else:
            converse = self._of_chat(chat, None, call)
        body = _encode(counted_fields(converse))
        try:
            response = await self._operations.post("count-tokens", request.model, body, call)
        except (BackendError, CallerError) as error:
            # Few models can be counted, and some profiles not at all: the gateway then estimates.
            if error.code in (UNKNOWN_MODEL, NotFound.code) or _NOT_COUNTED.search(error.message):
                raise Unsupported(f"The servers of `{request.model}` do not count tokens.") from None
            raise
        counted = decoding.decode(_count, await response.read(MAX_ERROR_BODY))
        body = _encode({"input_tokens": counted.inputTokens})
        return Answer(content_type="application/json", body=body, usage=Usage(exact=True), form=ANTHROPIC)

    def _of_message(self, request: MessagesRequest, call: Call) -> dict[str, Any]:
        """The request for Converse of a message. Fields that the route adds have a chat's names."""
        native = {**request.payload.native, **request.payload.added}
        if "max_tokens" not in native and self._options.max_tokens is not None:
            native["max_tokens"] = Raw(b"%d" % self._options.max_tokens)
        betas = [name.strip() for name in request.payload.betas.split(",") if name]
        return converse_fields(native, self._converse_options(request), call.ignored, betas)

    def _of_chat(self, request: ChatRequest, max_tokens: int | None, call: Call) -> dict[str, Any]:
        """The request for Converse of a chat."""
        options, is_bare = self._converse_options(request), not isinstance(request, NativeChat)
        if is_bare and (plain := plain_fields(request.fields, options, max_tokens)) is not None:
            return plain
        native = _fields(_encode(message_fields(request, None, max_tokens, call.ignored)))
        return converse_fields(native, options, call.ignored, chat=request.fields)

    def _converse_options(self, request: ChatRequest) -> ConverseOptions:
        family = self._options.family or family_of(self._operations.model(request.model))
        return ConverseOptions(family, self._options.betas)

    def _body(self, converse: dict[str, Any], request: ChatRequest) -> bytes:
        return _encode({**converse, **self._always[request.stream]})

    def _start(self, request: ModelRequest, response: ClientResponse) -> MessageStart:
        """The id of an answer is that of Bedrock's request. An answer does not name the model, and the gateway does not
        show an ARN, which has the number of the account."""
        id_ = response.headers.get("x-amzn-requestid")
        model = self._operations.model(request.model)
        shown = request.model if model.startswith("arn:") else model
        return MessageStart(f"msg_{id_[:128]}" if id_ else new_message()["id"], shown)


def _operation(request: ChatRequest) -> Operation:
    return "converse-stream" if request.stream else "converse"


def _streams(request: ChatRequest, response: ClientResponse) -> bool:
    content_type = (response.headers.get("content-type") or "").lower()
    return request.stream and content_type.startswith(event_stream.CONTENT_TYPE)


async def _whole(
    request: ChatRequest, response: ClientResponse, start: MessageStart, names: OwnNames
) -> tuple[ReadMessage, Usage]:
    """The answer as a message, and its usage, which is estimated if Bedrock reports none."""
    body = await response.read()
    message = message_of(body, start.id, start.model, names)
    return message, message.usage_of(request.prompt_tokens, len(body))
