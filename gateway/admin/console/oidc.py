"""`/console/oidc/`: sends a browser to the OpenID provider, and opens a session when it returns.

The state, the nonce and the verifier of a sign-in are in memory, bounded, and belong to one browser by its cookie. The
browser returns to a fixed address, with the reason of a failure from a fixed list.
"""

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from aiohttp import web

from config.schema.config import OidcConfig
from config.schema.identity import USER
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.guard import AdminRefused
from gateway.admin.console.admission import check_reader
from gateway.admin.console.cookies import cookie_name, is_secure, remove_cookie, set_cookie
from gateway.admin.console.provider import Provider, ProviderError, authorization_url
from gateway.admin.console.sign_in import SignIn
from gateway.auth.keys import NO_LABELS, Principal, holder_id
from gateway.auth.tokens import claim_of, texts_of

_log = logging.getLogger(__name__)

MOST_STARTED = 256
"""Sign-ins in progress. Beyond them, the oldest is forgotten."""
STARTED_SECONDS = 600.0
_COOKIE = "headrace-sign-in"
_LABEL_LENGTH = 100


class _Started(NamedTuple):
    """A sign-in in progress."""

    state: str
    nonce: str
    verifier: str
    redirect: str
    until: float


class OidcFront:
    """The handlers."""

    def __init__(self, backend: AdminBackend, sign_in: SignIn, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._sign_in = sign_in
        self._clock = clock
        self._started: dict[bytes, _Started] = {}
        self._provider: Provider | None = None

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/console/oidc/start", self._start), web.get("/console/oidc/callback", self._return)]

    async def _start(self, request: web.Request) -> web.Response:
        check_reader(request)
        provider = self._current()
        try:
            description = await provider.description()
        except ProviderError as error:
            return _failed("provider", error)
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        started = _Started(state, nonce, verifier, self._redirect(request), self._clock() + STARTED_SECONDS)
        id = secrets.token_urlsafe(32)
        while len(self._started) >= MOST_STARTED:
            del self._started[next(iter(self._started))]
        self._started[_hash(id)] = started
        url = authorization_url(description, provider.config, started.redirect, state, nonce, verifier)
        response = web.Response(status=303, headers={"Location": url})
        set_cookie(response, self._cookie(request), id, int(STARTED_SECONDS))
        return response

    async def _return(self, request: web.Request) -> web.Response:
        provider = self._current()
        started = self._started.pop(_hash(request.cookies.get(self._cookie(request), "")), None)
        state = request.query.get("state", "")
        if (
            started is None
            or self._clock() >= started.until
            or not hmac.compare_digest(state.encode(errors="surrogatepass"), started.state.encode())
        ):
            return self._end(request, _failed("expired", "the sign-in was not started by this browser, or long ago"))
        try:
            code = await _code(request, provider)
            claims = await provider.claims(code, started.verifier, started.nonce, started.redirect)
            principal = self._principal(provider.config, claims)
        except ProviderError as error:
            return self._end(request, _failed("provider", error))
        response = web.Response(status=303, headers={"Location": "/console/"})
        try:
            self._sign_in.begin(request, response, principal, _label(provider.config, claims), provider.config)
        except AdminRefused:
            return self._end(request, _failed("role", f"{principal.key_id} has no role"))
        return self._end(request, response)

    def _current(self) -> Provider:
        """The provider of the configuration in force."""
        console = self._backend.config.console
        if console.oidc is None or not console.enabled:
            raise AdminRefused(404, "not_found", "the configuration has no console.oidc")
        if self._provider is None or self._provider.config != console.oidc:
            self._provider = Provider(console.oidc)
        return self._provider

    def _principal(self, config: OidcConfig, claims: dict[str, Any]) -> Principal:
        """The identity of a person. A tenant-admin needs a tenant of the configuration; an operator needs none."""
        try:
            roles = {config.roles[name] for name in texts_of(claims, config.claims.roles) or () if name in config.roles}
        except TypeError as error:
            raise ProviderError(f"claim {config.claims.roles}: {error}") from None
        tenant = claim_of(claims, config.claims.tenant) if config.claims.tenant else None
        if not isinstance(tenant, str) or tenant not in {each.name for each in self._backend.config.tenants}:
            roles.discard("tenant-admin")
            tenant = ""
        return Principal(tenant, holder_id(f"oidc:{config.client_id}", claims["sub"]), USER | roles, NO_LABELS)

    def _redirect(self, request: web.Request) -> str:
        config = self._backend.config
        base = config.console.url or f"{'https' if is_secure(config) else 'http'}://{request.host}"
        return f"{base.rstrip('/')}/console/oidc/callback"

    def _cookie(self, request: web.Request) -> str:
        return cookie_name(request, self._backend.config, _COOKIE)

    def _end(self, request: web.Request, response: web.Response) -> web.Response:
        remove_cookie(response, self._cookie(request))
        return response


async def _code(request: web.Request, provider: Provider) -> str:
    """The code that the provider sent with the browser. Raises `ProviderError`."""
    query, description = request.query, await provider.description()
    issuer = query.get("iss", "" if description.authorization_response_iss_parameter_supported else None)
    if issuer not in (None, description.issuer):
        raise ProviderError(f"the response is of another issuer: {issuer[:200]!r}")
    if "code" not in query:
        raise ProviderError(f"the provider reports {query.get('error', 'no code')[:200]!r}")
    return query["code"]


def _label(config: OidcConfig, claims: dict[str, Any]) -> str:
    name = claim_of(claims, config.claims.label)
    text = name if isinstance(name, str) and name else claims["sub"]
    return "".join(char if char.isprintable() else "?" for char in text[:_LABEL_LENGTH])


def _failed(reason: str, error: object) -> web.Response:
    _log.warning("console: a sign-in failed: %s", error)
    return web.Response(status=303, headers={"Location": f"/console/#failed={reason}"})


def _hash(id: str) -> bytes:
    return hashlib.sha256(id.encode(errors="surrogatepass")).digest()
