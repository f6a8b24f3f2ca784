"""`/admin/pools`: lists pools; adds, drains, removes and weighs endpoints. Orders of operators to load models."""

import math
import sys
import time
from typing import Any, Self, TypeVar

from aiohttp import web
from pydantic import Field, ValidationError, model_validator

from adapters.detection.auto import AutoAdapter
from adapters.types import Order
from config.schema.config import EndpointConfig
from config.schema.section import Section
from config.schema.units import Duration
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import body_of, read_json
from gateway.admin.api.guard import AdminRefused, acted
from gateway.traffic.fleet.fleet import Fleet, detected, disagree
from gateway.traffic.fleet.member import PoolMember
from gateway.traffic.fleet.operations import Operation, Verb
from gateway.traffic.fleet.signals import Scraper

S = TypeVar("S", bound=Section)
LONGEST = 30 * 86400.0
"""The longest time in seconds for an added endpoint. Without a time it remains until the process ends."""
BODY_SECONDS = 60.0
"""Time for a body to arrive. A load may contain the model's files."""


class _Addition(EndpointConfig):
    weight: float | None = Field(None, gt=0)  # type: ignore[assignment]  # absent leaves it as it is
    ttl: Duration | None = Field(None, le=LONGEST)

    @model_validator(mode="after")
    def _without_account(self) -> Self:
        if self.is_account:
            raise ValueError("an endpoint with an account, a model or limits of its own is written in the file")
        return self


class _Weighing(Section):
    weight: float = Field(gt=0)


class Pools:
    """The handlers. They describe an operation; the gateway, or each of its workers, performs it."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes. An endpoint's id is `POOL/…`; the paths have only its last part."""
        endpoints = "/admin/pools/{pool}/endpoints"
        one = endpoints + "/{endpoint}"
        return [
            web.get("/admin/pools", self._list),
            web.post(endpoints, self._add),
            web.delete(one, self._remove),
            web.patch(one, self._weigh),
            web.post(f"{one}/drain", self._drain),
            web.post(f"{one}/undrain", self._undrain),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"pools": await self._backend.pools()})

    async def _add(self, request: web.Request) -> web.Response:
        addition = await _read(request, _Addition)
        pool, url, weight, zone = request.match_info["pool"], addition.url, addition.weight, addition.zone
        expires = None if addition.ttl is None else time.time() + addition.ttl
        added = Operation(verb="add", pool=pool, url=url, weight=weight, zone=zone, expires=expires)
        return await self._done(request, added)

    async def _remove(self, request: web.Request) -> web.Response:
        return await self._done(request, _operation(request, "remove"))

    async def _drain(self, request: web.Request) -> web.Response:
        return await self._done(request, _operation(request, "drain"))

    async def _undrain(self, request: web.Request) -> web.Response:
        return await self._done(request, _operation(request, "undrain"))

    async def _weigh(self, request: web.Request) -> web.Response:
        weighing = await _read(request, _Weighing)
        return await self._done(request, _operation(request, "weigh", weighing.weight))

    async def _done(self, request: web.Request, operation: Operation) -> web.Response:
        fields = {"url": operation.url, "weight": operation.weight, "expires": operation.expires}
        detail = {name: value for name, value in fields.items() if value}
        acted(request, f"endpoint.{operation.verb}", operation.endpoint or operation.pool, **detail)
        return web.json_response(await self._backend.operate(operation))


def describe_pools(fleet: Fleet, now: float) -> list[dict[str, Any]]:
    """Every pool, with the sources of its endpoints and the endpoints."""
    pools = []
    for name in fleet.configs:
        discoverer = fleet.discoverers.get(name)
        discovery = None
        if discoverer is not None:
            age = discoverer.age
            discovery = {
                "endpoints": len(discoverer.targets),
                "age_seconds": age if age < math.inf else None,
                "error": discoverer.error,
            }
        overrides = fleet.overrides[name]
        endpoints = [describe_endpoint(member, now) for member in fleet.members_of(name)]
        described: dict[str, Any] = {"pool": name, "discovery": discovery}
        described |= {"removed": list(overrides.removed), "endpoints": endpoints}
        if fleet.configs[name].protocol.name == "auto":
            described["disagree"] = disagree(fleet.members_of(name))
        pools.append(described)
    return pools


def describe_endpoint(member: PoolMember, now: float) -> dict[str, Any]:
    """The state and the load of an endpoint."""
    endpoint, scraper = member.endpoint, member.scraper
    described: dict[str, Any] = {
        "pool": member.pool,
        "endpoint": endpoint.id,
        "address": endpoint.address,
        "origin": member.origin,
        "drained": member.drained,
        "health": endpoint.health,
        "probe_error": endpoint.probe_error,
        "breaker": endpoint.breaker.state(now),
        "in_flight": endpoint.in_flight,
        "weight": endpoint.configured_weight,
        "zone": endpoint.zone,
    }
    if isinstance(endpoint.adapter, AutoAdapter):
        described["detected"] = detected(member)
    accounts = sys.modules.get("gateway.traffic.accounts.endpoint")  # imported for a pool with accounts
    if accounts is not None and isinstance(endpoint, accounts.AccountEndpoint):
        described["models"] = endpoint.described(now)
    if scraper is not None:
        described["signals"] = {"age_seconds": endpoint.signal.age(now), "error": scraper.error, **_reported(scraper)}
    if member.runtime is not None:
        described |= {"replica": member.replica, "pid": member.runtime.pid, "restarts": member.runtime.restarts}
    return described


def _reported(scraper: Scraper) -> dict[str, Any]:
    """The last report of an endpoint; empty before the first report."""
    if scraper.report is None:
        return {}
    report = scraper.report._asdict()
    return {**report, "adapters": sorted(scraper.report.adapters)}


def _operation(request: web.Request, verb: Verb, weight: float | None = None) -> Operation:
    pool, last = request.match_info["pool"], request.match_info["endpoint"]
    force = request.query.get("force") == "true"
    return Operation(verb=verb, pool=pool, endpoint=f"{pool}/{last}", weight=weight, force=force)


async def _read(request: web.Request, kind: type[S]) -> S:
    """The body as a section. Raises `AdminRefused`."""
    try:
        return kind.model_validate(await read_json(request), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        place = ".".join(map(str, first["loc"])) or None
        raise AdminRefused(400, "invalid_request", message, param=place) from None


class Orders:
    """The handlers. The backend forwards each order to the servers."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """Triton's paths, so that its clients work with the address of this listener."""
        model = "/v2/repository/models/{model}"
        return [web.post(f"{model}/load", self._load), web.post(f"{model}/unload", self._unload)]

    async def _load(self, request: web.Request) -> web.Response:
        return await self._order(request, "load")

    async def _unload(self, request: web.Request) -> web.Response:
        return await self._order(request, "unload")

    async def _order(self, request: web.Request, order: Order) -> web.Response:
        model = request.match_info["model"]
        acted(request, f"model.{order}", model)
        async with body_of(request, self._backend.config.http.max_body, BODY_SECONDS) as body:
            if order == "unload" and request.query.get("force") != "true":
                self._backend.decider.check_unload(model)
            await self._backend.order(model, order, body)
        return web.json_response({"name": model, order: True})
