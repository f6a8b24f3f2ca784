"""Servers of five protocols whose model `broken` could not be loaded, each with the reports that its protocol has.

Paths and bodies are those of the servers' documents: TensorFlow Serving 2.19, TorchServe 0.12, BentoML 1.4, Ray Serve
2.48 and KServe 0.15.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from adapters.http2.accepted import Server
from adapters.http2.call import GrpcCall
from adapters.http2.status import Code, GrpcError
from adapters.wire.protos.tfserving import MODEL, PREDICTION, serving
from tests.servers.stand_ins.serving import serving as listening

REASON = "the weights are gone"
RAISED = f"RuntimeError: {REASON} from /srv/models/x and http://10.0.0.5:9000"
END = 50
_FAILED = 2


def rest() -> web.Application:
    """All of HTTP, below a first part of the path that names the server; the management APIs are at their own paths."""
    app = web.Application()
    app.router.add_get("/tfserving/v1/models/{model}", _tfserving_status)
    app.router.add_get("/tfserving/v1/models/{model}/metadata", _tfserving_missing)
    app.router.add_post("/tfserving/v1/models/{call}", _tfserving_missing)
    app.router.add_get("/models/{model}", _torchserve_model)
    app.router.add_post("/torchserve/predictions/{model}", _torchserve_predict)
    app.router.add_get("/torchserve/ping", _healthy)
    app.router.add_get("/bentoml/readyz", _bentoml_ready)
    app.router.add_get("/bentoml/schema.json", _bentoml_schema)
    app.router.add_post("/bentoml/{method}", _bentoml_call)
    app.router.add_get("/-/routes", _ray_routes)
    app.router.add_get("/api/serve/applications/", _ray_applications)
    app.router.add_post("/ray", _ray_missing)
    app.router.add_get("/kserve/v1/models/{model}", _kserve_refusal)
    app.router.add_post("/kserve/v1/models/{call}", _kserve_refusal)
    return app


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "Healthy"})


async def _tfserving_status(_: web.Request) -> web.Response:
    status = {"error_code": "UNKNOWN", "error_message": RAISED}
    return web.json_response({"model_version_status": [{"version": "1", "state": "END", "status": status}]})


async def _tfserving_missing(_: web.Request) -> web.Response:
    return web.json_response({"error": "Servable not found for request: Latest(broken)"}, status=404)


async def _torchserve_model(_: web.Request) -> web.Response:
    worker = {"id": "9000", "status": "UNLOADING", "gpu": False, "pid": -1}
    queue = {"remainingCapacity": 100, "pendingRequests": 0}
    described = {"modelName": "broken", "modelVersion": "1.0", "workers": [worker, worker], "jobQueueStatus": queue}
    return web.json_response([described])


async def _torchserve_predict(_: web.Request) -> web.Response:
    message = 'Model "broken" has no worker to serve inference request. Please use scale workers API to add workers.'
    return web.json_response({"code": 503, "type": "ServiceUnavailableException", "message": message}, status=503)


async def _bentoml_ready(_: web.Request) -> web.Response:
    return web.Response(status=503, text=f"Runners are not ready: {RAISED}")


async def _bentoml_schema(_: web.Request) -> web.Response:
    array = {"type": "tensor", "dtype": "float32", "shape": [1]}
    arguments = {"properties": {"x": array}, "type": "object", "required": ["x"]}
    method = {"name": "broken", "route": "/broken", "input": arguments, "output": array}
    return web.json_response({"name": "Service", "type": "service", "routes": [method]})


async def _bentoml_call(_: web.Request) -> web.Response:
    return web.json_response({"error": "Service Unavailable"}, status=503)


async def _ray_routes(_: web.Request) -> web.Response:
    return web.json_response({"/other": "other"})


async def _ray_applications(_: web.Request) -> web.Response:
    deployment = {"name": "Model", "status": "UNHEALTHY", "message": f"The deployment failed to start: {RAISED}"}
    application: dict[str, Any] = {"status": "DEPLOY_FAILED", "message": "", "deployments": {"Model": deployment}}
    return web.json_response({"applications": {"broken": application}})


async def _ray_missing(http: web.Request) -> web.Response:
    text = f"Path '{http.path}' not found. Ping http://.../-/routes for available routes."
    return web.Response(status=404, text=text)


async def _kserve_refusal(_: web.Request) -> web.Response:
    return web.json_response({"error": f"Model with name broken is not ready: {RAISED}"}, status=503)


async def rpc(call: GrpcCall) -> None:
    """TensorFlow Serving over gRPC."""
    await call.read()
    if call.path != MODEL["GetModelStatus"].path:
        assert call.path in {method.path for method in (PREDICTION | MODEL).values()}
        raise GrpcError(Code.NOT_FOUND, "Servable not found for request: Latest(broken)")
    response = serving.GetModelStatusResponse()
    version = response.model_version_status.add(version=1, state=END)
    version.status.error_code, version.status.error_message = _FAILED, RAISED
    call.reply(response.SerializeToString())


@asynccontextmanager
async def servers() -> AsyncIterator[tuple[str, str]]:
    """Their addresses for HTTP, as a URL, and for gRPC, as `HOST:PORT`."""
    server = Server(rpc)
    try:
        host, port = await server.listen_tcp("127.0.0.1", 0)
        async with listening(rest()) as url:
            yield url, f"{host}:{port}"
    finally:
        await server.aclose()
