"""Decodes requests with the metadata of their model.

Raw bodies, prompts and plain JSON values lack names, datatypes or shapes, which the metadata provide.
"""

from collections.abc import Awaitable, Callable

from adapters import offload
from adapters.call import Call
from adapters.errors import CallerError, InferenceError, Unsupported
from adapters.offload import codecs
from adapters.requests import InferRequest
from adapters.tensors import Inference
from adapters.wire.apps import tensors
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import requests
from adapters.wire.oip.bodies import ModelMetadata, header_length
from adapters.wire.tfserving.predict_v1 import SERVING, SIGNATURE

FRESH = 30.0
"""Seconds for which a server's features and its models' metadata are cached; both may change."""
DOUBT = 1.0
"""Seconds of age from which cached metadata are fetched again for a request that does not fit them."""
MOST = 256

Fetch = Callable[[str, str, Call], Awaitable[ModelMetadata]]


def check_signature(inference: Inference) -> None:
    """Raise `CallerError` for a signature of TensorFlow Serving other than the default: other servers have none."""
    signature = inference.parameters.get(SIGNATURE, SERVING)
    if signature not in ("", SERVING):
        raise CallerError(f'Serving signature key "{str(signature)[:64]}" not found.', param=SIGNATURE)


class Reader:
    """Decodes the requests of one endpoint; `fetch` fetches the metadata of a model from the endpoint."""

    def __init__(self, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._query = fetch
        self._clock = clock
        self._cached: dict[tuple[str, str], tuple[float, ModelMetadata]] = {}

    async def inference(self, request: InferRequest, model: str, call: Call) -> Inference:
        """Decode a request. `model` is the endpoint's name. Raises `CallerError` and the errors of `fetch`."""
        if request.wire == "predict-v1":
            inference = await self._of_values(request, model, call)
            check_signature(inference)
            return inference
        if request.kind in ("generate", "generate_stream"):
            cached = await self.metadata(model, request.version, call)
            by_name = {one.name: one for one in cached.inputs}
            body = request.payload.plain
            return await offload.run(
                len(body), oip_generate.decode_generate, body, request.model, request.version, by_name
            )
        if header_length(request.payload) == 0:
            cached = await self.metadata(model, request.version, call)
            return requests.complete_from_metadata(
                request.inference, [(one.name, one.datatype, one.shape) for one in cached.inputs]
            )
        inference = await codecs.inference_of(request)
        if request.wire == "tfserving-grpc":
            check_signature(inference)
        return inference

    async def _of_values(self, request: InferRequest, model: str, call: Call) -> Inference:
        cached = await self.metadata(model, request.version, call)
        try:
            return await codecs.inference_of_values(request, cached)
        except Unsupported:
            raise
        except CallerError:
            # The endpoint may serve another model now than the cached one.
            fresh = await self.metadata(model, request.version, call, DOUBT)
            if fresh is cached:
                raise
            return await codecs.inference_of_values(request, fresh)

    async def check(self, request: InferRequest, model: str, call: Call) -> None:
        """Raise `CallerError` for a request that does not fit the model: some servers report that with a 500."""
        if request.kind not in ("infer", "infer_stream") or request.wire == "predict-v1":
            return
        if header_length(request.payload) == 0:
            return
        try:
            cached = await self.metadata(model, request.version, call)
        except InferenceError:
            return
        if cached.inputs:
            tensors.check_inputs(await codecs.inference_of(request), cached.inputs)

    def forget(self) -> None:
        """Clear the cached metadata: the endpoint's models have changed."""
        self._cached.clear()

    async def metadata(self, model: str, version: str, call: Call, max_age: float = FRESH) -> ModelMetadata:
        """Return a model's metadata: the cached ones if they are newer than `max_age`, else the endpoint's."""
        cached, now = self._cached.get((model, version)), self._clock()
        if cached is not None and now - cached[0] < max_age:
            return cached[1]
        metadata = await self._query(model, version, call)
        if len(self._cached) >= MOST:
            self._cached.pop(next(iter(self._cached)))
        self._cached[model, version] = (now, metadata)
        return metadata
