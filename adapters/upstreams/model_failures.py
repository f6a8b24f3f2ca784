"""What servers report of a model that failed on a request, as typed errors."""

from math import inf

from adapters.errors import (
    INSTANCE_LOST,
    MODEL_FAILED,
    MODEL_NOT_READY,
    BackendError,
    ComputationLost,
    InferenceError,
    ModelFailed,
    ModelNotReady,
    PoisonRequest,
)
from adapters.wire import failure_text


def failed(text: str | None) -> BackendError:
    """Of a server that reports its own failure in these words."""
    if not text or not (told := failure_text.for_clients(text)):
        return BackendError("The upstream failed.")
    return ModelFailed(told, detail=failure_text.for_log(text))


def reported(code: str | None, text: str | None, retry_after: float | None = None) -> InferenceError | None:
    """What a runtime reports by a code of its own; None for any other code.

    A model that is not ready and has no time to wait for is not going to be loaded by waiting.
    """
    if code == MODEL_FAILED:
        text = text or "The model failed."
        return PoisonRequest(failure_text.for_clients(text), detail=failure_text.for_log(text))
    if code == INSTANCE_LOST:
        text = failure_text.for_clients(text or "The copy of the model that computed this died or took too long.")
        return ComputationLost(text, detail=text, retry_after=retry_after)
    if code == MODEL_NOT_READY and text:
        return ModelNotReady(failure_text.for_clients(text), retry_after=inf if retry_after is None else retry_after)
    return None
