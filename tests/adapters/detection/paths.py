"""A server that answers some paths, as a system does by which it is recognised."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from adapters.http1.message import Request, Response
from adapters.http1.server import Server

Paths = Mapping[str, Any]
"""The answer by `/path` (GET) or `POST /path`: a body or (status, body). Text is sent as is, the rest as JSON."""


@asynccontextmanager
async def answering(paths: Paths, requested: list[str] | None = None) -> AsyncIterator[str]:
    """The URL of a server that answers all other paths with 404 and appends each path to `requested`."""

    async def handler(request: Request) -> Response:
        await request.read()
        name = request.path if request.method == "GET" else f"{request.method} {request.path}"
        if requested is not None:
            requested.append(name)
        answer = paths.get(name, (404, '{"detail":"Not Found"}'))
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        if isinstance(body, Response):
            return body
        encoded = body if isinstance(body, str) else json.dumps(body)
        return Response(status, [("content-type", "application/json")], encoded.encode())

    server = Server(handler)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await server.aclose()
