"""An OpenID provider whose tokens a test decides, and a browser that signs in there."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
from aiohttp import web

from config.schema.config import OidcConfig
from tests.support.issuers import SigningKey, jwk_set

if TYPE_CHECKING:
    from tests.gateway.admin.conftest import AdminDoor, OpenDoor

ROLES = {"llm-admins": "operator", "acme-leads": "tenant-admin"}
"""Groups of an OpenID provider, and their roles."""


class LyingProvider:
    """A provider whose token's claims, headers and responses a test changes."""

    def __init__(self) -> None:
        self.key = SigningKey("RS256")
        self.other = SigningKey("RS256", "RS256-key")
        self.url = ""
        self.described: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any]], str] = lambda claims: self.key.token(**claims)
        self.exchange: dict[str, Any] | None = None
        self.status = 200
        self.forms: list[dict[str, str]] = []
        self.nonce = ""
        self.raw: dict[str, bytes] = {}
        """Bodies by path, instead of right ones."""

    async def answer(self, request: web.Request) -> web.Response:
        handlers = {"/token": self.token, "/keys": self.keys}
        made = await handlers.get(request.path, self.describe)(request)
        raw = self.raw.get(request.path.rpartition("/")[2])
        return made if raw is None else web.Response(body=raw, status=made.status)

    async def describe(self, _: web.Request) -> web.Response:
        base = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return web.json_response({**base, **self.described})

    async def keys(self, _: web.Request) -> web.Response:
        return web.Response(body=jwk_set(self.key))

    async def token(self, request: web.Request) -> web.Response:
        self.forms.append({name: str(value) for name, value in (await request.post()).items()})
        right = {"iss": self.url, "aud": "console", "sub": "ana", "nonce": self.nonce, "iat": time.time()}
        claims = {**right, "groups": ["llm-admins"], "tenant": None, **self.claims}
        body = {"id_token": self.sign(claims)} if self.exchange is None else self.exchange
        return web.json_response(body, status=self.status)


@asynccontextmanager
async def lying_provider(door: "AdminDoor", **changes: Any) -> AsyncIterator[LyingProvider]:
    """One that the door's console trusts."""
    provider = LyingProvider()
    app = web.Application()
    app.add_routes(
        [
            web.get("/.well-known/openid-configuration", provider.answer),
            web.get("/keys", provider.answer),
            web.post("/token", provider.answer),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    oidc = OidcConfig.model_validate({"issuer": provider.url, "client_id": "console", "roles": ROLES, **changes})
    config = door.backend.config
    door.backend.config = config.model_copy(update={"console": config.console.model_copy(update={"oidc": oidc})})
    try:
        yield provider
    finally:
        await runner.cleanup()


class Redirected:
    """A browser in the middle of a sign-in, which follows no redirect."""

    def __init__(self, door: "AdminDoor", http: aiohttp.ClientSession) -> None:
        self.door = door
        self._http = http
        self.query: dict[str, str] = {}

    async def start(self) -> int:
        async with self._http.get(f"{self.door.url}/console/oidc/start", allow_redirects=False) as response:
            query = parse_qs(urlsplit(response.headers.get("location", "")).query)
            self.query = {name: values[0] for name, values in query.items()}
            return response.status

    async def come_back(self, **query: str) -> str:
        """Where the callback sends the browser."""
        path = f"{self.door.url}/console/oidc/callback"
        sent = {"state": self.query.get("state", ""), "code": "c", **query}
        async with self._http.get(path, params=sent, allow_redirects=False) as response:
            assert response.status == 303, await response.text()
            return response.headers["location"]

    async def session(self) -> dict[str, Any]:
        async with self._http.get(f"{self.door.url}/console/api/session") as response:
            return dict(await response.json())


@asynccontextmanager
async def signing_in(open_door: "OpenDoor", **changes: Any) -> AsyncIterator[tuple[Redirected, LyingProvider]]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        open_door(required=True) as door,
        lying_provider(door, **changes) as provider,
        aiohttp.ClientSession(cookie_jar=jar) as http,
    ):
        browser = Redirected(door, http)
        assert await browser.start() == 303
        provider.nonce = browser.query["nonce"]
        yield browser, provider
