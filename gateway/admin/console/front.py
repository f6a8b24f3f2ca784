"""The routes under `/console/`, and the files of the page, read once, with entity tags."""

import gzip
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.guard import AdminRefused
from gateway.admin.api.sessions import SessionAdmission
from gateway.admin.console.live import LiveFront
from gateway.admin.console.oidc import OidcFront
from gateway.admin.console.quickstart import QuickstartFront
from gateway.admin.console.sign_in import SignIn

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy of the console's page and its files."""
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The policy of all other responses, which are data."""
_ALL = {
    "Content-Security-Policy": DATA_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """Add each header that the response does not have, before it is sent."""
    for name, value in _ALL.items():
        response.headers.setdefault(name, value)


class Asset(NamedTuple):
    """A file and its headers."""

    body: bytes
    compressed: bytes
    content_type: str
    tag: str

    def respond(self, request: web.Request) -> web.Response:
        """The file, or 304 for a browser that has it."""
        headers = {"ETag": f'"{self.tag}"', "Cache-Control": "no-cache", "Content-Security-Policy": PAGE_POLICY}
        if any(tag.value in (self.tag, "*") for tag in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=self.compressed, content_type=self.content_type, charset="utf-8", headers=headers)
        return web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=headers)


def read_assets() -> dict[str, Asset]:
    """All files under `static/`, by their path. A request can name no other file."""
    return dict(_read(files("gateway.admin.console").joinpath("static"), ""))


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    assets: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            assets += _read(entry, f"{path}/")
        elif content_type := _TYPES.get(path.rpartition(".")[2]):
            body = entry.read_bytes()
            assets.append(
                (path, Asset(body, gzip.compress(body, mtime=0), content_type, hashlib.sha256(body).hexdigest()[:32]))
            )
    return assets


class ConsoleFront:
    """The page and its parts. The page has no data: the browser reads that from the admin API."""

    def __init__(self, backend: AdminBackend, admission: SessionAdmission) -> None:
        self._backend = backend
        self._sign_in = SignIn(backend, admission)
        self._endings = admission.endings
        self._live = LiveFront(backend)
        self._assets = read_assets()

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/", self._to_page),
            web.get("/console", self._to_page),
            web.get("/console/", self._page),
            web.get("/console/static/{path:.+}", self._asset),
            *self._sign_in.routes(),
            *OidcFront(self._backend, self._sign_in, self._endings).routes(),
            *self._live.routes(),
            *QuickstartFront(self._backend).routes(),
        ]

    async def close(self, app: web.Application) -> None:
        """End the event streams."""
        await self._live.close(app)

    async def _to_page(self, _: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/console/"})

    async def _page(self, request: web.Request) -> web.Response:
        return self._file("index.html", request)

    async def _asset(self, request: web.Request) -> web.Response:
        return self._file(request.match_info["path"], request)

    def _file(self, path: str, request: web.Request) -> web.Response:
        asset = self._assets.get(path)
        if asset is None or not self._backend.config.console.enabled:
            raise AdminRefused(404, "not_found", "the console is disabled, or it has no such file")
        return asset.respond(request)
