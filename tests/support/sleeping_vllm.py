"""A stand-in for a vLLM server that can sleep (`VLLM_SERVER_DEV_MODE=1`), whose faults a test decides."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.support.upstreams import whole

JSON = [("content-type", "application/json")]


class SleepingVllm:
    """As vLLM: requests to a sleeping server wait for its wake-up, and `mode=wait` lets requests in flight end."""

    def __init__(self, *, asleep: bool = False) -> None:
        self.awake = asyncio.Event()
        if not asleep:
            self.awake.set()
        self.weights = True
        """Whether the weights are loaded: level 2 drops them, and `reload_weights` reads them."""
        self.running = self.ended = 0
        self.orders: list[str] = []
        self.surprised = 0
        """Requests that arrived while it slept."""
        self.spoilt = 0
        """Requests that were computed without weights."""
        self.seconds = 0.0
        """Time of each request."""
        self.refuses = 0
        """Status of every order, if it refuses them."""
        self.url = ""

    async def __call__(self, http: Request) -> Response:
        match http.path:
            case "/health":
                return Response(200)
            case "/is_sleeping":
                return _json({"is_sleeping": not self.awake.is_set()})
            case "/metrics":
                return Response(200, [("content-type", "text/plain")], self._metrics())
            case "/v1/models":
                return _json({"object": "list", "data": [{"id": "chat", "object": "model", "owned_by": "vllm"}]})
            case "/sleep" | "/wake_up" | "/collective_rpc":
                return await self._order(http)
        await http.read()
        return await self._answer()

    async def _order(self, http: Request) -> Response:
        body = await http.read()
        self.orders.append(http.path + (f"?{http.query}" if http.query else ""))
        if self.refuses:
            return Response(self.refuses)
        query = parse_qs(http.query)
        if http.path == "/sleep":
            self.awake.clear()
            while self.running:
                await asyncio.sleep(0.01)
            self.weights = query["level"] == ["1"]
        elif http.path == "/collective_rpc":
            assert json.loads(body) == {"method": "reload_weights"}
            self.weights = True
        elif "tags" not in query:
            self.awake.set()
        return Response(200, JSON, b"{}")

    async def _answer(self) -> Response:
        self.surprised += not self.awake.is_set()
        await self.awake.wait()
        self.spoilt += not self.weights
        self.running += 1
        await asyncio.sleep(self.seconds)
        self.running -= 1
        self.ended += 1
        return whole(self.url)

    def _metrics(self) -> bytes:
        labels = '{engine="0",model_name="chat"}'
        return (
            f"vllm:num_requests_running{labels} {self.running}.0\n"
            f"vllm:num_requests_waiting{labels} 0.0\n"
            f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="chat"}} {self.ended}.0\n'
        ).encode()


def _json(body: Any) -> Response:
    return Response(200, JSON, json.dumps(body).encode())


@asynccontextmanager
async def sleeping_vllm(*, asleep: bool = False) -> AsyncIterator[SleepingVllm]:
    """One that listens."""
    made = SleepingVllm(asleep=asleep)
    server = Server(made)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        made.awake.set()
        await server.aclose()


def configuration(servers: Sequence[str], *, workers: int = 1, **scale: Any) -> dict[str, Any]:
    """A gateway that puts these servers to sleep."""
    vllm = {
        "name": "vllm",
        "protocol": {"name": "openai", "dialect": "vllm"},
        "endpoints": list(servers),
        "probe": {"interval": "1s"},
        "scale": {"places": 2, "hold": "1s", "sleep": 1, **scale},
    }
    return {
        "workers": workers,
        "auth": {"demo_key": True},
        "pools": [vllm],
        "models": [{"name": "chat", "routes": [{"to": "vllm", "timeout": {"total": "5m"}}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
