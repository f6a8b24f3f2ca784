"""The part of a Kubernetes API server that an InferencePool needs: the pools and the pods, each with its faults."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.support.kubernetes import ApiServer

V1, ALPHA = "inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2"


class SelectedResource(ApiServer):
    """A resource with label and field selectors. `absent`: the type of the resource is not installed."""

    def __init__(self) -> None:
        super().__init__()
        self.absent = False
        self.headers: dict[str, str] = {}

    def matches(self, item: dict[str, Any], request: web.Request) -> bool:
        metadata = item["metadata"]
        fields = [each.split("=") for each in request.query.get("fieldSelector", "").split(",") if each]
        labels = [each.split("=") for each in request.query.get("labelSelector", "").split(",") if each]
        named = all(metadata["name"] == value for _, value in fields)
        return named and all(metadata.get("labels", {}).get(key) == value for key, value in labels)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.absent:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        response = await super().answer(request)
        if self.status != 200 and isinstance(response, web.Response):
            response.headers.update(self.headers)
        return response


class Cluster:
    """The resources of the namespace `models`."""

    def __init__(self) -> None:
        self.url = ""
        self.pools, self.alpha, self.pods = SelectedResource(), SelectedResource(), SelectedResource()


def pool(name: str = "vllm", *, ports: tuple[int, ...] = (8000,), **labels: str) -> dict[str, Any]:
    """A pool of `v1`."""
    spec = {
        "selector": {"matchLabels": labels or {"app": "vllm"}},
        "targetPorts": [{"number": port} for port in ports],
        "endpointPickerRef": {"name": "headrace", "port": {"number": 9002}},
    }
    return {"metadata": {"name": name}, "spec": spec}


def pod(
    name: str, address: str, *, ready: bool = True, ending: bool = False, zone: str = "", **labels: str
) -> dict[str, Any]:
    """A pod, ready by default."""
    metadata: dict[str, Any] = {"name": name, "labels": labels or {"app": "vllm"}}
    if zone:
        metadata["labels"] = {**metadata["labels"], "topology.kubernetes.io/zone": zone}
    if ending:
        metadata["deletionTimestamp"] = "2026-11-24T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": metadata, "status": {"podIP": address, "conditions": conditions}}


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster that listens; the alpha version is not installed."""
    made, app = Cluster(), web.Application()
    made.alpha.absent = True
    app.router.add_get(f"/apis/{V1}/namespaces/models/inferencepools", made.pools.answer)
    app.router.add_get(f"/apis/{ALPHA}/namespaces/models/inferencepools", made.alpha.answer)
    app.router.add_get("/api/v1/namespaces/models/pods", made.pods.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        for resource in (made.pools, made.alpha, made.pods):
            resource.cut()
        await runner.cleanup()
