"""Applications of Ray Serve: over HTTP with a behaviour for each path and two replicas, over gRPC, and over HTTP with a
number of replicas that others set.

Run as a program in Ray's own environment: it starts a cluster, with its dashboard, and serves until it is ended.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import ray
from ray import serve
from ray.serve.config import gRPCOptions
from ray.serve.generated import serve_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse


class Counter:
    """Counts cancelled requests, which replicas cannot report."""

    def __init__(self) -> None:
        self.counts = {"started": 0, "cancelled": 0}

    def add(self, name: str) -> None:
        self.counts[name] += 1

    def count(self, name: str) -> int:
        return self.counts[name]


class Paths:
    def __init__(self, counter: Any) -> None:
        self._counter = counter

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
    async def _sums(self, rows: list[list[list[int]]]) -> list[dict[str, Any]]:
        return [{"sum": [sum(row) for row in each], "batch": len(rows)} for each in rows]

    @serve.multiplexed(max_num_models_per_replica=2)
    async def _model(self, model_id: str) -> str:
        return model_id

    async def __call__(self, request: Request) -> Response:
        path = request.url.path
        if path.endswith("/sum"):
            return JSONResponse(await self._sums((await request.json())["x"]))
        if path.endswith("/model"):
            return JSONResponse(await self._model(serve.get_multiplexed_model_id()))
        if path.endswith("/fail"):
            raise RuntimeError("the app's own words, which are no client's business")
        if path.endswith("/sleep"):
            await self._sleep(float(request.query_params["seconds"]))
        if path.endswith("/stream"):
            return StreamingResponse(self._words(request), media_type="text/plain")
        if path.endswith(("/started", "/cancelled")):
            return JSONResponse(await self._counter.count.remote(path.rpartition("/")[2]))
        if path.endswith("/teapot"):
            return Response("short and stout", status_code=418, media_type="text/plain")
        body = await request.body()
        headers = {name: value for name, value in request.headers.items() if name.startswith("x-")}
        echo = {"path": path, "query": str(request.url.query), "body": body.decode("latin-1"), "headers": headers}
        return JSONResponse({"method": request.method, **echo})

    async def _sleep(self, seconds: float) -> None:
        self._counter.add.remote("started")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._counter.add.remote("cancelled")
            raise

    async def _words(self, request: Request) -> AsyncIterator[str]:
        done = False
        try:
            for word in request.query_params["words"].split(","):
                yield f"{word} "
                await asyncio.sleep(0.2)
            if "wait" in request.query_params:
                await asyncio.sleep(100)
            done = True
        finally:
            if not done:
                self._counter.add.remote("cancelled")


class Scaled:
    """Requests that take as long as they ask for, one at a time."""

    async def __call__(self, request: Request) -> Response:
        await asyncio.sleep(float(request.query_params["seconds"]))
        return JSONResponse("done")


class Messages:
    """The service whose messages are part of Ray."""

    def __call__(self, message: Any) -> Any:
        return serve_pb2.UserDefinedResponse(greeting=f"hello {message.name}", num_x2=message.num * 2)

    def Method1(self, message: Any) -> Any:  # noqa: N802 - as the service has it
        if message.name == "fail":
            raise RuntimeError("the app's own words, which are no client's business")
        return serve_pb2.UserDefinedResponse(greeting=serve.get_multiplexed_model_id())

    def Streaming(self, message: Any) -> Any:  # noqa: N802
        for number in range(message.num):
            yield serve_pb2.UserDefinedResponse(greeting=message.name, num_x2=number)


if __name__ == "__main__":
    http, grpc = map(int, sys.argv[1:3])
    ray.init(
        include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=int(sys.argv[3]),
        _node_ip_address="127.0.0.1", _metrics_export_port=int(sys.argv[4]), log_to_driver=False, num_cpus=2,
    )  # fmt: skip
    adder = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"
    serve.start(
        http_options={"host": "127.0.0.1", "port": http, "request_timeout_s": 100},
        grpc_options=gRPCOptions(port=grpc, grpc_servicer_functions=[adder]),
    )
    counter: Any = ray.remote(num_cpus=0)(Counter).remote()
    ray.get(counter.count.remote("started"))  # its process is there
    one = serve.deployment(ray_actor_options={"num_cpus": 0})
    two = serve.deployment(
        num_replicas=2, max_ongoing_requests=2, max_queued_requests=4, ray_actor_options={"num_cpus": 0}
    )
    alone = serve.deployment(max_ongoing_requests=1, ray_actor_options={"num_cpus": 0})
    scaled: Any = alone(Scaled)
    messages: Any = one(Messages)
    paths: Any = two(Paths)
    serve.run(messages.bind(), name="messages", route_prefix="/messages")
    serve.run(scaled.bind(), name="scaled", route_prefix="/scaled", external_scaler_enabled=True)
    serve.run(paths.bind(counter), name="paths", route_prefix="/paths")
    while True:
        time.sleep(3600)
