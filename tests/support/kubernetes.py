"""The part of a Kubernetes API server that EndpointSlices need, whose faults a test decides."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Slice = dict[str, Any]


def endpoint(address: str, *, uid: str = "", zone: str | None = None, **conditions: bool) -> dict[str, Any]:
    """An endpoint of a slice, ready by default."""
    made: dict[str, Any] = {"addresses": [address], "conditions": {"ready": True, **conditions}}
    made |= {"targetRef": {"kind": "Pod", "uid": uid}} if uid else {}
    return made | ({"zone": zone} if zone else {})


def slice_of(name: str, *endpoints: dict[str, Any], port: int = 8000, family: str = "IPv4", **ports: int) -> Slice:
    """An EndpointSlice; its ports are `http`, and those named."""
    listed = [{"name": "http", "port": port, "protocol": "TCP"}, *({"name": n, "port": p} for n, p in ports.items())]
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "vllm"}},
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": listed,
    }


class ApiServer:
    """Lists and watches. `put` and `delete` notify the watchers unless `silently`."""

    def __init__(self) -> None:
        self.url = ""
        self.slices: dict[str, Slice] = {}
        self.lists = self.watches = 0
        self.versions: list[str] = []
        """The resource version at which each watch began."""
        self.tokens: list[str | None] = []
        self.selectors: list[str | None] = []
        self.status = 200
        self.oldest = 0
        """A watch from a version before it is answered with 410."""
        self.page = 500
        self._version = 10
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._changed = asyncio.Condition()
        self._watching: set[web.StreamResponse] = set()

    async def put(self, made: Slice, *, silently: bool = False) -> None:
        exists = made["metadata"]["name"] in self.slices
        await self._happen("MODIFIED" if exists else "ADDED", made, silently)
        self.slices[made["metadata"]["name"]] = made

    async def delete(self, name: str, *, silently: bool = False) -> None:
        await self._happen("DELETED", self.slices.pop(name), silently)

    async def bookmark(self) -> None:
        """Send a bookmark: a version without a change."""
        await self._happen("BOOKMARK", {"metadata": {}}, False)

    async def gone(self) -> None:
        """End the watches under way as etcd's compaction does."""
        await self._happen("ERROR", {"code": 410, "message": "too old resource version"}, False)
        self.oldest = self._version

    def cut(self) -> None:
        """Break the connections of all that watch."""
        for response in self._watching:
            transport = response._req.transport if response._req is not None else None
            if transport is not None:
                transport.abort()

    async def _happen(self, kind: str, item: dict[str, Any], silently: bool) -> None:
        self._version += 1
        item.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        if not silently:
            async with self._changed:
                self._events.append((self._version, {"type": kind, "object": json.loads(json.dumps(item))}))
                self._changed.notify_all()

    def matches(self, item: Slice, request: web.Request) -> bool:
        """Whether the request selects an item."""
        return True

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("authorization"))
        self.selectors.append(request.query.get("labelSelector"))
        if self.status != 200:
            return web.json_response({"kind": "Status", "code": self.status}, status=self.status)
        return await self._watch(request) if request.query.get("watch") else self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        self.lists += 1
        start = int(request.query.get("continue", 0))
        items = [item for item in self.slices.values() if self.matches(item, request)]
        metadata = {"resourceVersion": str(self._version)}
        if start + self.page < len(items):
            metadata["continue"] = str(start + self.page)
        return web.json_response({"metadata": metadata, "items": items[start : start + self.page]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        since = int(request.query["resourceVersion"])
        self.versions.append(request.query["resourceVersion"])
        if since < self.oldest:
            return web.json_response({"kind": "Status", "code": 410}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        self._watching.add(response)
        try:
            async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                while True:
                    news = [(version, event) for version, event in self._events if version > since]
                    if not news:
                        async with self._changed:
                            await self._changed.wait()
                        continue
                    since = news[-1][0]
                    for _, event in news:
                        if "name" in event["object"].get("metadata", {}) and not self.matches(event["object"], request):
                            event = {**event, "type": "DELETED"}  # as of an item that has left the selection
                        await response.write(json.dumps(event).encode() + b"\n")
                        if event["type"] == "ERROR":
                            return response
        except TimeoutError:
            return response
        finally:
            self._watching.discard(response)


@asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    """One that listens."""
    made = ApiServer()
    app = web.Application()
    app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/models/endpointslices", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()
