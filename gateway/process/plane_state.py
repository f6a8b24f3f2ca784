"""The state of one process as JSON: counters, limits, queues and endpoints."""

import time
from collections import Counter
from typing import Any

from config.schema.money import Money
from gateway.admin.api.pools import describe_endpoint
from gateway.limits.subjects import Limit
from gateway.process.data_plane import DataPlane
from gateway.traffic.queue import PRIORITIES, PoolQueue


def describe(plane: DataPlane) -> dict[str, Any]:
    """Every counter that must be zero in an idle process, and the health of every endpoint."""
    now, utc = plane.clock(), time.time()
    tenants = [
        {
            "tenant": account.tenant,
            "in_flight": account.in_flight,
            "reserved_tokens": account.reserved_tokens,
            "limits": [_limit(limit, now, utc) for limit in account.limits],
            "teams": [
                {"team": team.name, "limits": [_limit(limit, now, utc) for limit in team.limits]}
                for (tenant, _), team in plane.ledger.teams.items()
                if tenant == account.tenant
            ],
            "spent": [
                {"key": key, "amount": str(Money(picos, currency))} for (key, currency), picos in account.spent.items()
            ],
        }
        for account in plane.ledger.accounts.values()
    ]
    models = [
        {"model": name, "limits": [_limit(limit, now, utc) for limit in account.limits]}
        for name, account in plane.ledger.models.items()
    ]
    redis = plane.ledger.redis
    issuers = [
        {
            "issuer": key_set.name,
            "keys": len(key_set),
            "age_seconds": key_set.age if len(key_set) else None,
            "error": key_set.error,
        }
        for key_set in plane.identity.tokens.key_sets
    ]
    return {
        **describe_load(plane),
        "connections": plane.listeners.connections,
        "tenants": tenants,
        "models": models,
        "redis": redis.describe() if redis is not None else None,
        "issuers": issuers,
    }


def describe_load(plane: DataPlane) -> dict[str, Any]:
    """The part of the state that changes from second to second: endpoints and queues."""
    now = plane.clock()
    return {
        "accepting": plane.accepting,
        "in_flight": sum(account.in_flight for account in plane.ledger.accounts.values()),
        "endpoints": [describe_endpoint(member, now) for member in plane.fleet],
        "queues": [_queue(queue, now) for queue in plane.fleet.queues()],
    }


def _queue(queue: PoolQueue, now: float) -> dict[str, Any]:
    """The requests that wait for a pool, and the rate at which they are served; null before it can be measured."""
    gap = queue.rate.gap(now)
    return {
        "pool": queue.name,
        "waiting": queue.line.size,
        "by_priority": dict(zip(PRIORITIES, queue.line.depths(), strict=True)),
        "by_tenant": Counter(waiter.tenant for waiter in queue.line),
        "served_per_second": 1 / gap if gap else None,
    }


def _limit(limit: Limit, now: float, utc: float) -> dict[str, Any]:
    """A limit as configured, with the remaining amounts of the subject that has the least. Subjects are not named, as
    a user is a person."""
    left: dict[str, float] = {}
    for allowance in limit:
        for unit, amount in allowance.remaining(now, utc).items():
            left[unit] = min(amount, left.get(unit, amount))
    written = limit.config.model_dump(mode="json", exclude_none=True)
    return {**written, "subjects": len(limit), "remaining": left}
