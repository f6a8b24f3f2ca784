"""tritonclient's own service on gRPC's own server, scripted by the test."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

PATIENCE = 300.0
Behaviour = Callable[[Any, Any], Any]


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # the package has no types
    """Returns its inputs as outputs, unless `behaviour` is set; records its requests."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.behaviour: Behaviour = echo
        self.stream: Callable[[Any, Any], Iterator[Any]] = one
        self.ready = True
        self.readiness: Behaviour | None = None
        self.inputs: list[tuple[str, str, tuple[int, ...]]] = [("x", "INT32", (-1, 1))]
        self.left = threading.Event()

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        return self.behaviour(request, context)

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        context.add_callback(self.left.set)
        for request in requests:
            self._note(request, context)
            yield from self.stream(request, context)

    def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        return service_pb2.ServerReadyResponse(ready=self.ready)

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        if self.readiness is not None:
            return self.readiness(request, context)
        return service_pb2.ModelReadyResponse(ready=self.ready)

    def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        return service_pb2.RepositoryModelLoadResponse()

    def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        return service_pb2.RepositoryModelUnloadResponse()

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        reply = service_pb2.ModelMetadataResponse(name=request.name, versions=["1"], platform="test")
        for name, datatype, shape in self.inputs:
            reply.inputs.add(name=name, datatype=datatype, shape=shape)
        return reply

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        return service_pb2.ModelConfigResponse(config=model_config_pb2.ModelConfig(name=request.name, max_batch_size=8))

    def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._note(request, context)
        reply = service_pb2.ModelStatisticsResponse()
        reply.model_stats.add(name=request.name, version="1", inference_count=2**40)
        return reply

    def _note(self, request: Any, context: Any) -> None:
        self.received.append(request)
        self.metadata.append({**dict(context.invocation_metadata()), "left": context.time_remaining()})


def echo(request: Any, context: Any) -> Any:
    """The inputs as outputs."""
    context.set_trailing_metadata((("headrace-device-ms", "1.5"),))
    outputs = [{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in request.inputs]
    return service_pb2.ModelInferResponse(
        model_name=request.model_name, model_version=request.model_version, id=request.id, outputs=outputs,
        raw_output_contents=request.raw_input_contents,
    )  # fmt: skip


def one(request: Any, context: Any) -> Iterator[Any]:
    """The same as a stream."""
    yield service_pb2.ModelStreamInferResponse(infer_response=echo(request, context))


def failing(code: int, message: str) -> Behaviour:
    """End with a status."""

    def fail(request: Any, context: Any) -> Any:
        context.abort(next(one for one in grpc.StatusCode if one.value[0] == code), message)

    return fail


@asynccontextmanager
async def serving(service: Service, *handlers: Any) -> AsyncIterator[str]:
    """Its URL. `handlers` go before it."""
    server = grpc.server(ThreadPoolExecutor(8), handlers=handlers, options=[("grpc.max_receive_message_length", -1)])
    if not handlers:
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        service.left.set()
        await asyncio.to_thread(server.stop(None).wait)
