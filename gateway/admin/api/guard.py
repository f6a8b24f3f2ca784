"""Authorizes every request of the admin API, records changes in the audit log, and encodes errors.

`gateway/fronts/rights.py` has the right of each route: the guard applies it, and handlers check nothing that it names.
A route without a row is for operators, and the audit log records each change.
"""

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from adapters.errors import CapacityError, CredentialError
from config.schema.config import Config
from config.schema.tenant import TenantConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.sessions import CrossSite, SessionAdmission, SessionOver
from gateway.admin.drafts.file import NotEditable, check_enabled
from gateway.auth.audit import Act, Actor, Outcome
from gateway.auth.errors import KeyEnded, NoSuchKey, NoSuchTeam, TeamConflict, TooManyKeys, WrongGrant
from gateway.auth.keys import Principal, bearer
from gateway.fronts.forwarded import client_address
from gateway.fronts.rights import AdminRight, admin_right
from gateway.state.errors import StateError
from gateway.traffic.fleet.operations import NotDone

_log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LOCAL = "local"


@dataclass(slots=True)
class Visit:
    """The identity behind an authorized request."""

    actor: Actor
    """The author of the request, for entries of the audit log."""
    within: str | None = None
    """The only tenant that a tenant-admin may read or change; None for an operator."""
    principal: Principal | None = None
    """The principal of the credential; None where none is required."""
    act: Act | None = None
    recorded: bool = False


_VISIT = web.RequestKey("visit", Visit)


class AdminRefused(Exception):
    """An error response in the shape of the admin API."""

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


def visit(request: web.Request) -> Visit:
    """The identity behind a request."""
    return request[_VISIT]


def acted(request: web.Request, action: str, target: str, **detail: Any) -> None:
    """Set the request's entry in the audit log, where method and route do not describe the change."""
    visit = request[_VISIT]
    visit.act = Act(visit.actor, action, target, detail=detail)


def recorded(request: web.Request) -> None:
    """Mark a request that needs no further entry in the audit log."""
    request[_VISIT].recorded = True


def check_role(request: web.Request, role: str) -> None:
    """Reject a key's role that exceeds the client's own. Raises `AdminRefused`."""
    if role == "operator" and visit(request).within is not None:
        raise AdminRefused(403, "forbidden", "only an operator manages operators' keys")


class AdminGuard:
    """Authorizes requests. Its `middleware` is the outermost."""

    def __init__(self, backend: AdminBackend, admission: SessionAdmission) -> None:
        self._backend = backend
        self._admission = admission
        self._required = backend.config.auth.admin.required
        self._protects_metrics = backend.config.auth.admin.metrics
        self._loopback = backend.config.listen.admin.is_loopback

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request, call its handler, record it in the audit log, and encode errors in one shape."""
        try:
            if trusted := self._backend.config.http.trusted_proxies:
                lines = request.headers.getall("X-Forwarded-For", ())  # some proxies add a line of their own
                client = client_address(request.remote or "", ", ".join(lines) or None, trusted)
                request = request.clone(remote=client)
            self._check_browser(request)
            _check_url(request)
            await self._admit(request)
            _check_json(request)
            response = await handler(request)
        except Exception as error:
            response = _error_response(request, error)
        if request.method not in ("GET", "HEAD", "OPTIONS") and _VISIT in request:
            self._record(request, response.status)
        return response

    def _check_browser(self, request: web.Request) -> None:
        """Reject requests of web pages in an operator's browser: DNS rebinding, and requests from another origin."""
        host = request.headers.get("Host", "")
        public = urlsplit(self._backend.config.console.url or "").netloc
        if self._loopback and not _is_local_name(host) and host != public:
            raise AdminRefused(403, "wrong_host", "address this machine as `localhost` or by an IP address")
        origin = request.headers.get("Origin")
        if origin is not None and _netloc(origin) != host:
            raise AdminRefused(403, "cross_origin", "requests from pages of another origin are refused")

    async def _admit(self, request: web.Request) -> None:
        right = right_of(request)
        if right.access == "anyone" or (right.access == "scrapers" and not self._protects_metrics):
            return
        if self._required:
            await self._check_access(request, right)
        else:
            request[_VISIT] = Visit(Actor(_LOCAL, "operator", request.remote or ""))
        if right.counts == "state" and (visitor := request[_VISIT]).within is not None:
            assert visitor.principal is not None
            await self._backend.count(visitor.principal, request.content_length or 0)
        if right.edits:
            check_enabled(self._backend.config)
        if right.changes_key:
            await self._check_key(request)

    async def _check_access(self, request: web.Request, right: AdminRight) -> None:
        principal = await self._authenticate(request)
        role = authority(principal)
        admitted = Visit(Actor(principal.key_id, role, request.remote or ""), principal=principal)
        if role != "user":  # a user without rights cannot fill the audit log
            request[_VISIT] = admitted
        if role == "operator" or (right.access == "scrapers" and _scrapes(principal)):
            return
        tenant = request.match_info.get("tenant", principal.tenant)
        if right.access == "tenant-admins" and role == "tenant-admin" and tenant == principal.tenant:
            admitted.within = tenant
            return
        raise AdminRefused(403, "forbidden", "this credential may not do that")

    async def _check_key(self, request: web.Request) -> None:
        """Whether the client may change the key. A key's role never changes, so that this stays valid."""
        tenant, key_id = tenant_of(request, self._backend.config), request.match_info["id"]
        if any(key.id == key_id for key in tenant.keys):
            raise AdminRefused(409, "stored_in_file", "this key is defined in the configuration file: change it there")
        stored = await asyncio.to_thread(self._backend.store.find, key_id, tenant.name)
        check_role(request, stored.role)

    async def _authenticate(self, request: web.Request) -> Principal:
        token = bearer(request.headers.get("Authorization"), request.headers.get("x-api-key"))
        if token is not None:
            return self._backend.authenticate(token, None, time.time())
        tls = request.get_extra_info("peercert") or None
        try:
            signed_in = await self._admission.admit(request)
        except SessionOver:
            if tls is None:
                raise
            signed_in = None
        return signed_in or self._backend.authenticate(None, tls, time.time())

    def _record(self, request: web.Request, status: int) -> None:
        visit = request[_VISIT]
        if visit.recorded:
            return
        outcome: Outcome = "done" if status < 400 else "refused" if status < 500 else "failed"
        act = visit.act
        if act is None:
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "?"
            act = Act(visit.actor, f"{request.method} {route}", request.path)
        detail = {**act.detail, "status": status} if outcome != "done" else act.detail
        self._backend.note(Act(act.actor, act.action, act.target, outcome, detail))


def tenant_of(request: web.Request, config: Config) -> TenantConfig:
    """The tenant in the path. Raises `AdminRefused`."""
    name = request.match_info["tenant"]
    for tenant in config.tenants:
        if tenant.name == name:
            return tenant
    raise AdminRefused(404, "no_such_tenant", f"no tenant is named {name[:128]!r}")


def right_of(request: web.Request) -> AdminRight:
    """The right of the route of a request. An unknown path is an operator's."""
    resource = request.match_info.route.resource
    return AdminRight() if resource is None else admin_right(request.method, resource.canonical)


def authority(principal: Principal) -> str:
    """The role of a principal on this listener. Scopes restrict a credential, and none permits administration."""
    if principal.scope is None:
        for role in ("operator", "tenant-admin"):
            if role in principal.roles:
                return role
    return "user"


def _scrapes(principal: Principal) -> bool:
    return principal.scope is not None and "metrics" in principal.scope.names.get("fronts", ())


def _is_local_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in ("", "localhost")
    return True


def _netloc(url: str) -> str | None:
    """The host and port of a URL; None for a text that is no URL."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


def _check_url(request: web.Request) -> None:
    """Require printable texts: a name or an id in the URL is looked up in the database, and Postgres refuses NUL."""
    param = next((name for name, text in request.query.items() if not (name + text).isprintable()), None)
    if param is not None or not request.path.isprintable():
        raise AdminRefused(400, "invalid_url", "the URL contains a character that is not printable", param=param)


def _check_json(request: web.Request) -> None:
    """Require JSON: another origin's page cannot send it without a preflight, which is always rejected."""
    if request.method in ("POST", "PUT", "PATCH") and request.content_type != "application/json":
        raise AdminRefused(
            415, "unsupported_media_type", "send `Content-Type: application/json`, with or without a body"
        )


def _error_response(request: web.Request, error: Exception) -> web.Response:
    headers: dict[str, str] = {}
    refused = _refusal(error)
    if refused is None:
        _log.error("admin: %s %s failed", request.method, request.path, exc_info=error)
        refused = AdminRefused(500, "internal_error", "the gateway failed on this request")
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"error": {"code": refused.code, "message": str(refused), "param": refused.param}}
    return web.json_response(body, status=refused.status, headers=headers)


def _refusal(error: Exception) -> AdminRefused | None:
    """The response for an error; None for a defect of the gateway."""
    if isinstance(error, AdminRefused):
        return error
    if isinstance(error, CrossSite):
        return AdminRefused(403, "cross_site", str(error))
    if isinstance(error, SessionOver):
        return AdminRefused(401, "session_over", f"Your session is over. {error}")
    if isinstance(error, CredentialError):
        return AdminRefused(401, error.code, error.message)
    if isinstance(error, CapacityError):  # the keys are not read yet
        return AdminRefused(503, error.code, error.message)
    if isinstance(error, NotDone):
        return AdminRefused(error.status, error.code, str(error))
    if isinstance(error, NotEditable):
        return AdminRefused(403, "not_editable", str(error))
    if isinstance(error, WrongGrant):
        return AdminRefused(400, "invalid_request", error.reason, param=error.field or None)
    if isinstance(error, NoSuchKey):
        return AdminRefused(404, "no_such_key", str(error))
    if isinstance(error, KeyEnded):
        return AdminRefused(409, "key_ended", str(error))
    if isinstance(error, TooManyKeys):
        return AdminRefused(409, "too_many_keys", str(error))
    if isinstance(error, NoSuchTeam):
        return AdminRefused(404, "no_such_team", str(error))
    if isinstance(error, TeamConflict):
        return AdminRefused(409, "team_conflict", str(error))
    if isinstance(error, StateError):
        return AdminRefused(503, "key_database_unavailable", str(error))
    if isinstance(error, web.HTTPException) and error.status >= 400:
        return AdminRefused(error.status, error.reason.lower().replace(" ", "_"), error.reason)
    return None
