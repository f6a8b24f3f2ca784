"""Adapter of servers of OpenAI's API: vLLM, SGLang, llama.cpp, hosted APIs, the bundled LLM runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NoReturn
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from adapters import offload
from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CapacityError,
    InferenceError,
    Unsupported,
)
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import Headers, encode_fields
from adapters.ignored_fields import IGNORED, STRICT
from adapters.offload import messages
from adapters.registry import Address
from adapters.requests import (
    AppRequest,
    EmbeddingRequest,
    GenerateRequest,
    ModelOrder,
    ModelRequest,
    ResponsesRequest,
)
from adapters.stream import OnePiece
from adapters.types import OPENAI, Deadline, Usage
from adapters.upstreams.apps.calls import AppCalls
from adapters.upstreams.dial import http1_client, names, probe_path
from adapters.upstreams.failed_status import MAX_ERROR_BODY, error_body, is_answer, retry_after
from adapters.upstreams.openai.chunk_stream import ChunkStream, ResponsesStream, UnrepeatedStream
from adapters.upstreams.openai.orders import call_of
from adapters.upstreams.openai.paths import Paths
from adapters.upstreams.openai.token_count import TokenCounter
from adapters.upstreams.scrubbing import scrubber
from adapters.upstreams.text.one_kind import OneKind
from adapters.upstreams.text.prompts import prompts
from adapters.wire import decoding, error_table, internal_headers
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.failure_text import Scrubber
from adapters.wire.native_chat import NativeChat
from adapters.wire.openai import chat as wire
from adapters.wire.openai import embeddings
from adapters.wire.openai.chat import events_of
from adapters.wire.openai.dialects import (
    AUTO,
    MODELS,
    OURS,
    PLAIN,
    REACHABLE,
    TO_MAX_TOKENS,
    OpenAIDialect,
    of_host,
    of_owners,
)
from adapters.wire.openai.model_field import PASSTHROUGH, ListedModel, decode_models, usage_of, with_model
from adapters.wire.openai.providers import DIALECTS, HOSTED
from adapters.wire.openai.thinking import thinking_of_message
from adapters.wire.responses import native as responses_native
from adapters.wire.responses.native import events_of_response
from adapters.wire.responses.own_thoughts import without_own_thoughts
from config.schema.config import PoolConfig
from config.schema.protocols.language import OpenAIProtocol


def refusal(status: int, headers: Headers, error: wire.ErrorBody) -> InferenceError:
    """Return the typed error of a status other than 2xx, with the server's message."""
    return error_table.judged(status, error, retry_after(headers))


MAX_LIST = 1024 * 1024
RENAMED_SINCE = "2024-09"
"""Azure's versions before have `max_tokens` for every model, and no `stream_options`."""

OURS_PASS = frozenset({"tokenize", "rerank", "score", "classify"})
"""The calls of the bundled runtime. It refuses them itself for a model without a classifier's head."""

encode = msgspec.json.Encoder().encode
_STRICT = ((STRICT, "true"),)
_JSON = frozenset({"application/json", "text/json"})
_VAGUE = frozenset({"", "text/plain", "application/octet-stream"})
"""Content types that do not identify a format: the body is decoded in the requested format."""


def make(pool: PoolConfig, address: Address) -> Adapter:
    """Return the adapter of one endpoint of a pool. Raises `Unmakeable`."""
    section = pool.protocol
    assert isinstance(section, OpenAIProtocol)
    client, scrubbed = http1_client(pool, address), scrubber(pool, address.url)
    host = urlsplit(address.url).hostname or ""
    adapter = OpenAIAdapter(client, host=host, options=section, scrubber=scrubbed, **names(pool), **probe_path(pool))
    if section.only is None:
        return adapter
    return OneKind(adapter, section.only, prompts(section), section.max_tokens)


class OpenAIAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name. The names
    of its low-rank `adapters` are sent as they are.

    Without `options` the endpoint has the plain dialect. The dialect `auto` is that of the `host`, if it is a hosted
    API's. `ours`: the endpoint is the bundled runtime, which receives
    the tenant and the priority of each request. Its queue is fair between tenants, and the time to the first token
    does not disclose the prompts of another tenant.
    """

    def __init__(
        self,
        client: Client,
        *,
        host: str = "",
        model: str | None = None,
        adapters: Collection[str] = (),
        probe: str | None = None,
        options: OpenAIProtocol | None = None,
        ours: bool = False,
        share_prefixes: bool = False,
        scrubber: Scrubber | None = None,
    ) -> None:
        self._client = client
        self._ours = ours
        self._scrubber = scrubber or Scrubber()
        self._share_prefixes = share_prefixes or (options is not None and options.share_prefixes)
        self._model = model
        self._adapters = frozenset(adapters)
        self._options = options or OpenAIProtocol()
        self._passes = OURS_PASS if ours else frozenset(self._options.passes)
        self._dialect = OURS if ours else PLAIN
        self._unknown = False
        if options is not None:
            name = (of_host(host, HOSTED) or "auto") if options.dialect == "auto" else options.dialect
            self._unknown = name == "auto"
            self._dialect = self._with_options(DIALECTS.get(name, AUTO))
        self._paths = Paths(client.base_path, self._dialect.root, self._options.api_version, self._options.root)
        self._health = tuple(map(self._health_target, (probe,) if probe else self._dialect.health))
        self._may_sleep = True
        self._calls = AppCalls(client, judge=self._judged, answer_headers=(IGNORED,) if ours else ())
        fields = [("user-agent", "headrace"), ("accept", "application/json, text/event-stream")]
        self._fields = encode_fields(fields)
        self._post_fields = self._fields + encode_fields([("content-type", "application/json")])
        self._counter = TokenCounter(client, self._paths.at_the_server("/tokenize"), self._post_fields, model)

    def _with_options(self, dialect: OpenAIDialect) -> OpenAIDialect:
        """Return the dialect of the configured version, with the configured name of the length's field."""
        version = self._options.api_version
        if version is not None and version < RENAMED_SINCE:
            dialect = dialect._replace(renames=TO_MAX_TOKENS, takes_stream_options=False)
        name = self._options.length
        if name is None:
            return dialect
        other = "max_tokens" if name == "max_completion_tokens" else "max_completion_tokens"
        renames = {was: renamed for was, renamed in dialect.renames.items() if was not in (name, other)}
        return dialect._replace(renames={**renames, other: name})

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if not isinstance(request, GenerateRequest):
            return await self._other(request, call)
        fields = self._post_fields + encode_fields(call.fields)
        if self._ours:
            fields += encode_fields(self._own_headers(call))
        salted = self._dialect.salts and not self._share_prefixes
        added = {}
        if isinstance(request, NativeChat):
            await messages.translate(request, call.ignored)
            wish = request.payload.thinking
            added = thinking_of_message(wish, request.fields, self._dialect.thinking)
            if wish and not self._dialect.thinking:
                call.ignored.sift(wish, ())
        salt = call.salt if salted else ""
        model = self._name_for(request)
        if isinstance(request, ResponsesRequest):
            request = request.with_fields(without_own_thoughts(request.fields))
        body = wire.upstream_body(request, model, self._dialect, salt, added, call.ignored)
        target = self._paths.call(request.path, model or request.model)
        response = await self._client.request(b"POST", target, fields, body, call.deadline)
        if not is_answer(response.status):
            await self._refuse(request, response)
        if self._ours and (ignored := response.headers.get(IGNORED)):
            call.ignored.add(ignored.split(", "))
        kind = (response.headers.get("content-type") or "").partition(";")[0].strip().lower()
        if request.stream and (kind == "text/event-stream" or kind in _VAGUE):
            if isinstance(request, ResponsesRequest):
                return await ResponsesStream(response, request, self._scrubber).begun(call.deadline.first_byte)
            kind_of_stream = UnrepeatedStream if self._dialect.repeats else ChunkStream
            return await kind_of_stream(response, request).begun(call.deadline.first_byte)
        answer = _whole(request, kind, body := await response.read())
        if isinstance(request, EmbeddingRequest) and embeddings.has_other_form(request.fields, body):
            answer.body = await offload.run(len(body), embeddings.in_other_form, body)
        return answer

    def _own_headers(self, call: Call) -> Sequence[tuple[str, str]]:
        """What the bundled runtime reads of a request: its place in the queue, and whether its route is strict."""
        left = max(call.deadline.at - asyncio.get_running_loop().time(), 0.001)
        priority, salt = call.priority or "normal", "" if self._share_prefixes else call.salt
        standing = internal_headers.encode(call.tenant, call.share, priority, left, salt)
        return [*standing, *_STRICT] if call.ignored.strict else standing

    def _name_for(self, request: GenerateRequest) -> str | None:
        """The endpoint's own name of the model; None for the name in the request."""
        if self._adapters and (named := msgspec.json.decode(request.fields["model"], type=str)) in self._adapters:
            return named
        return self._model

    async def _refuse(self, request: GenerateRequest, response: ClientResponse) -> NoReturn:
        """Raise the typed error of a status other than 200."""
        error = wire.decode_error(await error_body(response))
        failure = self._failure(request, response.status, response.headers, error)
        if self._ours and isinstance(failure, CapacityError):
            failure.scope = "tenant" if response.headers.get(internal_headers.REFUSED) == "tenant" else "server"
        raise failure

    def _failure(self, request: ModelRequest, status: int, headers: Headers, error: wire.ErrorBody) -> InferenceError:
        if self._dialect.errors:
            status, error = error_table.standard(status, error, self._dialect.errors)
        failure = refusal(status, headers, error)
        return error_table.by_client(failure, status, request.model) if self._model is None else failure

    def _judged(self, request: ModelRequest, status: int, headers: Headers, body: bytes) -> InferenceError:
        """Return the typed error of a forwarded call: the client receives no error body of the server."""
        return self._failure(request, status, headers, wire.decode_error(body[:MAX_ERROR_BODY]))

    async def _other(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, AppRequest):
            return await self._pass(request, call)
        if isinstance(request, TokenCount):
            return await self._counter.count(request, call, thinks=bool(self._dialect.thinking))
        if isinstance(request, ModelOrder):
            return await self._order(request, call)
        raise Unsupported(f"The model `{request.model}` takes no tensors: its servers speak OpenAI's protocol.")

    async def _pass(self, request: AppRequest, call: Call) -> Answer:
        """Forward a call other than generation. The authorised name of the model replaces the name in the body."""
        operation = PASSTHROUGH.get(request.path)
        if operation is None or operation.kind not in self._passes or request.method != "POST":
            raise Unsupported(
                f"The model `{request.model}` does not support this path, or its pool does not list it in `passes`."
            )
        model = self._model or request.model
        body = await offload.scan(len(request.body), with_model, request.content_type, request.body, model)
        forwarded = replace(request, body=body, stale=False)
        path = self._dialect.beside.get(operation.path)
        if path is None and operation.below == "api":
            target = self._paths.call(operation.path, model)
        else:
            target = self._paths.at_the_server(path or operation.path)
        answer = await self._calls.call(forwarded, target, call, self._own_headers(call) if self._ours else ())
        for name, value in answer.headers if self._ours else ():
            if name == IGNORED:
                call.ignored.add(value.split(", "))
        answer.headers = tuple(header for header in answer.headers if header[0] != IGNORED)
        if answer.body is not None and (usage := usage_of(answer.body)) is not None:
            usage.bytes, usage.rows = answer.usage.bytes, answer.usage.rows
            answer.usage = usage
        return answer

    async def _order(self, order: ModelOrder, call: Call) -> Answer:
        listed = await self._listed(call) if order.order == "unload" and self._dialect.orders else []
        order_call = call_of(self._dialect.orders, order.order, self._model or order.model, order.body, listed)
        target = f"{self._paths.api}{order_call.path}".encode()
        if order_call.below == "server":
            target = self._paths.at_the_server(order_call.path)
        fields = self._post_fields + encode_fields(call.fields)
        response = await self._client.request(b"POST", target, fields, encode(order_call.body), call.deadline)
        if response.status == 404:
            response.close()
            raise Unsupported(f"The server of `{order.model}` does not support this order, or was started without it.")
        if response.status != 200:
            error = wire.decode_error(await error_body(response))
            raise refusal(response.status, response.headers, error)
        body = await response.read(MAX_LIST)
        return Answer(content_type="application/json", body=body)

    # ── health and dialect ────────────────────────────────────────────────────────────────────────────

    async def probe(self, timeout: float) -> None:
        call = Call(Deadline(self._client.now() + timeout, timeout, timeout))
        status = 404
        while self._health:
            status, _ = await self._get(self._health[0], call)
            if status not in (404, 405) or len(self._health) == 1:
                break
            self._health = self._health[1:]
        if status != 200 and not (self._dialect.health == (REACHABLE,) and status < 500 and status != 401):
            path = self._health[0].decode().partition("?")[0]
            raise BackendError(f"The health check of {path} answered {status}.")
        if self._unknown:
            await self._learn(call)
        if self._dialect.sleeps and self._may_sleep:
            status, reported = await self._get(self._paths.at_the_server("/is_sleeping"), call)
            self._may_sleep = status == 200
            if b"true" in reported and status == 200:
                raise BackendError("The model sleeps.")

    async def _learn(self, call: Call) -> None:
        """Detect the dialect once, from the owners of the listed models."""
        with suppress(BackendError, CapacityError):
            owners = {model.owned_by or "" for model in await self._listed(call)}
            self._dialect = self._with_options(of_owners(owners, DIALECTS) or PLAIN)
        self._unknown = False

    async def _listed(self, call: Call) -> list[ListedModel]:
        status, body = await self._get(self._paths.models(), call)
        if status != 200:
            raise BackendError(f"The list of models was answered with {status}.")
        return decode_models(body)

    def _health_target(self, path: str) -> bytes:
        return self._paths.models() if path in (MODELS, REACHABLE) else self._paths.at_the_server(path)

    async def _get(self, target: bytes, call: Call) -> tuple[int, bytes]:
        response = await self._client.request(b"GET", target, self._fields, b"", call.deadline)
        try:
            return response.status, await response.read(MAX_LIST if target == self._paths.models() else MAX_ERROR_BODY)
        finally:
            response.close()

    async def aclose(self) -> None:
        await self._client.aclose()


def _whole(request: GenerateRequest, kind: str, body: bytes) -> Answer:
    """Return a response that is not streamed, as events if the client asked for a stream."""
    if kind not in _JSON and kind not in _VAGUE and not kind.endswith("+json"):
        raise decoding.bad_response("The upstream's response has the wrong content type.")
    if isinstance(request, ResponsesRequest):
        reported = responses_native.usage_of_body(body)
    else:
        reported = wire.usage_of_body(body, request.answered)
    usage = reported or Usage()
    usage.bytes = len(body)
    if reported is None:
        usage.estimate(request.prompt_tokens)
        usage.completion_tokens *= not isinstance(request, EmbeddingRequest)
    if request.stream:
        is_response = isinstance(request, ResponsesRequest)
        events = events_of_response(body) if is_response else events_of(body, include_usage=request.include_usage)
        return OnePiece(events, content_type="text/event-stream", usage=usage, form=OPENAI)
    return Answer(content_type="application/json", body=body, usage=usage)
