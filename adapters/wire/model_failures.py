"""Typed errors for failures that servers report in their own text."""

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
    ServerFailed,
)
from adapters.wire import failure_text

FAILED = "The upstream failed."


def failed(text: str | None) -> BackendError:
    """Return the error for a model of a tensor server that failed with this text: a second attempt would fail too."""
    return _reported(ModelFailed, text, FAILED)


def server_failed(text: str | None, otherwise: str = FAILED) -> BackendError:
    """Return the error for a server that failed with this text. Without a text the message is `otherwise`."""
    return _reported(ServerFailed, text, otherwise)


def _reported(kind: type[ModelFailed], text: str | None, otherwise: str) -> BackendError:
    if not text or not (message := failure_text.for_clients(text)):
        return BackendError(otherwise)
    return kind(message, detail=failure_text.for_log(text))


def reported(code: str | None, text: str | None, retry_after: float | None = None) -> InferenceError | None:
    """Return the error that a runtime reports by its own code; None for any other code.

    Without a `retry_after`, the error for a model that is not ready permits no retry.
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
