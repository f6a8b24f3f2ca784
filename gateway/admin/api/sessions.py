"""Sessions of the console, and the requests of browsers that they authorize.

A session is a sealed cookie: every gateway with the pepper can read it, and nobody can change it. A restart ends no
session. Each use of a session moves its idle time, about once in `RENEWALS` of that time. What ends a session before
its time is in the state database: `endings.py`. Over HTTPS the name of a cookie has the prefix `__Host-`: browsers
accept it only from this host over HTTPS. A listener on loopback without TLS has a plain name with its port, as cookies
do not separate ports.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import msgspec
from aiohttp import web

from config.schema.config import Config, OidcConfig
from config.schema.identity import USER
from config.schema.units import format_duration
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.endings import ENDINGS, SessionEndings, ending
from gateway.auth.keys import NO_LABELS, Principal
from gateway.auth.pepper import BrokenSeal, Seal
from gateway.auth.state import StateDatabase

_PLAIN = "headrace-console"
RENEWALS = 60
"""A cookie is sealed again after this part of the idle time: not for each of a page's requests."""
MOST_SEALED = 4096
"""The longest cookie that is opened: browsers store no longer one."""
TOKEN_HEADER = "x-console-token"  # noqa: S105 - the name of a header
_SAFE = ("GET", "HEAD", "OPTIONS")
_READABLE_FROM = (None, "same-origin", "none")
"""Values of `Sec-Fetch-Site` with which a session may read: the console's own, and an address that a person typed."""
_RENEWED = web.RequestKey("renewed", str)


def is_secure(config: Config) -> bool:
    """Whether browsers reach the console over HTTPS, or are required to."""
    https = (config.console.url or "").startswith("https:")
    return https or config.listen.admin_tls or not config.listen.admin.is_loopback


def session_cookie(request: web.Request, config: Config) -> str:
    """The name of the cookie with the session."""
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


def sealed_text(seal: Seal, value: msgspec.Struct) -> str:
    """A value for a cookie. `opened_text` reads it."""
    return base64.urlsafe_b64encode(seal.close(msgspec.json.encode(value))).rstrip(b"=").decode()


def opened_text(seal: Seal, text: str) -> bytes:
    """The JSON of the value in a cookie. Raises `BrokenSeal`."""
    if len(text) > MOST_SEALED:
        raise BrokenSeal
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BrokenSeal from None
    return seal.open(sealed)


class Session(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A browser that is signed in. Times are Unix seconds."""

    id: str
    """Names the session, and opens nothing."""
    holder: str
    """The id of the key, or that of the person: `Principal.key_id`."""
    label: str
    """The name of the person, or the id of the key."""
    began: float
    used: float
    token: str
    """The token that each change repeats in a header: another site cannot read it."""
    provider: str = ""
    """The fingerprint of the provider by which a person signed in; empty for a key, with which the session ends."""
    tenant: str = ""
    roles: tuple[str, ...] = ()
    """Of a person. Those of a key are its present ones."""


class SessionOver(Exception):
    """The browser has a session, and it is over. The text says why."""


class Sessions:
    """Opens sessions, and reads them from cookies. `lifetimes` returns the longest idle time and the longest time of a
    session in seconds."""

    def __init__(
        self, pepper: bytes, lifetimes: Callable[[], tuple[float, float]], clock: Callable[[], float] = time.time
    ) -> None:
        self._seal = Seal(pepper, "console sessions")
        self._lifetimes = lifetimes
        self._clock = clock

    def open(self, principal: Principal, label: str, provider: str = "") -> Session:
        """A new session, whose id is always a new one."""
        now = self._clock()
        session = Session(
            id=secrets.token_urlsafe(18),
            holder=principal.key_id,
            label=label,
            began=now,
            used=now,
            token=secrets.token_urlsafe(32),
            provider=provider,
        )
        if not provider:
            return session
        return msgspec.structs.replace(session, tenant=principal.tenant, roles=tuple(sorted(principal.roles)))

    def cookie(self, session: Session) -> str:
        """The text of the cookie."""
        return sealed_text(self._seal, session)

    def read(self, cookie: str) -> Session:
        """The session in a cookie. Raises `SessionOver`."""
        try:
            session = msgspec.json.decode(opened_text(self._seal, cookie), type=Session)
        except (BrokenSeal, msgspec.DecodeError):
            raise SessionOver("The gateway cannot read it: it has another secret than before.") from None
        now, (idle, longest) = self._clock(), self._lifetimes()
        if now - session.began >= longest:
            raise SessionOver(f"A session ends {format_duration(longest)} after the sign-in.")
        if now - session.used >= idle:
            raise SessionOver(f"It was not used for {format_duration(idle)}.")
        return session

    def renewed(self, session: Session) -> Session | None:
        """The session as used now; None while its cookie is recent."""
        now = self._clock()
        if now - session.used < self._lifetimes()[0] / RENEWALS:
            return None
        return msgspec.structs.replace(session, used=now)


class SignedIn(NamedTuple):
    """A session, and the present rights of its holder."""

    session: Session
    principal: Principal


class CrossSite(Exception):
    """Another site may have caused the request."""


class SessionAdmission:
    """The sessions of the admin listener, and the requests that they authorize."""

    def __init__(self, backend: AdminBackend, clock: Callable[[], float] = time.time) -> None:
        self._backend = backend
        self._clock = clock
        self.endings = SessionEndings(
            lambda: StateDatabase(backend.config.state.database, backend.store.pepper, ENDINGS), clock
        )

    @cached_property
    def sessions(self) -> Sessions:
        """The sessions: the pepper is known when the first browser comes."""
        return Sessions(self._backend.store.pepper, self._lifetimes, self._clock)

    def _lifetimes(self) -> tuple[float, float]:
        console = self._backend.config.console
        return console.idle, console.longest

    async def admit(self, request: web.Request) -> Principal | None:
        """The principal of a request with a session; None without one. Raises `CrossSite` and `SessionOver`."""
        signed_in = await self.signed_in(request)
        if signed_in is None:
            return None
        _check_request(request, signed_in.session)
        return signed_in.principal

    async def signed_in(self, request: web.Request) -> SignedIn | None:
        """The session of a request; None without one. Raises `SessionOver`."""
        cookie = request.cookies.get(session_cookie(request, self._backend.config))
        if not cookie or not self._backend.config.console.enabled:
            return None
        session = self.sessions.read(cookie)
        one, all_ = await self.endings.times(ending("session", session.id), ending("holder", session.holder))
        if one is not None or (all_ is not None and session.began <= all_):
            raise SessionOver("You signed out.")
        principal = self._holder(session)
        if principal is None:
            raise SessionOver("Its key is not valid any more, or the sign-in of your organisation has changed.")
        renewed = self.sessions.renewed(session)
        if renewed is not None:
            request[_RENEWED] = self.sessions.cookie(renewed)
        return SignedIn(session, principal)

    async def end(self, session: Session) -> None:
        """End one session, in every gateway."""
        idle, longest = self._lifetimes()  # a reload may permit longer sessions, but an ended one is never renewed
        await self.endings.add(ending("session", session.id), max(session.began + longest, self._clock() + idle))

    async def end_all(self, holder: str) -> None:
        """End all sessions that a person or a key has opened so far, in every gateway."""
        await self.endings.add(ending("holder", holder), self._clock() + max(self._lifetimes()))

    async def renew(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set the cookie of a session that was used, before a response is sent."""
        if _RENEWED not in request:
            return
        name = session_cookie(request, self._backend.config)
        if name not in response.cookies:
            set_cookie(response, name, request[_RENEWED])
            # aiohttp has encoded the response's other cookies before this signal.
            response.headers.add("Set-Cookie", response.cookies[name].OutputString())

    async def close(self, _: web.Application) -> None:
        """Close the database."""
        await self.endings.aclose()

    def _holder(self, session: Session) -> Principal | None:
        """The holder of a session; None if the key, the provider or the tenant is not the same any more."""
        config = self._backend.config
        if not session.provider:
            return self._backend.holder(session.holder, self._clock())
        if config.console.oidc is None or session.provider != fingerprint(config.console.oidc):
            return None
        if session.tenant not in ("", *(tenant.name for tenant in config.tenants)):
            return None
        return Principal(session.tenant, session.holder, USER | frozenset(session.roles), NO_LABELS)


def fingerprint(provider: OidcConfig) -> str:
    """Differs for two configurations of a provider, and is the same in all gateways."""
    secret = provider.client_secret.get_secret_value() if provider.client_secret else ""
    content = msgspec.json.encode([provider.model_dump(mode="json"), secret], order="sorted")
    return hashlib.sha256(content).hexdigest()[:32]


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
