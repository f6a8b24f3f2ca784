"""TorchServe's HTTP interface for models from its archives: predictions, the health check, and the list of models.

POST /predictions/MODEL[/VERSION]    any body, or a form
GET  /ping  /models  /models/MODEL
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, Final
from urllib.parse import parse_qsl

from adapters import statuses
from adapters.errors import BackendError, CallerError, CapacityError, InferenceError, NotFound
from adapters.http1.message import Request, Response
from adapters.tensors import Inference, Tensor, join_bytes, split_bytes
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.refusals import JSON, RETRY_SECONDS
from runtimes.tensor.api.restrictions import PathMatch
from runtimes.tensor.api.sagemaker import check_loaded
from runtimes.tensor.api.service import InferenceService

BACKEND: Final = "torchserve"
LARGE: Final = 1 << 20
"""Bytes from which a body is copied in a thread."""
_SECRET: Final = frozenset({"authorization"})
_OURS: Final = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})
"""Headers of an answer that the server writes itself."""
_FIELD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTABLE: Final = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_TYPES: Final = {404: "ModelNotFoundException", 503: "ServiceUnavailableException", 500: "InternalServerException"}


class TorchserveDoor:
    """The handlers of these paths."""

    def __init__(self, service: InferenceService, control: Control) -> None:
        self._service = service
        self._control = control

    async def predictions(self, request: Request, route: PathMatch) -> Response:
        """The handler's own status, headers and body."""
        try:
            self._check(route)
            body = await request.read()
            headers = {name: value for name, value in request.headers.items() if name not in _SECRET}
            about = json.dumps({"headers": headers}).encode()
            data = join_bytes([body]) if len(body) < LARGE else await asyncio.to_thread(join_bytes, [body])
            inputs = [
                Tensor("data", "BYTES", (1, 1), data),
                Tensor("request", "BYTES", (1, 1), join_bytes([about])),
            ]
            computed = await self._service.infer(Inference(route.about, route.version, inputs=inputs))
            parts = {one.name: split_bytes(one.data, 1, one.name)[0] for one in computed.outputs}
            return _answer(bytes(parts["data"]), json.loads(bytes(parts["response"])))
        except InferenceError as error:
            return refusal(error, route.about)

    async def ping(self, request: Request, route: PathMatch) -> Response:
        if not self._control.ready:
            return Response(503, [JSON], b'{"status": "Unhealthy"}')
        return Response(200, [JSON], b'{"status": "Healthy"}')

    async def models(self, request: Request, route: PathMatch) -> Response:
        """The models in service, a page of them if the query has a `limit`."""
        urls = self._control.manager.placed.urls
        index = await self._control.manager.index(ready=True)
        names = list(dict.fromkeys(entry.name for entry in index))
        try:
            start, end = _page(request.query)
        except InferenceError as error:
            return refusal(error, "")
        answer: dict[str, Any] = {
            "models": [{"modelName": name, "modelUrl": urls.get(name, name)} for name in names[start:end]]
        }
        if end < len(names):
            answer["nextPageToken"] = str(end)
        return Response(200, [JSON], json.dumps(answer, indent=2).encode())

    async def described(self, request: Request, route: PathMatch) -> Response:
        """One model, as far as TorchServe's fields have a meaning here; in SageMaker's form if its agent loaded it."""
        url = self._control.manager.placed.urls.get(route.about)
        try:
            check_loaded(self._control, route.about)
            if url is not None:
                self._control.config(route.about)
                return Response(200, [JSON], json.dumps({"modelName": route.about, "modelUrl": url}).encode())
            config = self._control.config(route.about)
            ready = self._control.model_ready(route.about)
        except InferenceError as error:
            return refusal(error, route.about)
        count = sum(group.count * max(1, len(group.gpus)) for group in config.instance_groups)
        batching = config.dynamic_batching
        fields: dict[str, Any] = {
            "modelName": config.name,
            "modelVersion": ", ".join(self._control.manager.table.versions(config.name)),
            "modelUrl": config.name,
            "runtime": "python",
            "minWorkers": count,
            "maxWorkers": count,
            "batchSize": max(1, config.max_batch_size),
            "maxBatchDelay": round(1000 * batching.max_queue_delay) if batching is not None else 0,
            "workers": [{"id": str(number), "status": "READY" if ready else "UNLOADING"} for number in range(count)],
        }
        return Response(200, [JSON], json.dumps([fields], indent=2).encode())

    def _check(self, route: PathMatch) -> None:
        """Raises `InferenceError` unless the model is there and has a handler."""
        config = self._control.config(route.about, route.version)
        if config.backend != BACKEND:
            raise CallerError(f"The model {config.name} is no archive of TorchServe: send tensors to /v2/models.")


def _page(query: str) -> tuple[int, int]:
    """The places of the models in a page. Raises `CallerError`."""
    fields = dict(parse_qsl(query))
    limit, token = fields.get("limit", ""), fields.get("next_page_token", "0")
    if not (limit or "1").isdecimal() or not token.isdecimal() or len(limit + token) > 18 or limit == "0":
        raise CallerError("`limit` and `next_page_token` are whole numbers, from 1 and from 0.")
    return int(token), int(token) + int(limit) if limit else sys.maxsize


def _answer(body: bytes, about: dict[str, Any]) -> Response:
    status = about["status"] if isinstance(about["status"], int) and 200 <= about["status"] <= 599 else 500
    fields = [
        (str(name), _UNPRINTABLE.sub("?", str(value)))
        for name, value in about["headers"].items()
        if _FIELD.fullmatch(str(name)) and str(name).lower() not in _OURS
    ]
    return Response(status, fields, body)


def refusal(error: InferenceError, model: str) -> Response:
    """An error in TorchServe's shape. The words of a model's failure are in the log only, as there."""
    fields = [JSON]
    status, message = statuses.own_http_status(error), error.message
    if isinstance(error, NotFound):
        message = f"Model not found: {model[:128]}"
    elif isinstance(error, BackendError) and error.code == "model_failed":
        status, message = 503, "Prediction failed"
    elif isinstance(error, CapacityError):
        fields = [JSON, ("retry-after", str(max(1, round(error.retry_after or RETRY_SECONDS))))]
    kind = "InternalServerException" if message == "Prediction failed" else _TYPES.get(status, "BadRequestException")
    body = json.dumps({"code": status, "type": kind, "message": message}, indent=2)
    return Response(status, fields, f"{body}\n".encode())
