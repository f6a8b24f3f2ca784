"""`POST /admin/explain`: explains how a request is routed."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
from aiohttp import web

from config.cases import RequestConfig, described_request
from config.loader import ConfigError
from config.schema.config import Config
from config.schema.identity import GrantConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_object
from gateway.admin.api.guard import AdminRefused, recorded
from gateway.auth.keys import Principal, granted
from gateway.features.explain.why import Policy


class Explain:
    """The handler. A key that is not in the file is looked up in the database, in a thread of its own."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._thread = ThreadPoolExecutor(1, "explain")
        self._policy: tuple[Config, Policy] | None = None

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.post("/admin/explain", self._explain)]

    async def close(self, _: web.Application) -> None:
        """Stop the threads. Running look-ups end by themselves."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _explain(self, request: web.Request) -> web.Response:
        """Explain the request in the body, in the form of `request` in a test of a policy."""
        recorded(request)  # an explanation changes nothing
        body = await read_object(request, **dict.fromkeys(RequestConfig.model_fields, object))
        try:
            description = described_request(body)
        except ConfigError as error:
            first = error.problems[0]
            raise AdminRefused(400, "invalid_request", first.message, param=first.path or None) from None
        policy = self._in_force()
        holder = policy.holder(description.key) if description.key else None
        if description.key and holder is None:
            holder = await asyncio.get_running_loop().run_in_executor(self._thread, self._issued, description)
        explanation = policy.explain_description(description, time.time(), holder)
        return web.Response(body=msgspec.json.encode(explanation), content_type="application/json")

    def _in_force(self) -> Policy:
        config = self._backend.config
        if self._policy is None or self._policy[0] is not config:
            self._policy = config, Policy.of(config)
        return self._policy[1]

    def _issued(self, description: RequestConfig) -> Principal | None:
        """The holder of an issued key. Blocks."""
        for key in self._backend.store.read_all(description.tenant):
            if key.id == description.key:
                grant = {"role": key.role, "scopes": dict(key.scopes) or None, "labels": dict(key.labels)}
                return granted(key.tenant, key.id, GrantConfig.model_validate(grant))
        return None
