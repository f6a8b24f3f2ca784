"""Adapter of Text Generation Inference: encodes chats and completions as prompts, and texts as OpenAI's responses."""

from __future__ import annotations

import time

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import InferenceError, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.registry import Address
from adapters.requests import ChatRequest, CompletionRequest, GenerateRequest, ModelRequest
from adapters.types import ANTHROPIC, Usage
from adapters.upstreams import health
from adapters.upstreams.dial import http1_client, names, probe_path
from adapters.upstreams.event_stream import EventStream
from adapters.upstreams.failed_status import error_body, is_answer, refused
from adapters.upstreams.text.prompts import Prompts, prompts
from adapters.upstreams.transcoded_stream import GeneratedStream
from adapters.wire import decoding, sse
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.decoding import whole_number
from adapters.wire.text import prompt_request
from adapters.wire.text import tgi as wire
from adapters.wire.text.generated_text import StopTexts, TextEncoder
from adapters.wire.text.prompt_request import Options
from config.schema.config import PoolConfig
from config.schema.protocols.language import TgiProtocol


def make(pool: PoolConfig, address: Address) -> TgiAdapter:
    """Return the adapter of one endpoint of a pool. Raises `Unmakeable`."""
    assert isinstance(pool.protocol, TgiProtocol)
    return TgiAdapter(http1_client(pool, address), prompts(pool.protocol), **names(pool), **probe_path(pool))


class TgiAdapter:
    """Adapter of one endpoint. `model` is the id of a LoRA adapter on the endpoint."""

    def __init__(
        self,
        client: Client,
        prompts: Prompts | None = None,
        *,
        model: str | None = None,
        probe: str = "/health",
    ) -> None:
        self._client = client
        self._prompts = prompts or Prompts()
        self._model = model
        base = client.base_path
        self._target, self._stream_target = f"{base}/generate".encode(), f"{base}/generate_stream".encode()
        self._count_target = f"{base}/tokenize".encode()
        self._probe_target = (base + probe).encode()
        fields = [("user-agent", "headrace"), ("accept", "application/json, text/event-stream")]
        self._fields = encode_fields(fields)
        self._post_fields = self._fields + encode_fields([("content-type", "application/json")])

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, TokenCount):
            return await self._count(request, call)
        if not isinstance(request, ChatRequest | CompletionRequest):
            raise Unsupported(
                f"The model `{request.model}` generates text: its servers answer chats and completions only."
            )
        options = prompt_request.options(request, wire.SUPPORTED, call.ignored)
        prompt = self._prompts.of(request)
        body = wire.encode_request(prompt, options, stream=request.stream, adapter=self._model)
        fields = self._post_fields + encode_fields(call.fields)
        target = self._stream_target if request.stream else self._target
        response = await self._client.request(b"POST", target, fields, body, call.deadline)
        if not is_answer(response.status):
            raise await _refusal(response)
        teller = TextEncoder(request, id_=call.id, created=int(time.time()), tokens=options.tops is not None)
        if request.stream:
            return await self._stream(response, request, options, teller, prompt, call)
        return await _whole(response, request, options, teller, prompt)

    async def _stream(
        self,
        response: ClientResponse,
        request: GenerateRequest,
        options: Options,
        teller: TextEncoder,
        prompt: str,
        call: Call,
    ) -> Answer:
        if not (response.headers.get("content-type") or "").lower().startswith("text/event-stream"):
            response.close()
            raise decoding.bad_response("The upstream's response has the wrong content type.")
        usage = Usage(prompt_tokens=request.prompt_tokens)
        events = await TokenEvents(response, Usage()).begun(call.deadline.first_byte)
        return await TgiStream(events, usage, teller, options.stops, prompt if options.echo else "").begun()

    async def _count(self, request: TokenCount, call: Call) -> Answer:
        """Count a prompt's tokens with the server's fast tokenizer. Raises `Unsupported` if the server has none."""
        request.chat.payload.report(call.ignored)
        body = wire.encode_prompt(self._prompts.of(request.chat))
        response = await self._client.request(b"POST", self._count_target, self._post_fields, body, call.deadline)
        if response.status == 404:
            response.close()
            raise Unsupported(f"The servers of `{request.model}` do not count tokens.")
        if not is_answer(response.status):
            raise await _refusal(response)
        counted = wire.encode_count(await response.read())
        return Answer(content_type="application/json", body=counted, usage=Usage(exact=True), form=ANTHROPIC)

    async def probe(self, timeout: float) -> None:
        await health.check(self._client, self._probe_target, self._fields, timeout)

    async def aclose(self) -> None:
        await self._client.aclose()


async def _whole(
    response: ClientResponse, request: GenerateRequest, options: Options, teller: TextEncoder, prompt: str
) -> Answer:
    body = await response.read()
    text, details = wire.decode_whole(body)
    stops = StopTexts(options.stops)
    text = stops.feed(text) + stops.rest()
    counted = whole_number(response.headers.get("x-prompt-tokens") or "", most=2**31 - 1)
    exact, prompt_tokens = counted is not None, request.prompt_tokens if counted is None else counted
    usage = Usage(prompt_tokens, details.generated_tokens, exact, bytes=len(body))
    reason = wire.REASONS.get(details.finish_reason, "stop")
    if options.echo:
        text = prompt + text
    encoded = teller.whole(text, reason, usage, wire.tokens(details, echo=bool(options.echo)))
    return Answer(content_type="application/json", body=encoded, usage=usage)


async def _refusal(response: ClientResponse) -> InferenceError:
    """Return the typed error of a status other than 200."""
    encoded = wire.refusal(await error_body(response), response.status)
    return refused(response.status, response.headers, encoded.message)


class TokenEvents(EventStream):
    """A stream of one event for each token. The event with the whole text is the last."""

    __slots__ = ()

    def _passes_on(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if not data:
            return self._begun and event.startswith(b":")
        if wire.is_last(data):
            encoded = wire.decode_event(data)
            if encoded.error is not None:
                refusal = wire.refusal(data, 200)
                raise refused(refusal.status, self._response.headers, refusal.message)
            self._done = encoded.generated_text is not None
        return True


class TgiStream(GeneratedStream):
    """A stream that encodes tokens as OpenAI's chunks."""

    __slots__ = ("_echo",)

    def __init__(self, events: EventStream, usage: Usage, teller: TextEncoder, stops: list[str], echo: str) -> None:
        super().__init__(events, usage, teller, stops)
        self._echo = echo

    def _take(self, data: bytes) -> bytes:
        event = wire.decode_event(data)
        assert event.token is not None  # an event without a token is an error, and was raised
        self.usage.completion_tokens += 1
        encoded = b""
        if self._echo:
            encoded, self._echo = self._teller.piece(self._echo), ""
        if event.token.special:
            encoded += self._add_text("")
        else:
            encoded += self._add_text(event.token.text, (wire.token(event.token, event.top_tokens),))
        if event.generated_text is None or self._done:
            return encoded
        reason = "stop"
        if (details := event.details) is not None:
            reason = wire.REASONS.get(details.finish_reason, reason)
            self._count(details)
        return encoded + self._end(reason)

    def _count(self, details: wire.Details) -> None:
        usage = self.usage
        usage.completion_tokens = details.generated_tokens
        if details.input_length is not None:
            usage.prompt_tokens, usage.exact = details.input_length, True
