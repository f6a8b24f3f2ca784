"""`/console/oidc/`: sends a browser to the OpenID provider, and opens a session when it returns.

The state, the nonce and the verifier of a sign-in are in a sealed cookie of the browser, so that it may return to any
gateway with the pepper. A state opens one session. The browser returns to a fixed address, with the reason of a failure
from a fixed list.

OpenID Connect Core 1.0, RFC 7636 (PKCE), RFC 9207 (`iss` in the response). Redirects are never followed.
"""

import base64
import hashlib
import hmac
import logging
import math
import re
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import jwt
import msgspec
from aiohttp import web

from adapters.whole_body import whole_body
from adapters.wire import decoding
from config.schema.config import OidcConfig
from config.schema.identity import USER
from config.schema.text import private_or_local
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.endings import SessionEndings, ending
from gateway.admin.api.guard import AdminRefused
from gateway.admin.api.sessions import (
    check_reader,
    cookie_name,
    is_secure,
    opened_text,
    remove_cookie,
    sealed_text,
    set_cookie,
)
from gateway.admin.console.sign_in import SignIn
from gateway.auth.jwks import MAX_BYTES, JwksError, fetch, parse
from gateway.auth.keys import NO_LABELS, Principal, holder_id
from gateway.auth.pepper import BrokenSeal, Seal
from gateway.auth.tokens import check_types, claim_of, texts_of

SECONDS = 10.0
DESCRIPTION_SECONDS = 600.0
LEEWAY_SECONDS = 60.0
_REQUIRED = ["iss", "aud", "exp", "iat", "sub"]
_log = logging.getLogger(__name__)
STARTED_SECONDS = 600.0
_COOKIE = "headrace-sign-in"
_LABEL_LENGTH = 100


class ProviderError(Exception):
    """The reason why a sign-in failed, for the log."""


class Description(msgspec.Struct, frozen=True):
    """The endpoints of a provider."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _Refusal(msgspec.Struct):
    error: str = ""


class Provider:
    """The provider of one configuration."""

    def __init__(self, config: OidcConfig) -> None:
        self.config = config
        self._description: Description | None = None
        self._fetched = -math.inf

    async def description(self) -> Description:
        """The provider's description, fetched again after a while. Raises `ProviderError`."""
        if self._description is None or time.monotonic() - self._fetched > DESCRIPTION_SECONDS:
            url = f"{self.config.issuer.rstrip('/')}/.well-known/openid-configuration"
            try:
                description = msgspec.json.decode(await fetch(url), type=Description)
                for endpoint in (description.authorization_endpoint, description.token_endpoint, description.jwks_uri):
                    _check_endpoint(endpoint)
            except (JwksError, *decoding.MALFORMED_JSON, ValueError) as error:
                raise ProviderError(f"{url}: {error}") from None
            if description.issuer != self.config.issuer:
                raise ProviderError(f"{url} describes the issuer {description.issuer[:200]!r}")
            self._description, self._fetched = description, time.monotonic()
        return self._description

    async def claims(self, code: str, verifier: str, nonce: str, redirect: str) -> dict[str, Any]:
        """The claims of the person whose browser brought a code. Raises `ProviderError`."""
        description = await self.description()
        reply = await self._exchange(description, code, verifier, redirect)
        token = reply.get("id_token") if isinstance(reply, dict) else None
        if not isinstance(token, str):
            raise ProviderError(f"{description.token_endpoint}: the response has no ID token")
        try:
            keys = parse(await fetch(description.jwks_uri), self.config.algorithms)
            header = jwt.get_unverified_header(token)
            key = keys.find(header.get("kid"), header.get("alg", ""))
            if key is None or "crit" in header:
                raise ProviderError("the ID token is not signed with a key and an algorithm of the provider")
            claims = self._verified(token, key)
        except (JwksError, jwt.PyJWTError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
            raise ProviderError(f"the ID token is not valid: {error}") from None
        signed = claims.get("nonce")
        if not isinstance(signed, str) or not hmac.compare_digest(signed.encode(errors="replace"), nonce.encode()):
            raise ProviderError("the ID token is for another sign-in: the nonce differs")
        return claims

    def _verified(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        client = self.config.client_id
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=self.config.algorithms,
            audience=client,
            issuer=self.config.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": _REQUIRED, "enforce_minimum_key_length": True},
        )
        check_types(claims)
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else client) != client:
            raise ProviderError("the ID token is for another client")
        return claims

    async def _exchange(self, description: Description, code: str, verifier: str, redirect: str) -> Any:
        config, headers = self.config, {"accept": "application/json"}
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
        if config.client_secret is None:
            form["client_id"] = config.client_id
        elif "client_secret_basic" in description.token_endpoint_auth_methods_supported:
            pair = f"{quote(config.client_id, safe='')}:{quote(config.client_secret.get_secret_value(), safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": config.client_id, "client_secret": config.client_secret.get_secret_value()}
        url = description.token_endpoint
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS)) as http,
                http.post(url, data=form, headers=headers, allow_redirects=False) as response,
            ):
                body = await whole_body(response, MAX_BYTES)
                if body is None:
                    raise ProviderError(f"{url} answered with more than {MAX_BYTES} bytes")
                if response.status != 200:
                    raise ProviderError(f"{url} answered with status {response.status}{_code_of(body)}")
                return msgspec.json.decode(body)
        except (aiohttp.ClientError, OSError, TimeoutError, *decoding.MALFORMED_JSON) as error:
            raise ProviderError(f"{url}: {error or type(error).__name__}") from None


def authorization_url(
    description: Description, config: OidcConfig, redirect: str, state: str, nonce: str, verifier: str
) -> str:
    """The address to which a browser goes to sign in."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": config.client_id,
        "redirect_uri": redirect,
        "scope": " ".join(config.scopes),
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    endpoint = description.authorization_endpoint
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def _code_of(body: bytes) -> str:
    """The code of a refusal (RFC 6749, 5.2). The rest of the body may repeat the request with its secrets."""
    try:
        code = msgspec.json.decode(body, type=_Refusal).error
    except decoding.MALFORMED_JSON:
        return ""
    return f": {code}" if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", code) else ""


def _check_endpoint(url: str) -> None:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url[:200]!r} is not an address of HTTPS")
    private_or_local(url)


class _Started(msgspec.Struct, frozen=True, array_like=True):
    """A sign-in in progress, until a Unix time."""

    state: str
    nonce: str
    verifier: str
    redirect: str
    until: float


class OidcFront:
    """The handlers."""

    def __init__(
        self, backend: AdminBackend, sign_in: SignIn, endings: SessionEndings, clock: Callable[[], float] = time.time
    ) -> None:
        self._backend = backend
        self._sign_in = sign_in
        self._endings = endings
        self._clock = clock
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
        url = authorization_url(description, provider.config, started.redirect, state, nonce, verifier)
        response = web.Response(status=303, headers={"Location": url})
        set_cookie(response, self._cookie(request), sealed_text(self._seal, started), int(STARTED_SECONDS))
        return response

    async def _return(self, request: web.Request) -> web.Response:
        provider = self._current()
        started = self._of_browser(request)
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
        if not await self._endings.take(ending("sign-in", started.state), started.until):
            return self._end(request, _failed("expired", "the sign-in has opened a session already"))
        response = web.Response(status=303, headers={"Location": "/console/"})
        try:
            await self._sign_in.begin(request, response, principal, _label(provider.config, claims), provider.config)
        except AdminRefused:
            return self._end(request, _failed("role", f"{principal.key_id} has no role"))
        return self._end(request, response)

    @cached_property
    def _seal(self) -> Seal:
        return Seal(self._backend.store.pepper, "console sign-ins")

    def _of_browser(self, request: web.Request) -> _Started | None:
        """The sign-in that a browser has begun."""
        try:
            sealed = opened_text(self._seal, request.cookies.get(self._cookie(request), ""))
            return msgspec.json.decode(sealed, type=_Started)
        except (BrokenSeal, msgspec.DecodeError):
            return None

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
