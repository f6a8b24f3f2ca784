"""Adapter of TorchServe over HTTP: predictions, explanations, declared tensors, and the management API."""

from __future__ import annotations

from functools import lru_cache

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import Unsupported
from adapters.http1.client import Client
from adapters.paths import segment
from adapters.registry import Address
from adapters.requests import AppRequest, InferRequest, ModelOrder, ModelQuery, ModelRequest
from adapters.upstreams.apps.calls import AppCalls
from adapters.upstreams.apps.http_app import call_for, healthy, no_such_kind, tensors
from adapters.upstreams.declared_tensors import DeclaredModel, not_reported, ready_answer
from adapters.upstreams.dial import beside, http1_client, names, probe_path
from adapters.upstreams.readiness import Readiness
from adapters.upstreams.torchserve.models import ManagedModels, judged
from config.schema.config import PoolConfig
from config.schema.protocols.tensors import ManagedByTorchServe

PREDICTIONS, EXPLANATIONS = "/predictions", "/explanations"
_VERBS = {"": PREDICTIONS, "/": PREDICTIONS, PREDICTIONS: PREDICTIONS, EXPLANATIONS: EXPLANATIONS}


def make(pool: PoolConfig, address: Address) -> TorchServeAdapter:
    """Return the adapter of one endpoint of a pool."""
    protocol = pool.protocol
    assert isinstance(protocol, ManagedByTorchServe)
    models = models_of(pool, address, protocol)
    return TorchServeAdapter(http1_client(pool, address), protocol, models, **names(pool), **probe_path(pool))


def models_of(pool: PoolConfig, address: Address, protocol: ManagedByTorchServe) -> ManagedModels | None:
    """Return the management API of an endpoint; None if its port is not configured."""
    if protocol.management_port is None:
        return None
    return ManagedModels(beside(pool, address, protocol.management_port, protocol.management_key), pool.model)


@lru_cache(4096)
def _target(base: str, verb: str, model: str, version: str) -> str:
    path = f"{base}{verb}/{segment(model)}"
    return f"{path}/{segment(version)}" if version else path


class TorchServeAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(
        self,
        client: Client,
        protocol: ManagedByTorchServe,
        models: ManagedModels | None = None,
        *,
        model: str | None = None,
        probe: str = "/ping",
    ) -> None:
        self._client = client
        self._calls = AppCalls(client, keyed=True, judge=judged)
        self._declared = DeclaredModel(protocol, client.now)
        self._models = models
        self._readiness = Readiness(models.entries if models else None, client.now)
        self._model = model
        self._probe_target = (client.base_path + probe).encode()

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._readiness.explained(self._answer(request, call), request, call)

    async def _answer(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, AppRequest):
            return await self._call(request, call)
        if isinstance(request, InferRequest):
            inference, body = await self._declared.encode(request, call)
            prediction = call_for(request, PREDICTIONS, body)
            return await self._declared.answer(request, inference, await tensors(self._call(prediction, call)))
        return await answered(request, self._declared, self._models, call)

    async def _call(self, request: AppRequest, call: Call) -> Answer:
        path = _target(self._client.base_path, verb_of(request), self._model or request.model, request.version)
        target = f"{path}?{request.query}" if request.query else path
        return await self._calls.call(request, target.encode("latin-1"), call)

    async def probe(self, timeout: float) -> None:
        await healthy(self._client, self._probe_target, timeout, judged)

    async def aclose(self) -> None:
        await self._client.aclose()
        if self._models is not None:
            await self._models.aclose()


def verb_of(request: AppRequest) -> str:
    """Return the operation of a request's path. Raises `Unsupported` for any other path: it may name another model."""
    verb = _VERBS.get(request.path)
    if verb is None:
        raise Unsupported(f"TorchServe has {PREDICTIONS} and {EXPLANATIONS} of a model, and no other paths.")
    return verb


async def answered(request: ModelRequest, declared: DeclaredModel, models: ManagedModels | None, call: Call) -> Answer:
    """Answer a query or an order, for both wires."""
    if isinstance(request, ModelQuery):
        if request.about == "metadata":
            return declared.answer_query(request, await models.versions(request, call) if models is not None else ())
        if request.about == "ready":
            return await models.ready(request, call) if models is not None else ready_answer(request)
        if models is not None and request.about == "config":
            return await models.described(request, call)
        raise not_reported(request)
    if isinstance(request, ModelOrder):
        if models is None:
            raise Unsupported("TorchServe loads models by its management API: give the pool its `management_port`.")
        return await models.order(request, call)
    raise no_such_kind(request)
