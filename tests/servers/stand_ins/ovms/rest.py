"""Its REST: the paths of its documents, and no other."""

import json
from typing import Any

import numpy as np
from aiohttp import web

from tests.servers.stand_ins.ovms.models import TYPES, Models, Refused, refuse

VERSION = "2026.1"
LENGTH = "Inference-Header-Content-Length"


class Rest:
    """One server's."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._refusals])
        for base in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            app.router.add_get(base, self._metadata)
            app.router.add_get(f"{base}/ready", self._ready)
            app.router.add_post(f"{base}/infer", self._infer)
        app.router.add_get("/v2", self._server)
        app.router.add_get("/v2/health/live", self._empty)
        app.router.add_get("/v2/health/ready", self._empty)
        app.router.add_get("/v1/config", self._config)
        app.router.add_post("/v1/config/reload", self._reload)
        app.router.add_get("/metrics", self._metrics)
        for root in ("/v1", "/v3"):
            app.router.add_post(f"{root}/chat/completions", self._chat)
            app.router.add_get(f"{root}/models", self._texts)
        return app

    @web.middleware
    async def _refusals(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
            return response
        except Refused as refused:
            return web.json_response({"error": str(refused)}, status=refused.status)
        except web.HTTPNotFound:
            return web.json_response({"error": "Invalid request URL"}, status=404)

    async def _empty(self, request: web.Request) -> web.Response:
        return web.Response(content_type="application/json")

    async def _server(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "OpenVINO Model Server", "version": VERSION, "extensions": []})

    async def _metadata(self, request: web.Request) -> web.Response:
        names = request.match_info
        return web.json_response(self._models.described(names["name"], names.get("version", "")))

    async def _ready(self, request: web.Request) -> web.Response:
        self._models.named(request.match_info["name"], request.match_info.get("version", ""))
        return web.Response(content_type="application/json")

    async def _config(self, request: web.Request) -> web.Response:
        return web.json_response(self._models.status())

    async def _reload(self, request: web.Request) -> web.Response:
        if await request.read():
            refuse(400, "The body of a reload must be empty")
        status = 201 if self._models.reload() else 200
        return web.json_response(self._models.status(), status=status)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            text='# TYPE ovms_current_requests gauge\novms_current_requests{name="add_sub",version="1"} 0\n'
        )

    async def _texts(self, request: web.Request) -> web.Response:
        model = {"id": "echo", "object": "model", "created": 1, "owned_by": "OVMS"}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        request_body = await request.json()
        if request_body.get("model") != "echo":
            refuse(404, "Mediapipe graph definition with requested name is not found")
        words, head = request_body["messages"][-1]["content"].split(), {"created": 1, "model": "echo"}
        usage = {"prompt_tokens": len(words), "completion_tokens": len(words), "total_tokens": 2 * len(words)}
        if not request_body.get("stream"):
            message = {"role": "assistant", "content": " ".join(words)}
            choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
            return web.json_response({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in [*words, ""]:
            choice = {"index": 0, "finish_reason": None if word else "stop", "delta": {"content": word}}
            piece = json.dumps({**head, "object": "chat.completion.chunk", "choices": [choice]})
            await response.write(f"data: {piece}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _infer(self, request: web.Request) -> web.Response:
        if "Content-Encoding" in request.headers:
            refuse(400, "Compressed bodies are not understood")
        body = await request.read()
        length = int(request.headers.get(LENGTH, len(body)))
        try:
            inference = json.loads(body[:length])
            inputs = _inputs(inference["inputs"], body[length:])
        except (ValueError, KeyError, TypeError):
            refuse(400, "Could not parse input content")
        name, version = request.match_info["name"], request.match_info.get("version", "")
        outputs = self._models.infer(name, version, inputs)
        if names := [one["name"] for one in inference.get("outputs", ())]:
            outputs = {one: outputs[one] for one in names}
        return _answer(inference, name, outputs)


def _inputs(tensors: list[dict[str, Any]], blob: bytes) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for one in tensors:
        dtype, size = TYPES[one["datatype"]], one.get("parameters", {}).get("binary_data_size")
        if size is None:
            arrays[one["name"]] = np.array(one["data"], dtype).reshape(one["shape"])
        else:
            arrays[one["name"]] = np.frombuffer(blob[:size], dtype).reshape(one["shape"])
            blob = blob[size:]
    if blob:
        raise ValueError("bytes of no input")
    return arrays


def _answer(inference: dict[str, Any], name: str, outputs: dict[str, np.ndarray]) -> web.Response:
    """The response; outputs are in binary form where the request requires it, for all outputs or for one."""
    default = inference.get("parameters", {}).get("binary_data_output", False)
    of_each = {
        one["name"]: one.get("parameters", {}).get("binary_data", default) for one in inference.get("outputs", ())
    }
    tensors: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for output, value in outputs.items():
        one = {"name": output, "datatype": "INT32", "shape": list(value.shape)}
        if of_each.get(output, default):
            blobs.append(value.tobytes())
            tensors.append({**one, "parameters": {"binary_data_size": len(blobs[-1])}})
        else:
            tensors.append({**one, "data": value.flatten().tolist()})
    head = {"model_name": name, "model_version": "1", "outputs": tensors} | (
        {"id": inference["id"]} if inference.get("id") else {}
    )
    encoded = json.dumps(head).encode()
    if not blobs:
        return web.Response(body=encoded, content_type="application/json")
    fields = {LENGTH: str(len(encoded)), "Content-Type": "application/octet-stream"}
    return web.Response(body=b"".join((encoded, *blobs)), headers=fields)
