"""Sessions of the console, and the requests of browsers that they authorize.

They are in the memory of the process that serves the admin listener: a restart of it ends all sessions. Only hashes of
the ids are stored: the id itself is the browser's. Over HTTPS the name of a cookie has the prefix `__Host-`: browsers
accept it only from this host over HTTPS. A listener on loopback without TLS has a plain name with its port, as cookies
do not separate ports.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from config.schema.config import Config, OidcConfig
from gateway.admin.api.backend import AdminBackend
from gateway.auth.keys import Principal

_PLAIN = "headrace-console"
MOST = 1024
"""Sessions at the same time. Beyond them, the session that was used longest ago ends."""
MOST_OF_ONE = 16
"""Sessions of one principal at the same time."""
TOKEN_HEADER = "x-console-token"  # noqa: S105 - the name of a header
_SAFE = ("GET", "HEAD", "OPTIONS")
_READABLE_FROM = (None, "same-origin", "none")
"""Values of `Sec-Fetch-Site` with which a session may read: the console's own, and an address that a person typed."""


def is_secure(config: Config) -> bool:
    """Whether browsers reach the console over HTTPS, or are required to."""
    https = (config.console.url or "").startswith("https:")
    return https or config.listen.admin_tls or not config.listen.admin.is_loopback


def session_cookie(request: web.Request, config: Config) -> str:
    """The name of the cookie with the session's id."""
    return cookie_name(request, config, _PLAIN)


def cookie_name(request: web.Request, config: Config, plain: str) -> str:
    """The name of a cookie on this listener."""
    if is_secure(config):
        return f"__Host-{plain}"
    return f"{plain}-{request.url.port or 80}"


def set_cookie(response: web.StreamResponse, name: str, value: str, max_age: int | None = None) -> None:
    """Set a cookie that only this listener reads. Without `max_age` it ends with the browser."""
    secure = name.startswith("__Host-")
    response.set_cookie(name, value, path="/", httponly=True, samesite="Lax", secure=secure, max_age=max_age)


def remove_cookie(response: web.StreamResponse, name: str) -> None:
    """Remove a cookie."""
    response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")


@dataclass(slots=True)
class Session:
    """A browser that is signed in. Times are monotonic seconds."""

    principal: Principal
    label: str
    """The name of the person, or the id of the key."""
    provider: OidcConfig | None
    """The provider by which a person signed in; None for a key, with which the session ends."""
    began: float
    used: float
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The token that each change repeats in a header: another site cannot read it."""


class Sessions:
    """All sessions. `lifetimes` returns the longest idle time and the longest time of a session in seconds."""

    def __init__(
        self, lifetimes: Callable[[], tuple[float, float]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lifetimes = lifetimes
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}  # the one that was used longest ago comes first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, principal: Principal, label: str, provider: OidcConfig | None = None) -> tuple[str, Session]:
        """Open a session. Returns its id, which is always a new one, and the session."""
        self._end_expired()
        own = [key for key, each in self._sessions.items() if each.principal.key_id == principal.key_id]
        for key in own[: max(0, len(own) + 1 - MOST_OF_ONE)]:
            del self._sessions[key]
        if len(self._sessions) >= MOST:
            del self._sessions[next(iter(self._sessions))]
        id, now = secrets.token_urlsafe(32), self._clock()
        session = self._sessions[_hash(id)] = Session(principal, label, provider, now, now)
        return id, session

    def get(self, id: str) -> Session | None:
        """The session of an id, which counts as used; None if there is none, or if it has expired."""
        key = _hash(id)
        session = self._sessions.pop(key, None)
        if session is None or self._has_expired(session):
            return None
        session.used = self._clock()
        self._sessions[key] = session
        return session

    def end(self, id: str) -> Session | None:
        """End a session. Returns it, if there was one."""
        return self._sessions.pop(_hash(id), None)

    def _has_expired(self, session: Session) -> bool:
        now, (idle, longest) = self._clock(), self._lifetimes()
        return now - session.used >= idle or now - session.began >= longest

    def _end_expired(self) -> None:
        for key in [key for key, each in self._sessions.items() if self._has_expired(each)]:
            del self._sessions[key]


def _hash(id: str) -> bytes:
    return hashlib.sha256(id.encode(errors="surrogatepass")).digest()


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
