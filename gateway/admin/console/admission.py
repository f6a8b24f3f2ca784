"""Authorizes requests of browsers that are signed in, and rejects those that another site causes."""

import hmac
import time

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.console.cookies import session_cookie
from gateway.admin.console.sessions import Session, Sessions
from gateway.auth.keys import Principal

TOKEN_HEADER = "x-console-token"  # noqa: S105 - the name of a header
_SAFE = ("GET", "HEAD", "OPTIONS")
_READABLE_FROM = (None, "same-origin", "none")
"""Values of `Sec-Fetch-Site` with which a session may read: the console's own, and an address that a person typed."""


class CrossSite(Exception):
    """Another site may have caused the request."""


class SessionAdmission:
    """The sessions of the admin listener, and the requests that they authorize."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self.sessions = Sessions(lambda: (backend.config.console.idle, backend.config.console.longest))

    def admit(self, request: web.Request) -> Principal | None:
        """The principal of a request with a session; None without one. Raises `CrossSite`."""
        session = self.session_of(request)
        if session is None:
            return None
        _check_request(request, session)
        return session.principal

    def session_of(self, request: web.Request) -> Session | None:
        """The session of a request, if it has one whose credential is still valid."""
        id = request.cookies.get(session_cookie(request, self._backend.config))
        session = self.sessions.get(id) if id else None
        if id is None or session is None:
            return None
        if not self._is_valid(session):
            self.sessions.end(id)
            return None
        return session

    def _is_valid(self, session: Session) -> bool:
        """Whether the key is neither revoked nor expired, or the provider and the tenant of a person are the same."""
        config = self._backend.config
        if not config.console.enabled:
            return False
        if session.provider is None:
            return self._backend.holds(session.principal, time.time())
        return session.provider == config.console.oidc and session.principal.tenant in (
            "",
            *(tenant.name for tenant in config.tenants),
        )


def check_origin(request: web.Request) -> None:
    """Reject a change that a page of another site requests. Raises `CrossSite`."""
    if request.headers.get("sec-fetch-site") != "same-origin":
        raise CrossSite(
            "only the console's own page may send this request, over https:// or to localhost "
            "(`Sec-Fetch-Site: same-origin`)"
        )


def check_reader(request: web.Request) -> None:
    """Reject a request that a page of another site causes. Raises `CrossSite`."""
    if request.headers.get("sec-fetch-site") not in _READABLE_FROM:
        raise CrossSite("a page of another site may not read with the session of the console")


def _check_request(request: web.Request, session: Session) -> None:
    if request.method in _SAFE:
        check_reader(request)
        return
    check_origin(request)
    if not hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), session.token.encode()):
        raise CrossSite(f"the header `{TOKEN_HEADER}` is not the token of this session: load the page again")
