"""From the error tree to gRPC's statuses, and what is told beside them."""

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ClientGone,
    CredentialError,
    DeadlineError,
    Forbidden,
    InferenceError,
    LimitExceeded,
    NotFound,
    TooLarge,
    TransportError,
    Unsupported,
    UpstreamTimeout,
)
from adapters.http2.status import Code

# The first class that an error is an instance of decides.
_TABLE: tuple[tuple[type[InferenceError], Code], ...] = (
    (NotFound, Code.NOT_FOUND),
    (TooLarge, Code.RESOURCE_EXHAUSTED),
    (Unsupported, Code.UNIMPLEMENTED),
    (CallerError, Code.INVALID_ARGUMENT),
    (CredentialError, Code.UNAUTHENTICATED),
    (Forbidden, Code.PERMISSION_DENIED),
    (LimitExceeded, Code.RESOURCE_EXHAUSTED),
    (CapacityError, Code.UNAVAILABLE),
    (UpstreamTimeout, Code.DEADLINE_EXCEEDED),
    (DeadlineError, Code.DEADLINE_EXCEEDED),
    (TransportError, Code.UNAVAILABLE),
    (BackendError, Code.INTERNAL),
    (ClientGone, Code.CANCELLED),
)


def code_of(error: InferenceError) -> Code:
    """The status."""
    return next((code for kind, code in _TABLE if isinstance(error, kind)), Code.INTERNAL)
