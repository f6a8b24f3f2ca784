"""The operators' door, on its own listener: health, metrics, and the state of everything that is counted."""

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from aiohttp import web

from config.schema.money import Money
from gateway.fronts.admin.backend import AdminBackend
from gateway.fronts.admin.explain import Explain
from gateway.fronts.admin.guard import Guard, for_anyone, for_scrapers
from gateway.fronts.admin.orders import Orders
from gateway.fronts.admin.pools import Pools, describe_endpoint
from gateway.fronts.admin.tenants import Tenants
from gateway.limits.subjects import Limit
from gateway.traffic.queue import PRIORITIES, PoolQueue

if TYPE_CHECKING:
    from gateway.app import Gateway


def make_app(backend: AdminBackend) -> web.Application:
    """The aiohttp application of the admin listener. `Guard` stands before all of it."""
    tenants, explain = Tenants(backend), Explain(backend)
    app = web.Application(middlewares=[Guard(backend).middleware])
    app.on_cleanup.extend((tenants.close, explain.close))

    @for_anyone
    async def livez(_: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    @for_anyone
    async def readyz(_: web.Request) -> web.Response:
        """200 while requests are taken and each model has an endpoint; the load balancer's question."""
        ready, body = await backend.readiness()
        return web.json_response(body, status=200 if ready else 503)

    async def metrics(_: web.Request) -> web.Response:
        headers = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await backend.exposition(), headers=headers)

    async def state(_: web.Request) -> web.Response:
        return web.json_response(await backend.state())

    protected = backend.config.auth.admin.metrics
    app.add_routes(
        [
            web.get("/livez", livez),
            web.get("/readyz", readyz),
            web.get("/metrics", for_scrapers(metrics) if protected else for_anyone(metrics)),
            web.get("/admin/state", state),
            *tenants.routes(),
            *explain.routes(),
            *Pools(backend).routes(),
            *Orders(backend).routes(),
        ]
    )
    return app


def describe(gateway: "Gateway") -> dict[str, Any]:
    """Every counter that must be zero when nothing is going on, and the health of every endpoint."""
    now, utc = gateway.clock(), time.time()
    endpoints = [describe_endpoint(member, now) for member in gateway.fleet]
    tenants = [
        {
            "tenant": account.tenant,
            "in_flight": account.in_flight,
            "reserved_tokens": account.reserved_tokens,
            "limits": [_limit(limit, now, utc) for limit in account.limits],
            "spent": [
                {"key": key, "amount": str(Money(picos, currency))} for (key, currency), picos in account.spent.items()
            ],
        }
        for account in gateway.ledger.accounts.values()
    ]
    models = [
        {"model": name, "limits": [_limit(limit, now, utc) for limit in account.limits]}
        for name, account in gateway.ledger.models.items()
    ]
    redis = gateway.ledger.redis
    issuers = [
        {
            "issuer": key_set.name,
            "keys": len(key_set),
            "age_seconds": key_set.age if len(key_set) else None,
            "error": key_set.error,
        }
        for key_set in gateway.identity.tokens.key_sets
    ]
    return {
        "accepting": gateway.accepting,
        "connections": len(gateway.server.connections),
        "in_flight": sum(tenant["in_flight"] for tenant in tenants),
        "configuration": {"file": str(gateway.path), "loaded": gateway.loaded, "last_error": gateway.last_error},
        "endpoints": endpoints,
        "queues": [_queue(queue, now) for queue in gateway.fleet.queues()],
        "tenants": tenants,
        "models": models,
        "redis": redis.describe() if redis is not None else None,
        "issuers": issuers,
    }


def _queue(queue: PoolQueue, now: float) -> dict[str, Any]:
    """Who waits for a pool, and how quickly that goes; null while too little is known."""
    gap = queue.rate.gap(now)
    return {
        "pool": queue.name,
        "waiting": queue.line.size,
        "by_priority": dict(zip(PRIORITIES, queue.line.depths(), strict=True)),
        "by_tenant": Counter(waiter.tenant for waiter in queue.line),
        "served_per_second": 1 / gap if gap else None,
    }


def _limit(limit: Limit, now: float, utc: float) -> dict[str, Any]:
    """As it is written, and what the subject with the least has left. No subject is named: a user is a person."""
    left: dict[str, float] = {}
    for allowance in limit:
        for unit, amount in allowance.remaining(now, utc).items():
            left[unit] = min(amount, left.get(unit, amount))
    written = limit.config.model_dump(mode="json", exclude_none=True)
    return {**written, "subjects": len(limit), "remaining": left}
