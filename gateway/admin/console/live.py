"""`/console/api/live`: what the gateway does as an event stream, one frame a second; and the minutes of the last hours.

All viewers of a replica read the same frames, and no frame is made without a viewer. A slow viewer skips frames.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping

import msgspec
from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import number_of
from gateway.admin.api.guard import AdminRefused
from gateway.features.live.board import HISTORY_HOURS
from gateway.features.live.frames import frame_of
from gateway.telemetry.figures import DIMENSIONS

_log = logging.getLogger(__name__)

MOST_VIEWERS = 16
FRAME_SECONDS = 1.0
STREAM_SECONDS = 60.0
"""A stream ends after this time. The page then opens another, so that a session that has ended sees no more."""
Frames = Mapping[str, bytes]
"""The frames of one second by replica; that of all replicas has the name `ALL`."""
ALL = ""


class LiveFront:
    """The handlers, for operators."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._viewers: Counter[str] = Counter()
        """By the replica that they watch."""
        self._sampler: asyncio.Task[None] | None = None
        self._next: asyncio.Future[Frames] | None = None

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/console/api/live", self._stream),
            web.get("/console/api/live/history", self._history),
        ]

    async def close(self, _: web.Application) -> None:
        """End all streams."""
        if self._sampler is not None:
            self._sampler.cancel()
        if self._next is not None:
            self._next.cancel()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self._viewers.total() >= MOST_VIEWERS:
            raise AdminRefused(503, "too_many_viewers", f"{MOST_VIEWERS} pages show the live screen: close one")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        replica = request.query.get("replica", ALL)
        self._viewers[replica] += 1
        try:
            await response.prepare(request)
            async with asyncio.timeout(STREAM_SECONDS):
                while True:
                    frames = await self._frames()
                    if (frame := frames.get(replica)) is None:
                        continue  # this viewer came while the frames were made
                    await response.write(b"data: " + frame + b"\n\n")
        except (TimeoutError, ConnectionError):
            pass
        except asyncio.CancelledError:
            if self._next is None or not self._next.cancelled():
                raise
        finally:
            self._viewers[replica] -= 1
            self._viewers += Counter()  # only positive counts stay
        return response

    async def _frames(self) -> Frames:
        """The next frames."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        if self._sampler is None or self._sampler.done():
            self._sampler = asyncio.create_task(self._sample())
        return await asyncio.shield(self._next)

    async def _sample(self) -> None:
        """Make frames while there are viewers."""
        while self._viewers:
            try:
                views, now = await self._backend.live.views(), time.time()
                frames = {each: msgspec.json.encode(frame_of(views, each or None, now)) for each in self._viewers}
            except Exception:
                _log.exception("console: no frame of the live screen")
            else:
                if self._next is not None and not self._next.done():
                    self._next.set_result(frames)
            await asyncio.sleep(FRAME_SECONDS)

    async def _history(self, request: web.Request) -> web.Response:
        """The last hours by minutes, of all requests or by models, tenants or pools; by default, of six hours."""
        hours = number_of(request, "hours") or HISTORY_HOURS
        if hours > HISTORY_HOURS:
            raise AdminRefused(400, "bad_query", f"`hours` must be at most {HISTORY_HOURS}", param="hours")
        by = request.query.get("by") or None
        if by is not None and by not in DIMENSIONS:
            raise AdminRefused(400, "bad_query", f"`by` must be {', '.join(DIMENSIONS)} or absent", param="by")
        replica = request.query.get("replica") or None
        history = await self._backend.live.history(hours, by, replica)
        return web.json_response(history, dumps=lambda value: msgspec.json.encode(value).decode())
