"""The reason why a model is not ready, as its server reports it, for inferences that fail for this reason."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CapacityError, InferenceError, ModelNotReady, NotFound
from adapters.requests import AppRequest, InferRequest, ModelRequest
from adapters.upstreams import failed_status
from adapters.wire.oip.bodies import IndexEntry

Look = Callable[[ModelRequest, Call], Awaitable[Sequence[IndexEntry]]]
"""Fetches the states of a model's versions from its server; no entries if the server reports none."""
FRESH_SECONDS = 1.0
MAX_MODELS = 256
_MODEL_MISSING = "upstream_model_not_found"


class Readiness:
    """Cached states of the models of one endpoint.

    A state is valid for `FRESH_SECONDS`, so that many failed inferences cause few requests. Without `look`, no error is
    explained.
    """

    __slots__ = ("_clock", "_look", "_states")

    def __init__(self, look: Look | None, clock: Callable[[], float]) -> None:
        self._look = look
        self._clock = clock
        self._states: dict[tuple[str, str], tuple[float, Sequence[IndexEntry]]] = {}

    async def explained(self, answer: Awaitable[Answer], request: ModelRequest, call: Call) -> Answer:
        """Return an answer. An error that a missing model may cause becomes `ModelNotReady`; see `explain`."""
        try:
            return await answer
        except InferenceError as error:
            await self.explain(error, request, call)
            raise

    async def explain(self, error: InferenceError, request: ModelRequest, call: Call) -> None:
        """Raise `ModelNotReady` instead of an error that a missing model may cause, if the server reports states of the
        model and no state is READY."""
        if self._look is None or not isinstance(request, InferRequest | AppRequest) or not _may_be_missing(error):
            return
        entries: Sequence[IndexEntry] = ()
        with suppress(InferenceError):  # the original error is reported then
            entries = await self._entries(self._look, request, call)
        entries = [entry for entry in entries if not request.version or entry.version in ("", request.version)]
        if entries and not any(entry.state == "READY" for entry in entries):
            raise failed_status.not_ready(request, entries) from None

    async def _entries(self, look: Look, request: ModelRequest, call: Call) -> Sequence[IndexEntry]:
        key, now = (request.model, request.version), self._clock()
        until, entries = self._states.get(key, (0.0, ()))
        if now >= until:
            entries = await look(request, call)
            if len(self._states) >= MAX_MODELS:
                self._states.pop(next(iter(self._states)))
            self._states[key] = (now + FRESH_SECONDS, entries)
        return entries


def _may_be_missing(error: InferenceError) -> bool:
    if isinstance(error, ModelNotReady):
        return not error.state
    return isinstance(error, CapacityError | NotFound) or error.code == _MODEL_MISSING
