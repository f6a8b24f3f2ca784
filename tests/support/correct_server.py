"""A server that passes the suite of conformance, to be changed by a test."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.support.upstreams import stream, whole

JSON = [("content-type", "application/json")]


class Model:
    """A correct server of OpenAI's protocol, except for the changes of a test."""

    def __init__(self) -> None:
        self.healthy = True
        self.refuses = True
        self.text = "one two three"
        self.running = 0.0

    async def __call__(self, http: Request) -> Response:
        if http.path == "/health":
            return Response(200 if self.healthy else 503)
        if http.method == "GET" and http.path not in ("/v1/models", "/metrics"):
            return Response(404, JSON, b"{}")
        if http.path == "/v1/models":
            return Response(200, JSON, b'{"data":[{"id":"m","owned_by":"vllm"}]}')
        if http.path == "/metrics":
            return Response(200, [], b"vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n")
        body = json.loads(await http.read())
        if self.refuses and body["model"] != "m":
            return Response(404, JSON, b'{"error":{"message":"no such model"}}')
        if self.refuses and not isinstance(body.get("temperature", 1), int):
            return Response(400, JSON, b'{"error":{"message":"temperature is a number"}}')
        return stream(self.text) if body.get("stream") else whole(self.text)


@asynccontextmanager
async def listening(model: Model) -> AsyncIterator[str]:
    """Its URL."""
    server = Server(model)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await server.aclose()
