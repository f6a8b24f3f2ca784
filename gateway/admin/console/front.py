"""The routes under `/console/`."""

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.guard import AdminRefused
from gateway.admin.console.admission import SessionAdmission
from gateway.admin.console.assets import read_assets
from gateway.admin.console.live import LiveFront
from gateway.admin.console.oidc import OidcFront
from gateway.admin.console.quickstart import QuickstartFront
from gateway.admin.console.sign_in import SignIn


class ConsoleFront:
    """The page and its parts. The page has no data: the browser reads that from the admin API."""

    def __init__(self, backend: AdminBackend, admission: SessionAdmission) -> None:
        self._backend = backend
        self._sign_in = SignIn(backend, admission)
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
            *OidcFront(self._backend, self._sign_in).routes(),
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
