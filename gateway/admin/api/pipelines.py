"""`/admin/pipelines`: the graph of each pipeline, with the counts of its steps since the start of the gateway."""

from collections.abc import Iterable

from aiohttp import web
from prometheus_client.core import Metric

from gateway.admin.api.backend import AdminBackend
from gateway.features.explain.graphs import graphs_of

_FIELDS = {
    "headrace_step_seconds": {"count": "runs", "sum": "seconds"},
    "headrace_step_errors": {"total": "errors"},
    "headrace_escalations": {"total": "escalations"},
    "headrace_guard_blocks": {"total": "blocks"},
}
"""The field of each sample, by family and suffix."""
Counts = dict[tuple[str, str], dict[str, float]]


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
