"""Adapter of KServe's v1: forwards bodies of v1 unchanged, and encodes other requests by the declared tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, InferenceError, Unavailable, Unsupported
from adapters.http1.client import Client, ClientResponse
from adapters.http1.message import encode_fields
from adapters.paths import segment
from adapters.registry import Address
from adapters.requests import AppRequest, InferRequest, ModelQuery, ModelRequest
from adapters.types import PREDICT_V1, Usage
from adapters.upstreams import failed_status, health
from adapters.upstreams.apps.calls import AppCalls
from adapters.upstreams.apps.http_app import target_of
from adapters.upstreams.declared_tensors import DeclaredModel, not_reported, ready_answer
from adapters.upstreams.dial import http1_client, names, probe_path
from adapters.upstreams.failed_status import MAX_ERROR_BODY
from adapters.upstreams.inferred import JSON, MAX_ANSWER
from adapters.upstreams.oip.responses import refuse
from adapters.wire.oip import responses as oip_responses
from adapters.wire.tfserving import predict_v1_upstream
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from config.schema.config import PoolConfig
from config.schema.protocols.apps import KserveV1Protocol

_FIELDS = encode_fields([("user-agent", "headrace")])
_JSON_FIELDS = _FIELDS + encode_fields([("content-type", JSON)])


def make(pool: PoolConfig, address: Address) -> KserveV1Adapter:
    """Return the adapter of one endpoint of a pool; all endpoints share the explainer."""
    protocol = pool.protocol
    assert isinstance(protocol, KserveV1Protocol)
    explainer = None
    if protocol.explainer is not None:
        explainer = http1_client(pool, Address(protocol.explainer, None, address.tls))
    client, keyed = http1_client(pool, address), pool.has_credential
    return KserveV1Adapter(client, protocol, explainer=explainer, keyed=keyed, **names(pool), **probe_path(pool))


@lru_cache(4096)
def _target(base: str, model: str, verb: str) -> bytes:
    return f"{base}/v1/models/{segment(model)}{verb}".encode()


class KserveV1Adapter:
    """Adapter of one endpoint.

    `model` is the endpoint's own name of the model, if clients use another name. `keyed`: requests carry the pool's
    key.
    """

    def __init__(
        self,
        client: Client,
        protocol: KserveV1Protocol,
        *,
        explainer: Client | None = None,
        model: str | None = None,
        keyed: bool = False,
        probe: str | None = None,
    ) -> None:
        self._client = client
        self._explainer = explainer
        self._model = model
        self._calls = AppCalls(client, keyed=keyed)
        self._declared = DeclaredModel(protocol, client.now)
        own = f"/v1/models/{segment(model)}" if model else "/v1/models"
        self._probe_target = (_base_of(client) + (probe or own)).encode()

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        failed_status.check_version(request, versions=False)
        if isinstance(request, InferRequest):
            if isinstance(payload := request.payload, PredictV1Payload):
                return await self._pass_on(request, payload, call)
            return await self._infer(request, call)
        if isinstance(request, ModelQuery):
            return await self._query(request, call)
        if isinstance(request, AppRequest):
            return await self._calls.call(request, target_of(self._client.base_path, request), call)
        raise failed_status.takes_tensors(request)

    async def probe(self, timeout: float) -> None:
        status, _, body = await health.look(self._client, self._probe_target, _FIELDS, timeout)
        if status != 200:
            if self._model and (reason := oip_responses.error_of(body)):
                raise failed_status.unavailable(ModelQuery(model=self._model), reason)
            raise health.ill(status)

    async def aclose(self) -> None:
        await self._client.aclose()
        if self._explainer is not None:
            await self._explainer.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _pass_on(self, request: InferRequest, payload: PredictV1Payload, call: Call) -> Answer:
        verb = payload.verb
        if verb not in ("predict", "explain"):
            raise Unsupported(f"The servers of `{request.model[:128]}` support neither `:classify` nor `:regress`.")
        if verb == "explain" and self._explainer is not None:
            with _blamelessly():
                content = await self._post(self._explainer, request, "explain", payload.body, call)
        else:
            content = await self._post(self._client, request, verb, payload.body, call)
        body = await offload.scan(len(content), predict_v1_upstream.check_response, content)
        usage = Usage(rows=request.row_count, bytes=len(content), exact=True)
        return Answer(content_type=JSON, body=body, usage=usage, form=PREDICT_V1)

    async def _infer(self, request: InferRequest, call: Call) -> Answer:
        inference, body = await self._declared.encode(request, call)
        response = await self._post(self._client, request, "predict", body, call)
        return await self._declared.answer(request, inference, response)

    async def _post(self, client: Client, request: InferRequest, verb: str, body: bytes, call: Call) -> bytes:
        target = _target(_base_of(client), self._model or request.model, f":{verb}")
        fields = _JSON_FIELDS + encode_fields(call.fields)
        response = await client.request(b"POST", target, fields, body, call.deadline)
        if response.status != 200:
            await _refuse(request, response, body)
        return await response.read(MAX_ANSWER)

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, query: ModelQuery, call: Call) -> Answer:
        if query.about == "metadata":
            return self._declared.answer_query(query)
        if query.about != "ready":
            raise not_reported(query)
        target = _target(_base_of(self._client), self._model or query.model, "")
        response = await self._client.request(b"GET", target, _FIELDS, b"", call.deadline)
        body = await response.read(MAX_ERROR_BODY)
        if response.status != 200 or not predict_v1_upstream.is_kserve_ready(body):
            reason = oip_responses.error_of(body) or "its server reports that it is not ready"
            raise failed_status.unavailable(query, reason)
        return ready_answer(query)


def _base_of(client: Client) -> str:
    return client.base_path.removesuffix("/v1")


@contextlib.contextmanager
def _blamelessly() -> Iterator[None]:
    """A context in which an explainer's failure does not count against the endpoint, which serves predictions."""
    try:
        yield
    except InferenceError as error:
        if not error.blames_endpoint:
            raise
        message = "The model's explainer gave no answer."
        refused = Unavailable(message, code=error.code, retry_after=error.retry_after)
        refused.refusal = error.refusal
        raise refused from None


async def _refuse(request: InferRequest, response: ClientResponse, body: bytes) -> None:
    """Raise the typed error of a status. Models fail with 500 if a body lacks their input."""
    if response.status == 500 and not predict_v1_upstream.is_kserve_request(body):
        response.close()
        raise CallerError("Send `instances`, which are rows, or the model's other inputs.")
    await refuse(request, response)
