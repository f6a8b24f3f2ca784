"""The HTTP interfaces of MLflow, SageMaker and Vertex AI, over the requests of KServe's v1.

POST /invocations              MLflow's and SageMaker's; the header of SageMaker's multi-model endpoints names a model
POST /models/MODEL/invoke      SageMaker's multi-model containers
POST $AIP_PREDICT_ROUTE        Vertex AI's
GET  /ping $AIP_HEALTH_ROUTE   as TorchServe's
"""

from __future__ import annotations

import json
from email.message import Message
from typing import Final

from adapters import offload, statuses
from adapters.errors import CallerError, InferenceError
from adapters.http1.message import Request, Response
from adapters.offload import codecs
from adapters.tensors import NO_PARAMETERS, Inference
from adapters.types import DEVICE_MS
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.tfserving import predict_v1_responses
from adapters.wire.tfserving.predict_v1 import PredictV1Request
from runtimes.tensor.api import dataframes
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.refusals import JSON, http_response
from runtimes.tensor.api.restrictions import PathMatch
from runtimes.tensor.api.sagemaker import STATUSES, check_loaded
from runtimes.tensor.api.service import InferenceService
from runtimes.tensor.models.records import unavailable

TARGET: Final = "x-amzn-sagemaker-target-model"
_CODES: Final = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "RESOURCE_DOES_NOT_EXIST", 429: "REQUEST_LIMIT_EXCEEDED",
    501: "NOT_IMPLEMENTED", 503: "TEMPORARILY_UNAVAILABLE",
}  # fmt: skip
"""MLflow's names of errors, by status."""


class InvocationsDoor:
    """The handlers of these paths."""

    def __init__(self, service: InferenceService, control: Control) -> None:
        self._service = service
        self._control = control

    async def invocations(self, request: Request, route: PathMatch) -> Response:
        """MLflow's answer, `{"predictions": …}`, or its error."""
        try:
            return await self._predicted(request, route)
        except InferenceError as error:
            refused = http_response(error)
            status = STATUSES.get(error.code) or statuses.own_http_status(error)
            code = _CODES.get(status, "BAD_REQUEST" if status < 500 else "INTERNAL_ERROR")
            body = json.dumps({"error_code": code, "message": error.message}).encode()
            return Response(status, refused.headers, body)

    async def vertex(self, request: Request, route: PathMatch) -> Response:
        """Vertex AI's answer, `{"predictions": …}`. Raises `InferenceError`."""
        return await self._predicted(request, route)

    async def _predicted(self, request: Request, route: PathMatch) -> Response:
        model = self._model(request, route)
        metadata = self._control.model(model)
        body = await request.read()
        kind = Message()
        kind["content-type"] = request.headers.get("content-type") or "application/json"
        decoded: PredictV1Request
        if kind.get_content_type() == "text/csv":
            header = str(kind.get_param("header", "present")).lower() != "absent"
            decoded = await offload.run(len(body), _decode_csv, body, metadata, header)
        else:
            decoded = await offload.run(len(body), dataframes.decode_json, body, metadata)
        parameters = decoded.parameters or NO_PARAMETERS
        computed = await self._service.infer(Inference(model, "", "", parameters, decoded.inputs))
        fields = [JSON, (DEVICE_MS, f"{computed.device_seconds * 1000:.3f}")]
        if decoded.by_row:
            return Response(200, fields, await codecs.encode_predict_v1(computed, "predict", by_row=True))
        size = oip_responses.json_bytes(computed)
        whole = codecs.without_extras(computed)
        return Response(200, fields, await offload.run(size, predict_v1_responses.encode_whole, whole, "predictions"))

    def _model(self, request: Request, route: PathMatch) -> str:
        """The model of the path, of the header, or the only one.

        Raises `CallerError` if there are several, `Unavailable` if there is none.
        """
        table = self._control.manager.table
        if route.about:
            check_loaded(self._control, route.about)
            return route.about
        if target := request.headers.get(TARGET):
            name = target.strip().lstrip("/")
            archive = name.removesuffix(".tar.gz")  # SageMaker's clients name the file
            return archive if name not in table.models and archive in table.models else name
        names = sorted(name for name in table.models if table.is_usable(name))
        if len(names) == 1:
            return names[0]
        if not names:
            raise unavailable("No model is in service here.")
        listed = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        raise CallerError(
            f"There are several models here: {listed}. Name one by the header `X-Amzn-SageMaker-Target-Model`, or send"
            " the request to /models/MODEL/invoke."
        )


def _decode_csv(body: bytes, model: ModelMetadata, header: bool) -> PredictV1Request:
    return dataframes.decode_csv(body, model, header=header)
