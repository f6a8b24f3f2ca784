"""Adapter of BentoML: a model is a method of a service, and its tensors are the method's arguments."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from typing import NoReturn
from urllib.parse import quote

import msgspec

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, InferenceError, TooLarge, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.registry import Address
from adapters.requests import AppRequest, InferRequest, ModelQuery, ModelRequest
from adapters.tensors import Inference, Inferred, Tensor, join_bytes, requested_outputs
from adapters.types import OIP_JSON, Deadline, Usage
from adapters.upstreams import failed_status
from adapters.upstreams.apps.calls import AppCalls
from adapters.upstreams.apps.http_app import target_of
from adapters.upstreams.declared_tensors import described, not_reported
from adapters.upstreams.dial import http1_client, names, probe_path
from adapters.upstreams.event_stream import EventStream
from adapters.upstreams.failed_status import CALLER_STATUS, MAX_ERROR_BODY, error_body, upstream_error
from adapters.upstreams.health import ill
from adapters.upstreams.inference import FRESH, Reader
from adapters.upstreams.inferred import MAX_ANSWER, answer_of, event_form, written
from adapters.upstreams.readiness import Readiness
from adapters.wire import decoding, failure_text, sse
from adapters.wire.apps import bentoml_calls
from adapters.wire.apps import bentoml_schema as bentoml
from adapters.wire.apps.bentoml_schema import Api
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import IndexEntry
from config.schema.config import PoolConfig
from config.schema.protocols.apps import BentoMLProtocol

READY = "/readyz"
MAX_SCHEMA = 4 * 1024 * 1024
FIRST_LOOK, LONGEST_LOOK = 0.02, 1.0
"""Seconds between two requests for a task's status; the interval doubles up to `LONGEST_LOOK`."""
CANCEL_SECONDS = 1.0


class _Task(msgspec.Struct):
    task_id: str
    status: str


_task = msgspec.json.Decoder(_Task).decode


def make(pool: PoolConfig, address: Address) -> BentoMLAdapter:
    """Return the adapter of one endpoint of a pool."""
    protocol, keyed = pool.protocol, pool.has_credential
    assert isinstance(protocol, BentoMLProtocol)
    return BentoMLAdapter(http1_client(pool, address), protocol, keyed=keyed, **names(pool), **probe_path(pool))


class BentoMLAdapter:
    """Adapter of one endpoint.

    `model` is the name of the method, if clients use another name. `keyed`: requests carry the pool's key.
    """

    def __init__(
        self,
        client: Client,
        protocol: BentoMLProtocol,
        *,
        model: str | None = None,
        keyed: bool = False,
        probe: str = READY,
    ) -> None:
        self._client = client
        self._declared = described(protocol.inputs), described(protocol.outputs)
        self._calls = AppCalls(client, keyed=keyed)
        self._model = model
        self._base = client.base_path
        self._probe_target = (self._base + probe).encode()
        self._ready_target = (self._base + READY).encode()
        self._reader = Reader(self._metadata, client.now)
        self._readiness = Readiness(self._entries, client.now)
        self._apis: dict[str, Api] = {}
        self._fresh_until = 0.0
        self._fields = encode_fields([("user-agent", "headrace"), ("accept", "*/*")])

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._readiness.explained(self._answer(request, call), request, call)

    async def _answer(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, InferRequest):
            return await self._infer(request, call)
        if isinstance(request, ModelQuery):
            return await self._query(request, call)
        if isinstance(request, AppRequest):
            return await self._app(request, call)
        raise failed_status.takes_tensors(request)

    async def _app(self, request: AppRequest, call: Call) -> Answer:
        """Forward a request to any route of the service, those of tasks included."""
        if bentoml_calls.PICKLE in request.content_type.lower():
            raise Unsupported("Pickled bodies are refused: unpickling executes code.")
        return await self._calls.call(request, target_of(self._base, request), call)

    async def probe(self, timeout: float) -> None:
        call = Call(Deadline(self._client.now() + timeout, timeout, timeout))
        if self._probe_target != self._ready_target:
            await self._get(self._probe_target, b"", call)
        elif reason := await self._not_ready(call):
            raise failed_status.unavailable(ModelQuery(model=self._model or "service"), reason)

    async def aclose(self) -> None:
        await self._client.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, request: InferRequest, call: Call) -> Answer:
        api = await self._api(request, call)
        inference = await self._reader.inference(request, api.name, call)
        response = await self._called(api, inference, request, call)
        if request.stream and api.is_stream:
            return await TextStream(response, request, next(iter(api.outputs))).begun(call.deadline.first_byte)
        content_type = (response.headers.get("content-type") or "").lower()
        body = await response.read(MAX_ANSWER)
        usage = Usage(rows=request.row_count, bytes=len(body), exact=True)
        decoded = await offload.run(len(body), bentoml_calls.decode_answer, api, body, content_type)
        outputs = requested_outputs(inference, decoded)
        return await answer_of(request, Inferred(request.model, "", inference.id, outputs=outputs), usage)

    async def _called(self, api: Api, inference: Inference, request: InferRequest, call: Call) -> ClientResponse:
        """Call a method with tensors, and return the response with status 200."""
        size = sum([len(tensor.data) for tensor in inference.inputs])
        body, content_type = await offload.run(size, bentoml_calls.encode_call, api, inference)
        fields = encode_fields([("content-type", content_type), *call.fields])
        if api.is_task:
            return await self._awaited(api, fields, body, call)
        return await self._post(api.route, fields, body, call)

    async def _post(self, path: str, fields: bytes, body: bytes, call: Call) -> ClientResponse:
        target = (self._base + quote(path, safe="/:@")).encode()
        response = await self._client.request(b"POST", target, self._fields + fields, body, call.deadline)
        if response.status != 200:
            await _refuse(response)
        return response

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────

    async def _awaited(self, api: Api, fields: bytes, body: bytes, call: Call) -> ClientResponse:
        """Submit a task and poll its status. A task may exceed the time limit that the service has for a call."""
        submitted = await self._post(f"{api.route}/submit", fields, body, call)
        task, pause = _read_task(await submitted.read(MAX_ERROR_BODY)), FIRST_LOOK
        of_task, query = quote(api.route, safe="/:@"), f"?task_id={quote(task.task_id, safe='')}"
        try:
            while task.status in ("pending", "in_progress"):
                await asyncio.sleep(min(pause, max(0.0, call.deadline.at - self._client.now())))
                pause = min(pause * 2, LONGEST_LOOK)
                target = f"{self._base}{of_task}/status{query}".encode()
                task = _read_task(await self._get(target, fields, call))
        except BaseException:
            await self._cancel(f"{self._base}{of_task}/cancel{query}")
            raise
        target = f"{self._base}{of_task}/get{query}".encode()
        response = await self._client.request(b"GET", target, self._fields, b"", call.deadline)
        if response.status != 200:
            await _refuse(response)
        return response

    async def _cancel(self, target: str) -> None:
        """Cancel a task. A failure is ignored: not every server supports it."""
        patience = Deadline(self._client.now() + CANCEL_SECONDS, CANCEL_SECONDS, CANCEL_SECONDS)
        with contextlib.suppress(InferenceError, asyncio.CancelledError):
            (await self._client.request(b"PUT", target.encode(), self._fields, b"", patience)).close()

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, query: ModelQuery, call: Call) -> Answer:
        if query.about not in ("metadata", "ready"):
            raise not_reported(query)
        if query.about == "ready":
            if not_ready := await self._entries(query, call):
                raise failed_status.not_ready(query, not_ready)
            encoded = oip_bodies.encode({"name": query.model, "ready": True})
        else:
            metadata = (await self._api(query, call)).metadata()
            metadata.name = query.model
            encoded = oip_bodies.encode(metadata)
        return Answer(content_type="application/json", body=encoded, usage=Usage(bytes=len(encoded)), form=OIP_JSON)

    async def _entries(self, request: ModelRequest, call: Call) -> list[IndexEntry]:
        """Return an entry with the reason why the service is not ready; no entry if it is ready.

        Raises `InferenceError` if the service has no method of the model's name.
        """
        if reason := await self._not_ready(call):
            return [IndexEntry(request.model, request.version, "UNAVAILABLE", reason)]
        await self._api(request, call)
        return []

    async def _not_ready(self, call: Call) -> str:
        """Return the reason why the service is not ready; empty if it is ready. Raises `InferenceError`."""
        response = await self._client.request(b"GET", self._ready_target, self._fields, b"", call.deadline)
        body = await response.read(MAX_SCHEMA)
        if response.status == 200:
            return ""
        if response.status != 503:
            raise ill(response.status)
        text = bentoml_calls.error_of(body) or body[:MAX_ERROR_BODY].decode("utf-8", "replace")
        return text or f"the health check of its service has status {response.status}"

    async def _metadata(self, model: str, version: str, call: Call) -> oip_bodies.ModelMetadata:
        return self._apis[model].metadata()

    async def _api(self, request: ModelRequest, call: Call) -> Api:
        """Return the method of a model's name."""
        if request.version:
            raise failed_status.no_such_version(request)
        if self._client.now() >= self._fresh_until:
            body = await self._get(f"{self._base}/schema.json".encode(), b"", call)
            apis = bentoml.decode_schema(body)
            self._apis = {name: api.completed(*self._declared) for name, api in apis.items()}
            self._fresh_until = self._client.now() + FRESH
            self._reader.forget()
        api = self._apis.get((self._model or request.model).lstrip("/"))
        if api is None:
            raise BackendError("The upstream does not know the model.", code="upstream_model_not_found")
        return api

    async def _get(self, target: bytes, fields: bytes, call: Call) -> bytes:
        response = await self._client.request(b"GET", target, self._fields + fields, b"", call.deadline)
        try:
            body = await response.read(MAX_SCHEMA)
        finally:
            response.close()
        if response.status != 200:
            raise upstream_error(response.status, response.headers)
        return body


def _read_task(body: bytes) -> _Task:
    return decoding.decode(_task, body)


async def _refuse(response: ClientResponse) -> NoReturn:
    """Raise the typed error of a status other than 200."""
    status = response.status
    message = bentoml_calls.error_of(await error_body(response))
    if status in CALLER_STATUS or (status == 404 and message is not None):
        # The 404 of a method has a message in JSON; that of a missing route has no JSON.
        raise (TooLarge if status == 413 else CallerError)(message or "The upstream refused the request.")
    raise failure_text.model_failure(message) if status == 500 else upstream_error(status, response.headers, message)


# Streams of text from servers without streams of tensors: each piece becomes a response with one output.

_MARKS = (b"data:", b"event:", b"id:", b"retry:", b":")
_DONE = b"[DONE]"


class TextStream(EventStream):
    """A stream of text. Its first bytes show whether it has server-sent events: the content type is unreliable."""

    __slots__ = ("_as_events", "_decoder", "_output", "_request")

    parts_count = True

    def __init__(self, response: ClientResponse, request: InferRequest, output: str) -> None:
        super().__init__(response, Usage(rows=request.row_count, exact=True), event_form(request))
        self._request = request
        self._output = output
        self._as_events: bool | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a piece may end inside a character

    def _passes_on(self, event: bytes) -> bool:
        raise NotImplementedError  # `_read` does not call this method

    def _read(self, piece: bytes) -> bytes:
        if self._as_events is None and piece:
            self._as_events = piece.startswith(_MARKS)
        texts = self._events(piece) if self._as_events else [self._decoder.decode(piece, final=not piece)]
        self._done = self._done or not piece
        return b"".join([self._event(text) for text in texts if text])

    def _events(self, piece: bytes) -> list[str]:
        data = [sse.data_of(event) for event in self._split(piece or b"\n\n")]
        if _DONE in data:
            self._done = True
            data = data[: data.index(_DONE)]
        return [one.decode("utf-8", "replace") for one in data]

    def _event(self, text: str) -> bytes:
        tensor = Tensor(self._output, "BYTES", (1,), join_bytes([text.encode()]))
        return sse.encode(written(self._request, Inferred(self._request.model, outputs=[tensor])))
