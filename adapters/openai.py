"""Any server that speaks OpenAI: vLLM, SGLang, llama.cpp, hosted APIs, and our own LLM runtime."""

import asyncio
import email.utils
import math
import time
from contextlib import suppress
from typing import NoReturn

from adapters.base import Answer
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    InferenceError,
    TooLarge,
    TransportError,
    Unsupported,
    UpstreamTimeout,
)
from adapters.http1.client import Client, ClientResponse, encode_fields
from adapters.types import (
    ChatRequest,
    CompletionRequest,
    Deadline,
    EmbeddingRequest,
    GenerateRequest,
    ModelRequest,
    Usage,
)
from adapters.wire import openai as wire
from adapters.wire import sse

MAX_ERROR_BODY = 64 * 1024
TAIL_SECONDS = 0.1
CALLER_STATUS = frozenset({400, 405, 409, 411, 413, 415, 416, 422})


class OpenAIAdapter:
    """One endpoint. `model` is its name for what clients call otherwise; `key` is ours, never the client's."""

    def __init__(self, client: Client, *, model: str | None = None, key: str | None = None, probe: str = "/health"):
        self._client = client
        self._model = model
        base = client.base_path
        prefix = base if base.endswith("/v1") else base + "/v1"
        self._targets = {
            kind.path: (prefix + kind.path).encode() for kind in (ChatRequest, CompletionRequest, EmbeddingRequest)
        }
        self._probe_target = (base.removesuffix("/v1") + probe).encode()
        fields = [("user-agent", "headrace"), ("accept", "application/json, text/event-stream")]
        if key:
            fields.append(("authorization", f"Bearer {key}"))
        self._fields = encode_fields(fields)
        self._post_fields = self._fields + encode_fields([("content-type", "application/json")])

    async def call(self, request: ModelRequest, deadline: Deadline) -> Answer:
        if not isinstance(request, GenerateRequest):
            raise Unsupported(f"The model `{request.model}` takes no tensors: its servers speak OpenAI's protocol.")
        fields = self._post_fields + encode_fields((("x-request-id", request.request_id),))
        body = wire.upstream_body(request, self._model)
        response = await self._client.request(b"POST", self._targets[request.path], fields, body, deadline)
        if response.status != 200:
            await _raise(response)
        content_type = (response.headers.get("content-type") or "").lower()
        if request.stream and content_type.startswith("text/event-stream"):
            return await EventStream(response, request).begun(deadline.first_byte)
        body = await response.read()
        if request.stream or not content_type.startswith("application/json"):
            raise BackendError("The upstream answered with the wrong content type.", code="upstream_bad_response")
        usage = wire.usage_of_body(body, request.answered) or Usage()
        usage.bytes = len(body)
        return Answer(content_type="application/json", body=body, usage=usage)

    async def probe(self, timeout: float) -> None:
        deadline = Deadline(self._client.now() + timeout, timeout, timeout)
        response = await self._client.request(b"GET", self._probe_target, self._fields, b"", deadline)
        try:
            await response.read(MAX_ERROR_BODY)
        finally:
            response.close()
        if response.status != 200:
            raise BackendError(f"The health check answered {response.status}.")

    async def aclose(self) -> None:
        await self._client.aclose()


class EventStream(Answer):
    """A streamed answer. Events go on as they came, save the usage chunk that only we asked for."""

    __slots__ = ("_begun", "_done", "_pending", "_response", "_splitter", "_swallow_usage")

    def __init__(self, response: ClientResponse, request: GenerateRequest) -> None:
        usage = Usage(prompt_tokens=request.prompt_tokens)
        super().__init__(content_type="text/event-stream", body=None, usage=usage)
        self._response = response
        self._splitter = sse.Splitter()
        self._swallow_usage = not request.include_usage
        self._begun = False
        self._done = False
        self._pending = b""

    async def begun(self, patience: float) -> "EventStream":
        """Wait `patience` seconds for the first event; what fails here may be tried elsewhere."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        try:
            while not self._begun:
                if (piece := self._response.take()) is None:
                    await self._response.more(end - loop.time())
                else:
                    self._pending = self._read(piece)
                    self._begun = bool(self._pending) or self._done
        except BaseException:
            self._response.close()
            raise
        return self

    async def __anext__(self) -> bytes:
        try:
            while not self._pending and not self._done:
                if (piece := self._response.take()) is None:
                    await self._response.more()
                else:
                    self._pending = self._read(piece)
            if self._pending:
                out, self._pending = self._pending, b""
                self.usage.bytes += len(out)
                return out
            self.end(None)
            await self._finish()
        except BaseException as error:
            self._response.close()
            self.end(error)
            raise
        raise StopAsyncIteration

    async def _finish(self) -> None:
        """The client has it all. What ends the response follows, and then the connection can be used again."""
        with suppress(InferenceError):
            await self._response.piece(TAIL_SECONDS)
        self._response.close()

    async def aclose(self) -> None:
        self._response.close()
        await super().aclose()

    def _read(self, piece: bytes) -> bytes:
        """What a piece of the response holds for the client; may be nothing."""
        if not piece:
            raise TransportError("The upstream's stream ended before the end of its answer.")
        try:
            events = self._splitter.feed(piece)
        except sse.EventTooLarge as error:
            raise BackendError(f"The upstream's stream cannot be read: {error}.") from None
        return b"".join([event + b"\n\n" for event in events if self._passes_on(event)])

    def _passes_on(self, event: bytes) -> bool:
        """Count what an event carries; False for one that the client did not ask for."""
        if self._done:
            return False
        data = sse.data_of(event)
        if data == wire.DONE:
            self._done = True
            return True
        if not data:
            # A comment keeps the client's connection alive, but no answer begins with one.
            return self._begun and event.startswith(b":")
        # Events are decoded only where it matters: the first, since after it nothing can be tried elsewhere,
        # and those that may hold usage or an error.
        telling = b'"error"' in data or (b'"usage"' in data and b'"usage":null' not in data)
        if self._begun and not telling:
            self.usage.completion_tokens += 1  # servers send a token an event; the exact count comes last
            return True
        usage, only_usage = wire.read_event(data)
        if usage is None:
            self.usage.completion_tokens += 1
            return True
        usage.bytes = self.usage.bytes
        self.usage = usage
        return not (only_usage and self._swallow_usage)


async def _raise(response: ClientResponse) -> NoReturn:
    """The typed error behind a status that is not 200."""
    status = response.status
    try:
        error = wire.decode_error(await response.read(MAX_ERROR_BODY))
    except BackendError:
        error = wire.ErrorBody()  # it cannot be read; the status says enough
    finally:
        response.close()
    if status in CALLER_STATUS:
        message = (error.message or "The upstream refused the request.")[: wire.MAX_MESSAGE]
        if wire.is_too_long(error):
            raise ContextTooLong(message, param=error.param)
        kind = TooLarge if status == 413 else CallerError
        raise kind(message, param=error.param, code=error.code if isinstance(error.code, str) else None)
    if status in (429, 503, 529):
        raise CapacityError("The upstream is overloaded.", retry_after=_retry_after(response))
    if status in (401, 403):
        raise BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")
    if status == 404:
        raise BackendError("The upstream does not know the model.", code="upstream_model_not_found")
    if status in (408, 504):
        raise UpstreamTimeout("The upstream timed out.")
    raise BackendError("The upstream failed.")


def _retry_after(response: ClientResponse) -> float | None:
    """`retry-after-ms`, else `retry-after` in seconds or as a date; None for anything else."""
    try:
        if milliseconds := response.headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif value := response.headers.get("retry-after"):
            is_number = value.strip().isdigit()
            seconds = float(value) if is_number else email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
