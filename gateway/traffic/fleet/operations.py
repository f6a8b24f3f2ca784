"""Changes by operators in a running pool: endpoints added, drained, removed, weighed.

Operations are plain, idempotent data, so that every worker can apply them with the same result.
"""

import asyncio
import time
from dataclasses import replace
from math import inf
from typing import Literal

import msgspec

from gateway.traffic.discovery.target import MAX_TARGETS, DiscoveredEndpoint
from gateway.traffic.fleet.desired import Added, Overrides
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.fleet.member import FleetError, PoolMember, tls_of

Verb = Literal["add", "remove", "drain", "undrain", "weigh"]


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change. `endpoint` is an id; the id of an added endpoint follows from pool and URL."""

    verb: Verb
    pool: str
    endpoint: str = ""
    url: str = ""
    weight: float | None = None
    zone: str | None = None
    expires: float | None = None
    """Unix seconds, UTC."""
    force: bool = False
    """Whether to apply the change even if it leaves the pool without an endpoint."""


class NotDone(Exception):
    """An operation was rejected: the reason, and the HTTP status for it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def operate(fleet: Fleet, operation: Operation) -> PoolMember | None:
    """Apply an operation. Returns the endpoint after it; None for a removed one. Raises `NotDone` without a change.

    A change lasts until the process ends or the pool leaves the configuration.
    """
    pool = fleet.configs.get(operation.pool)
    if pool is None:
        raise NotDone(404, "no_such_pool", f"no pool is named {operation.pool[:128]!r}")
    if pool.runtime is not None:
        raise NotDone(409, "bundled_runtime", "the pool is a runtime, and the gateway manages its endpoints")
    overrides = fleet.overrides[pool.name]
    if operation.verb == "add":
        _add(fleet, operation, overrides)
        id_ = fleet.endpoint_id(pool.name, operation.url)
    else:
        _change(fleet, operation, overrides)
        id_ = operation.endpoint
    fleet.refresh(pool.name)
    return _member(fleet, pool.name, id_)


def _add(fleet: Fleet, operation: Operation, overrides: Overrides) -> None:
    pool, url = fleet.configs[operation.pool], operation.url
    id_ = fleet.endpoint_id(pool.name, url)
    member = _member(fleet, pool.name, id_)
    if member is not None and member.origin != "operator":
        if operation.expires is not None:
            raise NotDone(409, "already_there", f"the endpoint is defined by {member.origin} and cannot expire")
        if operation.weight is not None:
            overrides.weights[id_] = operation.weight
        return
    if member is None and len(fleet.members_of(pool.name)) >= MAX_TARGETS:
        raise NotDone(409, "too_many_endpoints", f"a pool has at most {MAX_TARGETS} endpoints")
    if url.startswith("https://"):
        try:
            tls_of(pool, pool.protocol.name)
        except FleetError as error:
            raise NotDone(409, "tls", str(error)) from None
    overrides.removed.pop(id_, None)
    if operation.weight is not None:
        overrides.weights.pop(id_, None)
    until = inf if operation.expires is None else operation.expires - time.time() + fleet.clock()
    weight = 1.0 if operation.weight is None else operation.weight
    overrides.added[id_] = Added(DiscoveredEndpoint(url, weight, operation.zone), until)
    _refresh_after(fleet, pool.name, until)


def _refresh_after(fleet: Fleet, pool: str, until: float) -> None:
    if until < inf:
        wait = max(0.0, until - fleet.clock()) + 0.05  # never too early
        asyncio.get_running_loop().call_later(wait, fleet.refresh, pool)


def _change(fleet: Fleet, operation: Operation, overrides: Overrides) -> None:
    id_ = operation.endpoint
    member = _member(fleet, operation.pool, id_)
    if member is None:
        if operation.verb == "remove" and id_ in overrides.removed:
            return
        raise NotDone(404, "no_such_endpoint", f"the pool has no endpoint {id_[:128]!r}")
    if operation.verb in ("drain", "remove"):
        _check_last(fleet, member, force=operation.force)
    if operation.verb == "remove":
        overrides.forget(id_)
        overrides.removed[id_] = None
    elif operation.verb == "drain":
        overrides.drained[id_] = None
    elif operation.verb == "undrain":
        overrides.drained.pop(id_, None)
    else:
        assert operation.weight is not None
        overrides.weights[id_] = operation.weight


def _check_last(fleet: Fleet, member: PoolMember, *, force: bool) -> None:
    others = [m for m in fleet.members_of(member.pool) if m is not member and not m.drained]
    if not others and not member.drained and not force:
        message = "no other endpoint of the pool accepts requests: add ?force=true to leave it without one"
        raise NotDone(409, "last_endpoint", message)


def _member(fleet: Fleet, pool: str, id_: str) -> PoolMember | None:
    return next((member for member in fleet.members_of(pool) if member.endpoint.id == id_), None)


# ── sync with another worker ──────────────────────────────────────────────────────────────────────────


def pack(fleet: Fleet) -> bytes:
    """Encode all changes by operators."""
    shift = time.time() - fleet.clock()  # monotonic clocks of two processes may differ
    return msgspec.msgpack.encode({name: _shifted(changed, shift) for name, changed in fleet.overrides.items()})


def adopt(fleet: Fleet, packed: bytes) -> None:
    """Replace all changes by the changes that another worker packed. Unknown pools are ignored."""
    shift = fleet.clock() - time.time()
    for name, changed in msgspec.msgpack.decode(packed, type=dict[str, Overrides]).items():
        if name in fleet.overrides:
            fleet.overrides[name] = _shifted(changed, shift)
            fleet.refresh(name)
            for added in fleet.overrides[name].added.values():
                _refresh_after(fleet, name, added.until)


def _shifted(changed: Overrides, seconds: float) -> Overrides:
    added = {id_: replace(one, until=one.until + seconds) for id_, one in changed.added.items()}
    return replace(changed, added=added)
