"""`/console/api/live`: the pools of the gateway as an event stream, one frame a second.

All viewers read the same frames, and no frame is made without a viewer. A slow viewer skips frames.
"""

import asyncio
import logging
import time
from typing import Any

import msgspec
from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.guard import AdminRefused

_log = logging.getLogger(__name__)

MOST_VIEWERS = 16
MOST_ENDPOINTS = 500
"""Endpoints in a frame. Beyond them, healthy ones are left out first."""
FRAME_SECONDS = 1.0
STREAM_SECONDS = 60.0
"""A stream ends after this time. The page then opens another, so that a session that has ended sees no more."""
_FIELDS = ("endpoint", "address", "health", "probe_error", "breaker", "in_flight", "weight", "zone", "drained", "pid")


class LiveFront:
    """The handler, for operators."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._viewers = 0
        self._sampler: asyncio.Task[None] | None = None
        self._next: asyncio.Future[bytes] | None = None

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/console/api/live", self._stream)]

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        if self._sampler is not None:
            self._sampler.cancel()
        if self._next is not None:
            self._next.cancel()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self._viewers >= MOST_VIEWERS:
            raise AdminRefused(503, "too_many_viewers", f"{MOST_VIEWERS} pages show the live screen: close one")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        self._viewers += 1
        try:
            await response.prepare(request)
            async with asyncio.timeout(STREAM_SECONDS):
                while True:
                    await response.write(b"data: " + await self._frame() + b"\n\n")
        except (TimeoutError, ConnectionError):
            pass
        except asyncio.CancelledError:
            if self._next is None or not self._next.cancelled():
                raise
        finally:
            self._viewers -= 1
        return response

    async def _frame(self) -> bytes:
        """The next frame."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        if self._sampler is None or self._sampler.done():
            self._sampler = asyncio.create_task(self._sample())
        return await asyncio.shield(self._next)

    async def _sample(self) -> None:
        """Make frames while there are viewers."""
        while self._viewers:
            try:
                frame = msgspec.json.encode(frame_of(await self._backend.load(), time.time()))
            except Exception:
                _log.exception("console: no frame of the live screen")
            else:
                if self._next is not None and not self._next.done():
                    self._next.set_result(frame)
            await asyncio.sleep(FRAME_SECONDS)


def frame_of(state: dict[str, Any], now: float) -> dict[str, Any]:
    """What the live screen shows of a state, within its bounds."""
    shown: dict[str, list[dict[str, Any]]] = {}
    by_pool: dict[str, list[dict[str, Any]]] = {}
    endpoints = state.get("endpoints", [])
    for endpoint in endpoints:
        by_pool.setdefault(endpoint["pool"], []).append(endpoint)
    for endpoint in sorted(endpoints, key=_is_fine)[:MOST_ENDPOINTS]:
        shown.setdefault(endpoint["pool"], []).append(_described(endpoint))
    queues = {queue["pool"]: queue for queue in state.get("queues", ())}
    served = {totals["pool"]: totals for totals in state.get("served", ())}
    replicas = {scale["pool"]: scale for scale in state.get("replicas", ())}
    for name in replicas:
        by_pool.setdefault(name, [])  # a pool at zero has no endpoint
    pools = [
        {
            "pool": name,
            "endpoints": shown.get(name, []),
            "size": len(members),
            "in_flight": sum(member["in_flight"] for member in members),
            "queue": _queue(queues.get(name)),
            "served": served.get(name),
            "replicas": _replicas(replicas.get(name)),
        }
        for name, members in by_pool.items()
    ]
    workers = [{name: worker.get(name) for name in ("slot", "pid", "state")} for worker in state.get("workers", ())]
    accepting, in_flight = state.get("accepting", False), state.get("in_flight", 0)
    return {"at": now, "accepting": accepting, "in_flight": in_flight, "pools": pools, "workers": workers}


def _is_fine(endpoint: dict[str, Any]) -> bool:
    return endpoint["health"] != "unhealthy" and endpoint["breaker"] == "closed" and not endpoint.get("drained")


def _described(endpoint: dict[str, Any]) -> dict[str, Any]:
    return {name: endpoint[name] for name in _FIELDS if endpoint.get(name) is not None}


def _replicas(scale: dict[str, Any] | None) -> dict[str, Any] | None:
    names = ("replicas", "ready", "starting", "desired", "reason", "failure")
    return None if scale is None else {name: scale[name] for name in names}


def _queue(queue: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if queue is None else {name: queue[name] for name in ("waiting", "by_priority", "served_per_second")}
