"""Adapter of text models on Triton, over its generate extension.

It encodes chats and completions as prompts, and texts as OpenAI's responses.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, ContextTooLong, InferenceError, Unsupported
from adapters.registry import Address
from adapters.requests import ChatRequest, CompletionRequest, GenerateRequest, ModelOrder, ModelQuery, ModelRequest
from adapters.types import BYTES_PER_TOKEN, InferKind, Usage
from adapters.upstreams.dial import http1_client, probe_path
from adapters.upstreams.failed_status import MAX_MESSAGE
from adapters.upstreams.inference import FRESH, MOST
from adapters.upstreams.oip.http_client import OipHttpAdapter
from adapters.upstreams.text.prompts import Prompts, prompts
from adapters.upstreams.transcoded_stream import GeneratedStream
from adapters.wire import error_table, failure_text
from adapters.wire.oip import request_view as oip_view
from adapters.wire.text import prompt_request
from adapters.wire.text.generated_text import StopTexts, TextEncoder
from adapters.wire.text.prompt_request import Options
from adapters.wire.text.triton import Signature, TextResponse, new_text
from config.schema.config import PoolConfig
from config.schema.protocols.language import TritonGenerateProtocol


def make(pool: PoolConfig, address: Address) -> TritonGenerateAdapter:
    """Return the adapter of one endpoint of a pool. Raises `Unmakeable`."""
    section = pool.protocol
    assert isinstance(section, TritonGenerateProtocol)
    client = http1_client(pool, address)
    health = probe_path(pool).get("probe", "/v2/health/ready")
    triton = OipHttpAdapter(client, model=pool.model, probe=health)
    return TritonGenerateAdapter(triton, section, prompts(section), client.now)


class TritonGenerateAdapter:
    """Adapter of one endpoint. It sends prompts through the endpoint's adapter of the Open Inference Protocol."""

    def __init__(
        self, triton: OipHttpAdapter, section: TritonGenerateProtocol, prompts: Prompts, clock: Callable[[], float]
    ) -> None:
        self._triton = triton
        self._section = section
        self._prompts = prompts
        self._clock = clock
        self._signatures: dict[str, tuple[float, Signature]] = {}

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, ModelQuery | ModelOrder):
            self._signatures.clear()
            return await self._triton.call(request, call)
        if not isinstance(request, ChatRequest | CompletionRequest):
            raise Unsupported(
                f"The model `{request.model}` generates text: its servers answer chats and completions only."
            )
        signature = await self._signature(request, call)
        options = prompt_request.options(request, signature.supported, call.ignored)
        prompted = self._prompted(request, call, signature, options)
        kind: InferKind = "generate_stream" if request.stream else "generate"
        body = signature.encode(prompted.prompt, options, stream=request.stream, max_tokens=self._section.max_tokens)
        infer = oip_view.request_of(body, model=request.model, version=request.version, kind=kind)
        try:
            answer = await self._triton.call(infer, call)
        except CallerError as error:
            raise _refusal(error) from None
        if request.stream:
            return await TritonStream(answer, prompted).begun()
        return prompted.whole(answer)

    def _prompted(
        self, request: GenerateRequest, call: Call, signature: Signature, options: Options
    ) -> PromptedRequest:
        teller = TextEncoder(request, id_=call.id, created=int(time.time()))
        most = self._section.max_tokens if options.length is None else options.length
        return PromptedRequest(request, signature, options, teller, self._prompts.of(request), most)

    async def _signature(self, request: GenerateRequest, call: Call) -> Signature:
        """Return the model's signature, which is cached. Raises the errors of the query for the configuration."""
        key = f"{request.model}\0{request.version}"
        cached, now = self._signatures.get(key), self._clock()
        if cached is not None and now < cached[0]:
            return cached[1]
        query = ModelQuery(model=request.model, version=request.version, about="config")
        try:
            answer = await self._triton.call(query, call)
        except Unsupported:  # a 404
            raise BackendError("The upstream does not know the model.", code="upstream_model_not_found") from None
        section = self._section
        inputs = {str(field): name for field, name in section.inputs.items()}
        signature = Signature(answer.body or b"", inputs, section.output, section.streams)
        if len(self._signatures) >= MOST:
            self._signatures.pop(next(iter(self._signatures)))
        self._signatures[key] = (now + FRESH, signature)
        return signature

    async def probe(self, timeout: float) -> None:
        await self._triton.probe(timeout)

    async def aclose(self) -> None:
        await self._triton.aclose()


def _refusal(error: CallerError) -> InferenceError:
    """Return the error of a refusal by its text: Triton blames the request for any exception of a model."""
    message = error.message
    if error_table.is_too_long(message, None, None):
        return ContextTooLong(message[:MAX_MESSAGE])
    if type(error) is not CallerError or error_table.sounds_like_the_callers(message):
        return error
    return failure_text.model_failure(message)


class PromptedRequest:
    """One request, and the state for encoding its response."""

    def __init__(
        self,
        request: GenerateRequest,
        signature: Signature,
        options: Options,
        teller: TextEncoder,
        prompt: str,
        max_tokens: int,
    ) -> None:
        self.signature = signature
        self.options = options
        self.teller = teller
        self.prompt = prompt
        self.usage = Usage(prompt_tokens=request.prompt_tokens)
        self._max_tokens = max_tokens

    @property
    def echo(self) -> str:
        return self.prompt if self.options.echo else ""

    def whole(self, answer: Answer) -> Answer:
        """Encode a whole response."""
        response = self.signature.decode(answer.body or b"")
        usage, stops = self.usage, StopTexts(self.options.stops)
        text = response.text.removeprefix(self.prompt) if self.signature.repeats_prompt else response.text
        text = stops.feed(text) + stops.rest()
        usage.completion_tokens = len(text.encode()) // BYTES_PER_TOKEN + 1
        self.count(response)
        counted = response.completion_tokens is not None
        reason = "stop" if stops.matched else response.reason or (self.reason() if counted else "stop")
        usage.bytes, usage.device_ms = answer.usage.bytes, answer.usage.device_ms
        body = self.teller.whole(self.echo + text, reason, usage)
        return Answer(content_type="application/json", body=body, usage=usage)

    def count(self, response: TextResponse, *, so_far: int | None = None) -> None:
        """Update the usage by a response. `so_far` are the tokens of earlier responses, if each counts only its own."""
        usage = self.usage
        if response.prompt_tokens is not None:
            usage.prompt_tokens = response.prompt_tokens
        if response.completion_tokens is not None:
            usage.completion_tokens = response.completion_tokens + (so_far or 0)
        usage.exact = response.prompt_tokens is not None and response.completion_tokens is not None

    def reason(self) -> str:
        """Return the finish reason for a model that reports none: `length` if the token count reaches the limit."""
        return "length" if self.usage.completion_tokens >= self._max_tokens else "stop"


class TritonStream(GeneratedStream):
    """A stream of responses that have a piece of the text or the whole text so far. No response is marked as last."""

    __slots__ = ("_prompted", "_before", "_reason")

    def __init__(self, events: Answer, prompted: PromptedRequest) -> None:
        super().__init__(events, prompted.usage, prompted.teller, prompted.options.stops)
        self._prompted = prompted
        self._before = ""
        self._reason: str | None = None

    def _take(self, data: bytes) -> bytes:
        prompted, signature = self._prompted, self._prompted.signature
        response = signature.decode(data)
        self._reason = response.reason or self._reason
        if response.completion_tokens is None:
            self.usage.completion_tokens += 1  # a response has one token
        prompted.count(response, so_far=self.usage.completion_tokens if signature.counts_pieces else None)
        text = response.text
        if signature.accumulates:
            text = new_text(text, self._before, last=response.reason is not None)
            self._before += text
        opening = b""
        if not self._opened and prompted.echo:
            opening = self._teller.piece(prompted.echo)
        return opening + self._add_text(text)

    def _over(self) -> bytes:
        if not self._opened:
            return super()._over()
        return self._end(self._reason or self._prompted.reason())
