"""`/admin/guards`: the guards of the file, who meets them, and what they have found since the start."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from aiohttp import web
from prometheus_client.registry import Collector

from config.schema.config import Config
from config.schema.guards import JudgingGuardConfig, NamedGuardConfig
from gateway.admin.api.backend import AdminBackend

_VERDICTS, _SECONDS = "headrace_guard_verdicts", "headrace_guard_verdict_seconds"


class GuardsFront:
    """The handler. For operators."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/admin/guards", self._list)]

    async def _list(self, _: web.Request) -> web.Response:
        config = self._backend.config
        verdicts, times = counted(await self._backend.metrics()) if config.guards else ({}, {})
        guards = [
            {**_described(config, guard), "verdicts": verdicts.get(guard.name, []), **times.get(guard.name, {})}
            for guard in config.guards
        ]
        return web.json_response({"guards": guards})


def counted(metrics: Collector) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, Any]]]:
    """By guard: its verdicts with the numbers of texts, and of one that judges `judged` and `mean_seconds`."""
    verdicts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    sums: defaultdict[str, dict[str, float]] = defaultdict(lambda: {"count": 0.0, "sum": 0.0})
    for family in metrics.collect():
        for sample in family.samples if family.name in (_VERDICTS, _SECONDS) else ():
            labels = dict(sample.labels)
            name, part = labels.pop("guard"), sample.name.rpartition("_")[2]
            if family.name == _VERDICTS and part == "total":
                verdicts[name].append({**labels, "texts": int(sample.value)})
            elif family.name == _SECONDS and part in ("count", "sum"):
                sums[name][part] += sample.value
    times = {
        name: {"judged": int(each["count"]), "mean_seconds": each["sum"] / each["count"]}
        for name, each in sums.items()
        if each["count"]
    }
    return verdicts, times


def _described(config: Config, guard: NamedGuardConfig) -> dict[str, Any]:
    return {
        "name": guard.name,
        "kind": dict(guard)["kind"],
        "action": guard.action,
        "mode": guard.mode,
        "on": list(guard.on),
        **({"on_error": guard.on_error} if isinstance(guard, JudgingGuardConfig) else {}),
        "applied": list(_places(config, guard.name)),
        "exempt": [*(f"role {role}" for role in guard.exempt.roles), *(f"key {key}" for key in guard.exempt.keys)],
    }


def _places(config: Config, name: str) -> Iterator[str]:
    """Where a guard is applied: `tenant NAME`, `model NAME` and `route N of NAME`."""
    for tenant in config.tenants:
        if name in tenant.guards:
            yield f"tenant {tenant.name}"
    for model in config.models:
        if name in model.guards:
            yield f"model {model.name}"
        for number, route in enumerate(model.routes, 1):
            if name in route.guards:
                yield f"route {number} of {model.name}"
