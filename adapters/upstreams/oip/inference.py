"""What a request asks for where its own bytes do not tell all: raw bodies, prompts and plain JSON values have their
model's names, datatypes and shapes."""

from collections.abc import Awaitable, Callable

from adapters import offload
from adapters.call import Call
from adapters.errors import CallerError, InferenceError, Unsupported
from adapters.offload import codecs
from adapters.tensors import Inference
from adapters.types import InferRequest
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import metadata_check
from adapters.wire.oip import raw_requests as oip_raw
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.tfserving.predict_v1 import SERVING, SIGNATURE

FRESH = 30.0
"""Seconds for which is believed what a server has shown of itself and of its models: it may change."""
DOUBT = 1.0
"""What was found out within so many is not doubted because a request does not fit it."""
MOST = 256

Ask = Callable[[str, str, Call], Awaitable[ModelMetadata]]


def check_signature(inference: Inference) -> None:
    """Raise `CallerError` for a signature of TensorFlow Serving that other servers' models do not have."""
    signature = inference.parameters.get(SIGNATURE, SERVING)
    if signature not in ("", SERVING):
        raise CallerError(f'Serving signature key "{str(signature)[:64]}" not found.', param=SIGNATURE)


class Reader:
    """Reads requests for one endpoint, and asks it with `ask` for the metadata that this takes."""

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, ModelMetadata]] = {}

    async def inference(self, request: InferRequest, model: str, call: Call) -> Inference:
        """`model` is its name at the endpoint. Raises `CallerError`, and what asking raises."""
        if request.wire == "predict-v1":
            return await self._of_values(request, model, call)
        if request.kind in ("generate", "generate_stream"):
            known = await self.metadata(model, request.version, call)
            by_name = {one.name: one for one in known.inputs}
            body = request.plain
            return await offload.run(
                len(body), oip_generate.decode_generate, body, request.model, request.version, by_name
            )
        if request.wire == "oip-http" and request.header_length == 0:
            known = await self.metadata(model, request.version, call)
            return oip_raw.complete_from_metadata(
                request.inference, [(one.name, one.datatype, one.shape) for one in known.inputs]
            )
        inference = await codecs.inference_of(request)
        if request.wire == "tfserving-grpc":
            check_signature(inference)
        return inference

    async def _of_values(self, request: InferRequest, model: str, call: Call) -> Inference:
        known = await self.metadata(model, request.version, call)
        try:
            return await codecs.inference_of_values(request, known)
        except Unsupported:
            raise
        except CallerError:
            # Perhaps it is another model by now than the one that is remembered.
            fresh = await self.metadata(model, request.version, call, DOUBT)
            if fresh is known:
                raise
            return await codecs.inference_of_values(request, fresh)

    async def check(self, request: InferRequest, model: str, call: Call) -> None:
        """Raise `CallerError` where a request is none of the model's: some servers fail at it, and say so."""
        if request.kind not in ("infer", "infer_stream") or request.wire == "predict-v1" or request.header_length == 0:
            return
        try:
            known = await self.metadata(model, request.version, call)
        except InferenceError:
            return
        if known.inputs:
            metadata_check.check(await codecs.inference_of(request), known.inputs)

    def forget(self) -> None:
        """Its models have changed."""
        self._known.clear()

    async def metadata(self, model: str, version: str, call: Call, max_age: float = FRESH) -> ModelMetadata:
        """What is remembered of a model, or what the endpoint tells now."""
        known, now = self._known.get((model, version)), self._clock()
        if known is not None and now - known[0] < max_age:
            return known[1]
        metadata = await self._ask(model, version, call)
        if len(self._known) >= MOST:
            self._known.pop(next(iter(self._known)))
        self._known[model, version] = (now, metadata)
        return metadata
