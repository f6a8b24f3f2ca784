"""What went wrong on a copy of a model, as its callers are told."""

from adapters.errors import BackendError, CapacityError, InferenceError
from runtimes.tensor.backends.base import InstanceLost, ModelFailed


def for_caller(error: BaseException) -> InferenceError:
    """A new error for each caller: one that several share grows by each traceback."""
    if isinstance(error, InstanceLost):
        return CapacityError(
            "The copy of the model that computed this died or took too long, and is being replaced; try again.",
            code="instance_lost",
            retry_after=1.0,
        )
    if isinstance(error, ModelFailed):
        return BackendError(str(error) or "The model failed.", code="model_failed")
    return BackendError(f"The model failed with {type(error).__name__}.", code="model_failed")


def unreadable() -> InferenceError:
    return BackendError("The model answered what cannot be read.", code="model_failed")
