"""Failures of a copy as errors of requests."""

from adapters.errors import INSTANCE_LOST, MODEL_FAILED, BackendError, CapacityError, InferenceError
from runtimes.tensor.backends.base import InstanceEnded, InstanceLost, ModelFailed


def for_caller(error: BaseException) -> InferenceError:
    """A new error for each caller, because a shared error collects the tracebacks of all."""
    if isinstance(error, InstanceEnded):
        return CapacityError(
            "The copy of the model that had this was ended; try again.", code="instance_ended", retry_after=1.0
        )
    if isinstance(error, InstanceLost):
        return CapacityError(
            "The copy of the model that computed this died or took too long, and is being replaced; try again.",
            code=INSTANCE_LOST,
            retry_after=1.0,
        )
    if isinstance(error, ModelFailed):
        return BackendError(str(error) or "The model failed.", code=MODEL_FAILED)
    return BackendError(f"The model failed with {type(error).__name__}.", code=MODEL_FAILED)


def unreadable() -> InferenceError:
    return BackendError("The model's response cannot be read.", code=MODEL_FAILED)
