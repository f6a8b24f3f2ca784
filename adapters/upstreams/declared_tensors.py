"""Models whose servers do not describe tensors: the tensors are those that the pool's configuration declares."""

from collections.abc import Callable, Sequence

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import Unsupported
from adapters.requests import InferRequest, ModelQuery
from adapters.tensors import Inference, Inferred, requested_outputs
from adapters.types import OIP_JSON, Usage
from adapters.upstreams.inference import Reader
from adapters.upstreams.inferred import answer_of, takes_plain_inference
from adapters.wire.apps import tensors as app_tensors
from adapters.wire.apps.tensors import check_inputs
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from config.schema.protocols.tensors import DeclaredTensors, TensorConfig


def metadata(
    model: str,
    inputs: Sequence[TensorConfig],
    outputs: Sequence[TensorConfig],
    *,
    platform: str = "",
    versions: Sequence[str] = (),
) -> ModelMetadata:
    """Return the metadata of such a model, as `GET /v2/models/{name}` has it."""
    return ModelMetadata(model, list(versions), platform, described(inputs), described(outputs))


def described(tensors: Sequence[TensorConfig]) -> list[TensorMetadata]:
    """Convert declared tensors to metadata of the Open Inference Protocol."""
    return [TensorMetadata(tensor.name, tensor.datatype, tensor.shape) for tensor in tensors]


class DeclaredModel:
    """Encodes tensors as an app's JSON, and decodes the app's JSON to tensors, by the declaration."""

    def __init__(self, protocol: DeclaredTensors, clock: Callable[[], float]) -> None:
        self._protocol = protocol
        self._inputs = described(protocol.inputs)
        self._outputs = described(protocol.outputs)
        self._reader = Reader(self._metadata_of, clock)

    async def encode(self, request: InferRequest, call: Call) -> tuple[Inference, bytes]:
        """Decode the request's tensors, and encode them as the app's JSON. Raises `CallerError`."""
        inference = await self.inference(request, call)
        size = sum([len(tensor.data) for tensor in inference.inputs])
        return inference, await offload.run(size, app_tensors.encode, inference, self._protocol.layout)

    async def inference(self, request: InferRequest, call: Call) -> Inference:
        """Decode the request's tensors and check them against the declaration. Raises `CallerError`."""
        if not self._inputs:
            raise _undeclared(request.model)
        takes_plain_inference(request)
        inference = await self._reader.inference(request, request.model, call)
        check_inputs(inference, self._inputs)
        return inference

    async def answer(self, request: InferRequest, inference: Inference, body: bytes, *, version: str = "") -> Answer:
        """Convert the app's response to the wire of the request. Raises `BackendError`."""
        decoded = await offload.run(len(body), app_tensors.decode, body, self._outputs, self._protocol.layout)
        outputs = requested_outputs(inference, decoded)
        inferred = Inferred(request.model, version or request.version, inference.id, outputs=outputs)
        return await answer_of(request, inferred, Usage(rows=request.row_count, bytes=len(body), exact=True))

    def answer_query(self, query: ModelQuery, versions: Sequence[str] = ()) -> Answer:
        """Return the model's metadata."""
        if not self._inputs:
            raise _undeclared(query.model)
        return json_answer(oip_bodies.encode(self._metadata(query.model, versions)))

    def _metadata(self, model: str, versions: Sequence[str] = ()) -> ModelMetadata:
        protocol = self._protocol
        return metadata(model, protocol.inputs, protocol.outputs, platform=protocol.name, versions=versions)

    async def _metadata_of(self, model: str, version: str, call: Call) -> ModelMetadata:
        return self._metadata(model)


def _undeclared(model: str) -> Unsupported:
    return Unsupported(f"No tensors are declared for the servers of `{model}`: call it as an app.")


def json_answer(body: bytes) -> Answer:
    """Return the response to a query or an order, with a JSON body."""
    return Answer(content_type="application/json", body=body, usage=Usage(bytes=len(body)), form=OIP_JSON)


def ready_answer(query: ModelQuery) -> Answer:
    """Return the response to a query of a model that is ready."""
    return json_answer(oip_bodies.encode({"name": query.model, "ready": True}))


def not_reported(query: ModelQuery) -> Unsupported:
    """Return the error for a query whose answer these servers do not have."""
    return Unsupported(f"The server of `{query.model}` does not report its {query.about}.")
