"""`/console/api/quickstart`: the address, the models and a key for a first request."""

import time
from collections.abc import Iterator

from aiohttp import web

from adapters.errors import CapacityError, CredentialError
from config.schema.config import ClientModelConfig, Config
from config.schema.text import is_glob
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.guard import AdminRefused, visit
from gateway.auth.table import demo_tenant
from policies.globs import GlobSet

MOST_MODELS = 100
MOST_TENANTS = 1000


class QuickstartFront:
    """The handler. The demo key is for this machine only, and only its tenant's admin and operators receive it."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/console/api/quickstart", self._show)]

    async def _show(self, request: web.Request) -> web.Response:
        config, within = self._backend.config, visit(request).within
        (host, port), demo = self._backend.http_address, self._backend.demo
        names = [within] if within else [each.name for each in config.tenants]
        tenant, key = request.query.get("tenant", names[0]), None
        if tenant not in names:
            raise AdminRefused(404, "no_such_tenant", "no tenant has this name", param="tenant")
        if demo is not None and demo_tenant(config) in names and self._is_valid(demo.plaintext):
            tenant, key = demo_tenant(config), demo.plaintext
        return web.json_response(
            {
                "scheme": "https" if config.listen.tls is not None else "http",
                "host": host,
                "port": port,
                "tenant": tenant,
                "tenants": names[:MOST_TENANTS],
                "key": key,
                "models": list(_chat_models(config, tenant))[:MOST_MODELS],
            }
        )

    def _is_valid(self, key: str) -> bool:
        """Whether the gateway accepts the demo key: a reload may have removed it."""
        try:
            self._backend.authenticate(key, None, time.time())
        except (CredentialError, CapacityError):
            return False
        return True


def _chat_models(config: Config, tenant: str) -> Iterator[str]:
    """The names of the models that answer chats and that a tenant may use."""
    allowed = next(GlobSet(each.models) for each in config.tenants if each.name == tenant)
    serving = {pool.name for pool in config.pools if "text" in pool.serves}
    for model in config.models:
        if not is_glob(model.name) and model.name in allowed and serving & _pools(model):
            yield model.name


def _pools(model: ClientModelConfig) -> set[str]:
    return {pool for route in model.routes for pool in route.pools()}
