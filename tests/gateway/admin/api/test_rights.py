"""The authorization matrix: every route of the running listeners, by every credential, against the table of rights."""

import re
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from adapters.fake import FakeAdapter
from adapters.http1.message import Headers, Request, Response
from gateway.admin.api.guard import Handler
from gateway.auth.keys import KeyRecord, Principal, digest, id_of, new_key
from gateway.auth.scope import Scope
from gateway.auth.table import KeyTable
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.grpc.apps import GrpcAppsFront
from gateway.fronts.grpc.oip import OipGrpcFront
from gateway.fronts.grpc.tfserving import TfServingFront
from gateway.fronts.metadata import Metadata
from gateway.fronts.rights import ADMIN, CLIENT, GRPC, GRPC_APPLICATION, AdminRight, admin_right
from gateway.process.client_fronts import client_fronts
from gateway.process.supervisor.admin import SupervisorBackend, supervisor_app
from gateway.request.snapshot import with_keys
from gateway.telemetry import Record
from tests.gateway.admin.conftest import ROOT, TENANTS, AdminDoor, OpenDoor
from tests.support.gateways import PEPPER, Rig, config

REACHED = 299
"""The status of a request that reaches its handler."""
TENANT_NAMES = ("acme", "beta/eu")


@web.middleware
async def reaches(request: web.Request, handler: Handler) -> web.StreamResponse:
    return web.Response(status=REACHED if request.match_info.http_exception is None else 404)


def routes_of(app: web.Application) -> set[str]:
    """The routes of an application, as the rows of the table name them."""
    routes = [(route.method, route.resource) for route in app.router.routes()]
    return {f"{method} {resource.canonical}" for method, resource in routes if resource and method != "HEAD"}


def client_routes() -> dict[str, DoorPath]:
    rig = Rig(config(), {"main": [FakeAdapter()]})
    return {route.path: route for route in client_fronts(rig.core).routes()}


@pytest.mark.realtime  # the database has threads
async def test_the_table_has_every_route_of_the_running_listeners_and_no_other(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        app = supervisor_app(cast(SupervisorBackend, d.backend), lambda: True)
        assert routes_of(app) == set(ADMIN)
    assert set(client_routes()) == set(CLIENT)
    door = Door(Rig(config(), {"main": [FakeAdapter()]}).core)
    fronts = (OipGrpcFront(door, lambda: True), TfServingFront(door, Metadata(door.core)), GrpcAppsFront(door))
    methods = {path: method.operation for front in fronts for path, method in front.methods.items()}
    assert methods | {GRPC_APPLICATION: "app"} == GRPC


def test_every_change_of_a_key_checks_its_role() -> None:
    changes = {row: right for row, right in ADMIN.items() if "/keys/{id}" in row and not row.startswith("GET ")}
    assert len(changes) == 5
    assert all(right.changes_key for right in changes.values())
    assert all(right.counts == "state" for row, right in ADMIN.items() if right.access == "tenant-admins"
               and not row.startswith(("GET ", "POST /admin/playground")))  # fmt: skip


# ── the admin listener ────────────────────────────────────────────────────────────────────────────────


def keys_of(d: AdminDoor) -> dict[str, tuple[str | None, str, str]]:
    """Credentials: the key, the tenant and the role that it has on this listener."""
    held: dict[str, tuple[str | None, str, str]] = {"none": (None, "", "nobody"), "wrong": ("hr-x", "", "nobody")}
    for tenant in TENANT_NAMES:
        for role in ("user", "tenant-admin", "operator"):
            held[f"{role} of {tenant}"] = d.backend.key(tenant, role=role), tenant, role
    held["scraper"] = d.backend.key(scopes={"fronts": ("metrics",)}), "acme", "scraper"
    ended = d.backend.key(role="operator")
    d.backend.store.revoke(id_of(ended) or "", by=ROOT, now=time.time())
    held["ended"] = ended, "acme", "nobody"
    return held


def expected(right: AdminRight, tenant: str, holder: str, role: str, *, of_operator: bool) -> int:
    """The status by the table. `of_operator`: `{id}` is an operator's key."""
    if right.access == "anyone":
        return REACHED
    if role == "nobody":
        return 401
    if role == "operator":
        return 403 if right.edits else REACHED
    if right.access == "scrapers":
        return REACHED if role == "scraper" else 403
    if right.access != "tenant-admins" or role != "tenant-admin" or tenant not in ("", holder):
        return 403
    return 403 if right.changes_key and of_operator else REACHED


async def status_of(http: aiohttp.ClientSession, url: str, method: str, path: str, key: str | None) -> int:
    headers = {"content-type": "application/json"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    async with http.request(method, url + path, headers=headers) as response:
        return response.status


@pytest.mark.realtime  # the database has threads
async def test_every_admin_route_follows_the_table(admin_door: OpenDoor) -> None:
    def add(app: web.Application) -> None:
        app.router.add_post("/admin/restart", reaches)  # type: ignore[arg-type]
        app.middlewares.append(reaches)

    async with admin_door(add, required=True, metrics=True) as d, aiohttp.ClientSession() as http:
        held = keys_of(d)
        targets = {t: {r: d.backend.key(t, role=r) for r in ("user", "operator")} for t in TENANT_NAMES}
        wrong, calls = [], 0
        for row in ADMIN:
            method, _, template = row.partition(" ")
            right = admin_right(method, template)
            for tenant in TENANT_NAMES if "{tenant}" in template else ("",):
                for of in ("user", "operator") if right.changes_key else ("user",):
                    id_ = id_of(targets[tenant or "acme"][of]) or ""
                    path = filled(template, tenant=tenant.replace("/", "%2F"), id=id_)
                    for name, (key, holder, role) in held.items():
                        right_status = expected(right, tenant, holder, role, of_operator=of == "operator")
                        counted = len(d.backend.counted)
                        got = await status_of(http, d.url, method, path, key)
                        counts = right.counts == "state" and role == "tenant-admin" and tenant in ("", holder)
                        calls += 1
                        if (got, len(d.backend.counted) - counted) != (right_status, int(counts)):
                            wrong.append((row, tenant, of, name, got, right_status))
        assert wrong == []
        assert calls > 10 * len(ADMIN)


def filled(template: str, **names: str) -> str:
    """A path of a template. A name that is not given has the text of a value that its route accepts."""
    texts = {"month": "2026-11", "version": "1", "verb": "pause", "kind": "chat", **names}
    return re.sub(r"\{(\w+)\}", lambda match: texts.get(match[1]) or "x", template)


# ── the listener of clients ───────────────────────────────────────────────────────────────────────────


class _NoBody(Request):
    """A request that declares and delivers 100 bytes."""

    length = 100
    size = 100


async def test_every_client_route_follows_the_table() -> None:
    limits = {"requests": "100000/min", "bytes": "100MiB/min"}
    tenants = [{"name": name, "models": ["*"], "limits": limits} for name in TENANT_NAMES]
    rig = Rig(config(tenants=tenants), {"main": [FakeAdapter()]})
    fronts, records, held = client_fronts(rig.core), dict[str, KeyRecord](), dict[str, tuple[str, Principal | None]]()
    for tenant in TENANT_NAMES:
        for role in ("user", "tenant-admin", "operator"):
            held[f"{role} of {tenant}"] = "", Principal(tenant, "", frozenset({"user", role}))
        held[f"embeds for {tenant}"] = "", Principal(tenant, "", scope=Scope(fronts=["embeddings"]))
        held[f"chats for {tenant}"] = "", Principal(tenant, "", scope=Scope(fronts=["chat"]))
    for name, (_, principal) in held.items():
        assert principal is not None
        key = new_key()
        own = Principal(principal.tenant, key.id, principal.roles, scope=principal.scope)
        records[key.id] = KeyRecord(own, digest(PEPPER, key.plaintext))
        held[name] = key.plaintext, own
    held |= {"none": ("", None), "wrong": (new_key().plaintext, None)}
    rig.core.snapshot = with_keys(rig.core.snapshot, KeyTable(PEPPER, records))

    async def reached(principal: Principal, http: Request, record: Record) -> Response:
        return Response(REACHED, fronts.door.respond(record, b"12345").headers, b"12345")

    def left(tenant: str) -> tuple[float, float]:
        buckets, now = rig.ledger.accounts[tenant].always[0].buckets, rig.core.clock()
        return buckets["requests"].remaining(now), buckets["bytes"].remaining(now)

    for path, route in {route.path: route for route in fronts.routes()}.items():
        route.answer, right = reached, CLIENT[path]
        for method in {*right.methods, "PURGE"}:
            for name, (token, principal) in held.items():
                headers = Headers({b"authorization": f"Bearer {token}".encode()} if token else {})
                before = {tenant: left(tenant) for tenant in TENANT_NAMES}
                http = _NoBody(method, path.encode(), headers, "peer")
                status = (await fronts.door.serve(http, route, "", errors.openai_response)).status
                scope = principal.scope if principal is not None else None
                foreign = scope is not None and right.operation not in scope.names["fronts"]
                admitted = 405 if method == "PURGE" else 403 if foreign else REACHED
                assert status == (401 if principal is None else admitted), (path, method, name)
                for tenant in TENANT_NAMES:
                    counts = status == REACHED and principal is not None and principal.tenant == tenant
                    used = (1, 105) if counts and right.counts == "state" else (0, 0)
                    spent = [old - new for old, new in zip(before[tenant], left(tenant), strict=True)]
                    assert spent == list(used), (path, name)
    rig.assert_idle()


@pytest.fixture
async def limited() -> AsyncIterator[Rig]:
    tenants: list[Any] = [{**TENANTS[0], "limits": {"requests": "2/min"}}]
    rig = Rig(config(tenants=tenants), {"main": [FakeAdapter()]})
    yield rig
    rig.assert_idle()


async def test_a_request_without_a_model_is_refused_beyond_the_limit(limited: Rig) -> None:
    fronts = client_fronts(limited.core)
    headers = Headers({b"authorization": f"Bearer {limited.key.plaintext}".encode()})
    statuses = [(await fronts(Request("GET", b"/v1/files", headers, "peer"))).status for _ in range(3)]
    assert statuses == [404, 404, 429]  # a refusal of the handler counts too
