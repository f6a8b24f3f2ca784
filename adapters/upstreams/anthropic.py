"""Adapter of servers of Anthropic's Messages: forwards the bytes of a message, and transcodes a chat to a message."""

import time
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, InferenceError, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.ignored_fields import COUNT
from adapters.registry import Address
from adapters.requests import ChatRequest, ModelRequest
from adapters.stream import OnePiece
from adapters.types import ANTHROPIC, BYTES_PER_TOKEN, OPENAI, Form, Usage
from adapters.upstreams import dial, health
from adapters.upstreams.event_stream import EventStream
from adapters.upstreams.failed_status import MAX_ERROR_BODY, error_body, is_answer, retry_after
from adapters.wire import decoding, error_table, sse
from adapters.wire.anthropic import errors
from adapters.wire.anthropic.answers import completion_of, read_message, reported_by
from adapters.wire.anthropic.chat_to_message import message_body
from adapters.wire.anthropic.chat_turns import without_own_thoughts
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from adapters.wire.anthropic.open_blocks import events_of_message
from adapters.wire.anthropic.requests import VERSION
from adapters.wire.anthropic.stream_to_chat import ChatChunks, MessageEvent, read_event
from adapters.wire.anthropic.tools import MAX_NAME, OwnNames
from adapters.wire.field_names import CHAT
from adapters.wire.openai.chat import events_of
from adapters.wire.reported_usage import UsageReport
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
    return AnthropicAdapter(
        dial.http1_client(pool, address),
        **dial.names(pool),
        **dial.probe_path(pool),
        version=options.version,
        betas=options.betas,
        max_tokens=options.max_tokens,
    )


class AnthropicAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(
        self,
        client: Client,
        *,
        model: str | None = None,
        probe: str = "/v1/models",
        version: str = VERSION,
        betas: Sequence[str] = (),
        max_tokens: int = 4096,
    ) -> None:
        self._client = client
        self._model = model
        self._betas = tuple(betas)
        self._max_tokens = max_tokens
        base = client.base_path.removesuffix("/v1")
        self._messages = f"{base}/v1/messages".encode()
        self._counts = f"{base}/v1/messages/count_tokens".encode()
        self._probe_target = (base + probe).encode()
        accepts = ("accept", "application/json, text/event-stream")
        self._fields = encode_fields([("user-agent", "headrace"), accepts, ("anthropic-version", version)])
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
        await health.check(self._client, self._probe_target, self._fields, timeout)

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def _message(self, request: MessagesRequest, call: Call) -> Answer:
        """Forward the client's message, and return the response unchanged."""
        native = request.payload.native
        if "max_tokens" not in native:
            native = {**native, "max_tokens": Raw(b"%d" % self._max_tokens)}
        response = await self._post(self._messages, request, self._own(request, native), request.payload.betas, call)
        if _streams(request, response):
            return await MessageStream(response, request.prompt_tokens).begun(call.deadline.first_byte)
        body = await response.read()
        _check_type(response)
        usage = _usage(request, body)
        if request.stream:
            events = events_of_message(body)
            return OnePiece(events, content_type="text/event-stream", usage=usage, form=ANTHROPIC)
        return Answer(content_type="application/json", body=body, usage=usage, form=ANTHROPIC)

    async def _chat(self, request: ChatRequest, call: Call) -> Answer:
        body = message_body(request, self._model, self._max_tokens, call.ignored)
        betas = request.payload.betas if isinstance(request, MessagesRequest) else ""
        try:
            response = await self._post(self._messages, request, body, betas, call)
        except CallerError as error:
            # The message names the fields of a chat; the front door of another protocol translates them to its own.
            error.message = CHAT.sentence(error.message)
            raise
        created = int(time.time())
        if _streams(request, response):
            return await ChatStream(response, request, created).begun(call.deadline.first_byte)
        body = await response.read()
        _check_type(response)
        usage = _usage(request, body)
        completion = completion_of(read_message(body), created, OwnNames(request.fields, MAX_NAME))
        if request.stream:
            events = events_of(completion, include_usage=request.include_usage)
            return OnePiece(events, content_type="text/event-stream", usage=usage, form=OPENAI)
        return Answer(content_type="application/json", body=completion, usage=usage)

    async def _counted(self, request: TokenCount, call: Call) -> Answer:
        chat = request.chat
        if isinstance(chat, MessagesRequest):
            native = {name: raw for name, raw in chat.payload.native.items() if name not in ("max_tokens", "stream")}
            body, betas = self._own(chat, native), chat.payload.betas
        else:
            message = _fields(message_body(chat, self._model, self._max_tokens, call.ignored))
            body, betas = _encode({name: raw for name, raw in message.items() if name in COUNT}), ""
        response = await self._post(self._counts, request, body, betas, call, may_be_missing=True)
        with decoding.Checked():
            reported = _count(await response.read(MAX_ERROR_BODY))
        return Answer(content_type="application/json", body=_encode(reported), usage=Usage(exact=True), form=ANTHROPIC)

    def _own(self, request: MessagesRequest, native: dict[str, Raw]) -> bytes:
        """Encode the client's own values. A key that the client sends twice reaches the upstream once."""
        model = {} if self._model is None else {"model": self._model}
        return _encode({**without_own_thoughts(native), **request.payload.added, **model})

    async def _post(
        self,
        target: bytes,
        request: ModelRequest,
        body: bytes,
        betas: str,
        call: Call,
        *,
        may_be_missing: bool = False,
    ) -> ClientResponse:
        """Return a response with status 200; raise the typed error of any other status."""
        reported = [*call.fields]
        named = [*self._betas, *[name.strip() for name in betas.split(",") if name]]
        if named:
            reported.append(("anthropic-beta", ",".join(dict.fromkeys(named))))
        fields = self._post_fields + encode_fields(reported)
        response = await self._client.request(b"POST", target, fields, body, call.deadline)
        if may_be_missing and response.status in _NO_SUCH_PATH:
            response.close()
            raise Unsupported(f"The servers of `{request.model}` do not count tokens.")
        if not is_answer(response.status):
            failure = await _error_of(response)
            if self._model is None:
                failure = error_table.by_client(failure, response.status, request.model)
            raise failure
        return response


def _streams(request: ModelRequest, response: ClientResponse) -> bool:
    content_type = (response.headers.get("content-type") or "").lower()
    return request.stream and content_type.startswith("text/event-stream")


def _check_type(response: ClientResponse) -> None:
    content_type = (response.headers.get("content-type") or "").lower()
    if not content_type.startswith("application/json"):
        raise decoding.bad_response("The upstream's response has the wrong content type.")


def _usage(request: ChatRequest, body: bytes) -> Usage:
    message = read_message(body)
    reported = message.reported and message.reported.usage
    usage = reported or Usage()
    usage.bytes = len(body)
    if reported is None:
        usage.estimate(request.prompt_tokens)
    return usage


async def _error_of(response: ClientResponse) -> InferenceError:
    """The typed error of a status other than 2xx."""
    reported = errors.decode_error(await error_body(response))
    return error_table.judged(response.status, reported, retry_after(response.headers))


# Streams of a message: forwarded unchanged, or transcoded to a chat's chunks.

ENVELOPE = 90
"""Bytes of an event besides its text."""
_OPENINGS = frozenset({"message_start", "content_block_start", "ping"})
"""Events without output. A model may think for minutes after any of them."""


class MessageStream(EventStream):
    """A stream of a message, forwarded unchanged."""

    __slots__ = ("_opened", "_reported")

    def __init__(self, response: ClientResponse, prompt_tokens: int, form: Form = ANTHROPIC) -> None:
        super().__init__(response, Usage(prompt_tokens=prompt_tokens), form=form)
        self._reported: UsageReport | None = None
        self._opened = self._started = False

    def _passes_on(self, event: bytes) -> bool:
        """Count the tokens of an event. Pings before the start of the message are dropped."""
        data = sse.data_of(event)
        if self._opened and b'"content_block_delta"' in data:
            self._started = True
            self._count(data)
            return True
        if not data:
            return self._started and event.startswith(b":")
        self._read_event(data)
        return self._opened

    def _count(self, data: bytes) -> None:
        """Estimate the tokens of an event; the last events report the exact count."""
        self.usage.completion_tokens += max((len(data) - ENVELOPE) // BYTES_PER_TOKEN, 1)

    def _read_event(self, data: bytes) -> MessageEvent:
        """Decode an event. Raises the typed error of an `error` event."""
        event = read_event(data)
        if event.type == "error":
            raise _failure(data)
        self._started = self._started or (self._opened and event.type not in _OPENINGS)
        if event.type == "message_start":
            self._opened = True
            self._reported = reported_by(event.message.usage) if event.message is not None else None
            if self._reported is not None and (begun := self._reported.usage) is not None:
                self.usage = Usage(begun.prompt_tokens, bytes=self.usage.bytes)
        elif not self._opened and event.type != "ping":
            raise decoding.bad_response("The upstream's stream does not start with a message.")
        elif event.type == "message_delta" and (more := reported_by(event.usage)) is not None:
            self._reported = more.over(self._reported)
            if (usage := self._reported.usage) is not None:
                usage.bytes = self.usage.bytes
                self.usage = usage
        self._done = event.type == "message_stop"
        return event


class ChatStream(MessageStream):
    """A stream that transcodes each event to the equivalent chunks of a chat."""

    __slots__ = ("_chunks", "_words")

    def __init__(self, response: ClientResponse, request: ChatRequest, created: int) -> None:
        super().__init__(response, request.prompt_tokens, OPENAI)
        own = OwnNames(request.fields, MAX_NAME)
        self._chunks = ChatChunks(created, include_usage=request.include_usage, name_of=own)
        self._words = b""

    rewords = True

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if not data:
            self._words = event + b"\n\n"
            return self._started and event.startswith(b":")
        decoded = self._read_event(data)
        if decoded.type == "content_block_delta":
            self._count(data)
        self._words = self._chunks.take(decoded, self.usage) if self._opened else b""
        return bool(self._words)

    def _worded(self, event: bytes) -> bytes:
        return self._words


def _failure(data: bytes) -> InferenceError:
    return errors.stream_error(errors.decode_error(data))
