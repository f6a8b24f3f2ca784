"""A stand-in on a free port of loopback, in the test's own loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """Its URL. A client that leaves cancels the handler, as with servers that notice."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        host, port = site._server.sockets[0].getsockname()[:2]  # type: ignore[attr-defined]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
