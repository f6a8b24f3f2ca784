"""Authorizes every request of the admin API, records changes in the audit log, and encodes errors.

A handler is for operators unless a decorator permits others (`for_anyone`, `for_tenant_admins`, `for_scrapers`), and
the
audit log records each change. So a new handler is protected and recorded by default.
"""

import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from aiohttp import web

from adapters.errors import CredentialError
from gateway.auth.audit import Act, Actor, Outcome
from gateway.auth.errors import KeyEnded, KeysError, NoSuchKey, NoSuchTeam, TeamConflict, WrongGrant
from gateway.auth.keys import Principal, bearer
from gateway.console.admission import CrossSite, SessionAdmission
from gateway.fronts.admin.backend import AdminBackend

_log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
H = TypeVar("H", bound=Callable[..., Any])
Access = Literal["anyone", "scrapers", "tenant-admins", "operators"]

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


def for_anyone(handler: H) -> H:
    """Mark a handler that needs no credential, for load balancers and kubelets."""
    return _mark(handler, "anyone")


def for_scrapers(handler: H) -> H:
    """Mark a handler for credentials with the front `metrics` in their scopes, and for operators."""
    return _mark(handler, "scrapers")


def for_tenant_admins(handler: H) -> H:
    """Mark a handler for operators and tenant-admins. `{tenant}` in the path must be the admin's own tenant."""
    return _mark(handler, "tenant-admins")


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


class AdminGuard:
    """Authorizes requests. Its `middleware` is the outermost."""

    def __init__(self, backend: AdminBackend, admission: SessionAdmission) -> None:
        self._backend = backend
        self._admission = admission
        self._required = backend.config.auth.admin.required
        self._loopback = backend.config.listen.admin.is_loopback

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request, call its handler, record it in the audit log, and encode errors in one shape."""
        try:
            self._check_browser(request)
            _check_url(request)
            self._admit(request)
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

    def _admit(self, request: web.Request) -> None:
        access: Access = getattr(request.match_info.handler, "access", "operators")
        if access == "anyone":
            return
        peer = request.remote or ""
        if not self._required:
            request[_VISIT] = Visit(Actor(_LOCAL, "operator", peer))
            return
        principal = self._authenticate(request)
        role = authority(principal)
        admitted = Visit(Actor(principal.key_id, role, peer), principal=principal)
        if role != "user":  # a user without rights cannot fill the audit log
            request[_VISIT] = admitted
        if role == "operator" or (access == "scrapers" and _scrapes(principal)):
            return
        tenant = request.match_info.get("tenant", principal.tenant)
        if access == "tenant-admins" and role == "tenant-admin" and tenant == principal.tenant:
            admitted.within = tenant
            return
        raise AdminRefused(403, "forbidden", "this credential may not do that")

    def _authenticate(self, request: web.Request) -> Principal:
        token = bearer(request.headers.get("Authorization"), request.headers.get("x-api-key"))
        if token is None and (signed_in := self._admission.admit(request)) is not None:
            return signed_in
        tls = request.get_extra_info("peercert") if token is None else None
        return self._backend.authenticate(token, tls or None, time.time())

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


def _mark(handler: H, access: Access) -> H:
    handler.access = access  # type: ignore[attr-defined]
    return handler


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
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    body = {"error": {"code": refused.code, "message": str(refused), "param": refused.param}}
    return web.json_response(body, status=refused.status, headers=headers)


def _refusal(error: Exception) -> AdminRefused | None:
    """The response for an error; None for a defect of the gateway."""
    if isinstance(error, AdminRefused):
        return error
    if isinstance(error, CrossSite):
        return AdminRefused(403, "cross_site", str(error))
    if isinstance(error, CredentialError):
        return AdminRefused(401, error.code, error.message)
    if isinstance(error, WrongGrant):
        return AdminRefused(400, "invalid_request", error.reason, param=error.field or None)
    if isinstance(error, NoSuchKey):
        return AdminRefused(404, "no_such_key", str(error))
    if isinstance(error, KeyEnded):
        return AdminRefused(409, "key_ended", str(error))
    if isinstance(error, NoSuchTeam):
        return AdminRefused(404, "no_such_team", str(error))
    if isinstance(error, TeamConflict):
        return AdminRefused(409, "team_conflict", str(error))
    if isinstance(error, KeysError):
        return AdminRefused(503, "key_database_unavailable", str(error))
    if isinstance(error, web.HTTPException) and error.status >= 400:
        return AdminRefused(error.status, error.reason.lower().replace(" ", "_"), error.reason)
    return None
