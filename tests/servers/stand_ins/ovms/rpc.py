"""Its gRPC."""

from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc as service

from tests.servers.stand_ins.ovms.models import TYPES, Models, Refused, refuse
from tests.servers.stand_ins.ovms.rest import VERSION

CODES = {400: grpc.StatusCode.INVALID_ARGUMENT, 404: grpc.StatusCode.NOT_FOUND}


class Grpc(service.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Without a repository, configurations and statistics: those are left unimplemented."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.ServerReadyResponse(ready=True)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return messages.ServerMetadataResponse(name="OpenVINO Model Server", version=VERSION)

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            self._models.named(request.name, request.version)
        except Refused as refused:
            await context.abort(CODES[refused.status], str(refused))
        return messages.ModelReadyResponse(ready=True)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            return messages.ModelMetadataResponse(**self._models.described(request.name, request.version))
        except Refused as refused:
            await context.abort(CODES[refused.status], str(refused))

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            outputs = self._models.infer(request.model_name, request.model_version, _of_message(request))
        except Refused as refused:
            await context.abort(CODES[refused.status], str(refused))
        response = messages.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
        for name, value in outputs.items():
            response.outputs.add(name=name, datatype="INT32", shape=value.shape)
            response.raw_output_contents.append(value.tobytes())
        return response

    async def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.NOT_FOUND, "Mediapipe graph definition with requested name is not found")
        yield


def _of_message(request: Any) -> dict[str, np.ndarray]:
    try:
        if request.raw_input_contents:
            pairs = zip(request.inputs, request.raw_input_contents, strict=True)
            return {one.name: np.frombuffer(raw, TYPES[one.datatype]).reshape(one.shape) for one, raw in pairs}
        return {
            one.name: np.array(one.contents.int_contents or one.contents.fp32_contents, TYPES[one.datatype]).reshape(
                one.shape
            )
            for one in request.inputs
        }
    except (ValueError, KeyError):
        refuse(400, "Could not parse input content")
