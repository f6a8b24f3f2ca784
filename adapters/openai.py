"""Any server that speaks OpenAI: vLLM, SGLang, llama.cpp, hosted APIs, and our own LLM runtime."""

from __future__ import annotations

from typing import NoReturn

from adapters.base import Adapter, Answer
from adapters.dial import http1_client, names, probe_path
from adapters.errors import (
    BackendError,
    CallerError,
    ContextTooLong,
    TooLarge,
    Unsupported,
)
from adapters.event_stream import EventStream
from adapters.failed_status import CALLER_STATUS, upstream_error
from adapters.http1.client import Client, ClientResponse, encode_fields
from adapters.messages import TokenCount
from adapters.one_kind import OneKind
from adapters.prompts import prompts
from adapters.registry import Address
from adapters.responses_stream import ResponsesStream
from adapters.token_count import TokenCounter
from adapters.types import (
    ChatRequest,
    CompletionRequest,
    Deadline,
    EmbeddingRequest,
    GenerateRequest,
    ModelRequest,
    ResponsesRequest,
    Usage,
)
from adapters.wire import openai as wire
from adapters.wire import responses_native, sse
from config.protocols.openai import OpenAIProtocol
from config.schema import PoolConfig

MAX_ERROR_BODY = 64 * 1024
TENANT = "x-headrace-tenant"


def make(pool: PoolConfig, address: Address) -> Adapter:
    """For an endpoint of a pool. Raises `Unmakeable`."""
    adapter = OpenAIAdapter(http1_client(pool, address), **names(pool), **probe_path(pool))
    section = pool.protocol
    if not isinstance(section, OpenAIProtocol) or section.only is None:
        return adapter
    return OneKind(adapter, section.only, prompts(section), section.max_tokens)


class OpenAIAdapter:
    """One endpoint. `model` is its name for what clients call otherwise.

    `ours`: it is our own runtime, which is told whose request it is, so that no tenant can find out by the time to an
    answer's first token what another has asked.
    """

    def __init__(self, client: Client, *, model: str | None = None, probe: str = "/health", ours: bool = False):
        self._client = client
        self._ours = ours
        self._model = model
        base = client.base_path
        prefix = base if base.endswith("/v1") else base + "/v1"
        self._targets = {
            kind.path: (prefix + kind.path).encode()
            for kind in (ChatRequest, CompletionRequest, EmbeddingRequest, ResponsesRequest)
        }
        self._probe_target = (base.removesuffix("/v1") + probe).encode()
        fields = [("user-agent", "headrace"), ("accept", "application/json, text/event-stream")]
        self._fields = encode_fields(fields)
        self._post_fields = self._fields + encode_fields([("content-type", "application/json")])
        self._counter = TokenCounter(client, self._post_fields, model)

    async def call(self, request: ModelRequest, deadline: Deadline) -> Answer:
        if isinstance(request, TokenCount):
            return await self._counter.count(request, deadline)
        if not isinstance(request, GenerateRequest):
            raise Unsupported(f"The model `{request.model}` takes no tensors: its servers speak OpenAI's protocol.")
        fields = self._post_fields + encode_fields((("x-request-id", request.request_id),))
        if self._ours:
            fields += encode_fields(((TENANT, request.tenant),))
        body = wire.upstream_body(request, self._model)
        response = await self._client.request(b"POST", self._targets[request.path], fields, body, deadline)
        if response.status != 200:
            await _raise(response)
        content_type = (response.headers.get("content-type") or "").lower()
        if request.stream and content_type.startswith("text/event-stream"):
            if isinstance(request, ResponsesRequest):
                return await ResponsesStream(response, request).begun(deadline.first_byte)
            return await ChunkStream(response, request).begun(deadline.first_byte)
        body = await response.read()
        if request.stream or not content_type.startswith("application/json"):
            raise BackendError("The upstream answered with the wrong content type.", code="upstream_bad_response")
        if isinstance(request, ResponsesRequest):
            usage = responses_native.usage_of_body(body) or Usage()
        else:
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


class ChunkStream(EventStream):
    """A streamed answer. Events go on as they came, save the usage chunk that only we asked for."""

    __slots__ = ("_swallow_usage",)

    def __init__(self, response: ClientResponse, request: GenerateRequest) -> None:
        super().__init__(response, Usage(prompt_tokens=request.prompt_tokens))
        self._swallow_usage = not request.include_usage

    def _passes_on(self, event: bytes) -> bool:
        """Count what an event carries; False for one that the client did not ask for."""
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
    if status not in CALLER_STATUS:
        raise upstream_error(status, response.headers)
    message = (error.message or "The upstream refused the request.")[: wire.MAX_MESSAGE]
    if wire.is_too_long(error):
        raise ContextTooLong(message, param=error.param)
    kind = TooLarge if status == 413 else CallerError
    raise kind(message, param=error.param, code=error.code if isinstance(error.code, str) else None)
