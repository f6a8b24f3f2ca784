"""An OpenID provider: its description, the exchange of a code, and the verification of an ID token.

OpenID Connect Core 1.0, RFC 7636 (PKCE), RFC 9207 (`iss` in the response). Redirects are never followed.
"""

import base64
import hashlib
import hmac
import math
import re
import time
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import jwt
import msgspec

from adapters.whole_body import whole_body
from adapters.wire import decoding
from config.schema.config import OidcConfig
from config.schema.text import private_or_local
from gateway.auth.jwks import MAX_BYTES, JwksError, fetch, parse
from gateway.auth.tokens import check_types

SECONDS = 10.0
DESCRIPTION_SECONDS = 600.0
LEEWAY_SECONDS = 60.0
_REQUIRED = ["iss", "aud", "exp", "iat", "sub"]


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
