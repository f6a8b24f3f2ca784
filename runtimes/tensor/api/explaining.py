"""The HTTP interface of explanations, and KServe's v1.

POST /v2/models/MODEL[/versions/VERSION]/explain    the body of `/infer`; the answer's tensors are the explanation
POST /v1/models/MODEL:explain                       KServe's instances; an explanation for each
POST /v1/models/MODEL:predict                       KServe's instances; a prediction for each
"""

from __future__ import annotations

from adapters import offload
from adapters.errors import CallerError
from adapters.http1.message import Request, Response
from adapters.offload import codecs
from adapters.tensors import NO_PARAMETERS, Inference
from adapters.types import DEVICE_MS, Verb
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.tfserving.predict_v1 import decode_predict
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.refusals import JSON
from runtimes.tensor.api.restrictions import PathMatch
from runtimes.tensor.api.service import InferenceService
from runtimes.tensor.models.served_model import Computed

_LENGTH = oip.HEADER.encode()
_BINARY = ("content-type", "application/octet-stream")


class ExplainDoor:
    """The handlers of these paths. They raise `InferenceError`."""

    def __init__(self, service: InferenceService, control: Control) -> None:
        self._service = service
        self._control = control

    async def explain(self, request: Request, route: PathMatch) -> Response:
        """The Open Inference Protocol's form."""
        body = await request.read()
        length = request.headers.raw.get(_LENGTH)
        size = None if length is None else oip.header_length(length.decode("latin-1"))
        if size == 0:
            raise CallerError("A request for an explanation names its inputs: send them as JSON.")
        inference = await codecs.decode_body(body, size, route.about, route.version)
        computed = await self._service.explain(inference)
        body, size = await codecs.encode_response(computed, oip_responses.binary_outputs(inference))
        fields = [JSON, _device(computed)]
        if size is not None:
            fields = [_BINARY, (oip.HEADER, str(size)), _device(computed)]
        return Response(200, fields, body)

    async def explain_v1(self, request: Request, route: PathMatch) -> Response:
        """KServe's form of an explanation."""
        return await self._answered(request, route, "explain")

    async def predict_v1(self, request: Request, route: PathMatch) -> Response:
        """KServe's form of a prediction."""
        return await self._answered(request, route, "predict")

    async def _answered(self, request: Request, route: PathMatch, verb: Verb) -> Response:
        body = await request.read()
        metadata = self._control.model(route.about, route.version)
        decoded = await offload.run(len(body), decode_predict, body, metadata)
        inference = Inference(route.about, route.version, "", decoded.parameters or NO_PARAMETERS, decoded.inputs)
        run = self._service.explain if verb == "explain" else self._service.infer
        computed = await run(inference)
        return Response(
            200, [JSON, _device(computed)], await codecs.encode_predict_v1(computed, verb, by_row=decoded.by_row)
        )


def _device(computed: Computed) -> tuple[str, str]:
    return DEVICE_MS, f"{computed.device_seconds * 1000:.3f}"
