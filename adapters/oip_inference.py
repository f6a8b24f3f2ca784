"""What a request asks for where its own bytes do not tell all: raw bodies and prompts have their model's shapes."""

from collections.abc import Awaitable, Callable

from adapters.tensors import Inference
from adapters.types import Deadline, InferRequest
from adapters.wire import oip_generate, oip_raw
from adapters.wire.oip_bodies import ModelMetadata, TensorMetadata

FRESH = 30.0
"""Seconds for which is believed what a server has shown of itself and of its models: it may change."""
MOST = 256

Ask = Callable[[str, str, Deadline], Awaitable[ModelMetadata]]


class Reader:
    """Reads requests for one endpoint, and asks it with `ask` for the metadata that this takes."""

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, list[TensorMetadata]]] = {}

    async def inference(self, request: InferRequest, model: str, deadline: Deadline) -> Inference:
        """`model` is its name at the endpoint. Raises `CallerError`, and what asking raises."""
        if request.kind in ("generate", "generate_stream"):
            inputs = await self._inputs(model, request.version, deadline)
            by_name = {one.name: one for one in inputs}
            return oip_generate.decode_generate(request.plain, request.model, request.version, by_name)
        if request.wire == "oip-http" and request.header_length == 0:
            inputs = await self._inputs(model, request.version, deadline)
            return oip_raw.complete_from_metadata(
                request.inference, [(one.name, one.datatype, one.shape) for one in inputs]
            )
        return request.inference

    def forget(self) -> None:
        """Its models have changed."""
        self._known.clear()

    async def _inputs(self, model: str, version: str, deadline: Deadline) -> list[TensorMetadata]:
        known, now = self._known.get((model, version)), self._clock()
        if known is not None and now < known[0]:
            return known[1]
        metadata = await self._ask(model, version, deadline)
        if len(self._known) >= MOST:
            self._known.pop(next(iter(self._known)))
        self._known[model, version] = (now + FRESH, metadata.inputs)
        return metadata.inputs
