"""`POST /admin/explain`: how a request is routed. `/admin/pipelines`: graphs of pipelines, and counts of steps."""

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec
from aiohttp import web
from prometheus_client.core import Metric

from config.cases import RequestConfig, described_request
from config.loader import ConfigError
from config.schema.config import Config
from config.schema.identity import GrantConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_object
from gateway.admin.api.guard import AdminRefused, recorded
from gateway.auth.keys import Principal, granted
from gateway.features.explain.graphs import graphs_of
from gateway.features.explain.why import Policy

_FIELDS = {
    "headrace_step_seconds": {"count": "runs", "sum": "seconds"},
    "headrace_step_errors": {"total": "errors"},
    "headrace_escalations": {"total": "escalations"},
    "headrace_guard_blocks": {"total": "blocks"},
}
"""The field of each sample, by family and suffix."""
Counts = dict[tuple[str, str], dict[str, float]]


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


class PipelinesFront:
    """The handler. The counts are those of the metrics, of all workers."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/admin/pipelines", self._list)]

    async def _list(self, _: web.Request) -> web.Response:
        counts = counts_of((await self._backend.metrics()).collect())
        pipelines = list(graphs_of(self._backend.config))
        for pipeline in pipelines:
            for node in pipeline["nodes"]:
                node["counts"] = counts.get((pipeline["model"], node["id"]), {})
        return web.json_response({"pipelines": pipelines})


def counts_of(families: Iterable[Metric]) -> Counts:
    """The counts of the steps by pipeline and step."""
    counts: Counts = {}
    for family in families:
        fields = _FIELDS.get(family.name, {})
        for sample in family.samples if fields else ():
            if (field := fields.get(sample.name.rpartition("_")[2])) is not None:
                of_step = counts.setdefault((sample.labels["pipeline"], sample.labels["step"]), {})
                of_step[field] = of_step.get(field, 0.0) + sample.value
    return counts
