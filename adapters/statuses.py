"""The table that maps errors to an HTTP status, a gRPC code and OpenAI's error type.

A gateway reports failures of the server behind it; a runtime reports its own failures. Only the HTTP status differs:
502 means a failure behind the gateway, 500 a failure of this server.
"""

from typing import NamedTuple

from adapters.errors import (
    UPGRADE_REQUIRED,
    AccountsRest,
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


class ErrorStatus(NamedTuple):
    """The statuses that a client receives for one class of errors."""

    http: int
    """The HTTP status from a gateway."""
    own: int
    """The HTTP status from the server in which the error occurred."""
    grpc: Code
    openai: str
    """OpenAI's `type`."""


_CALLER, _SERVER = "invalid_request_error", "server_error"

CLASSES: dict[type[InferenceError], ErrorStatus] = {
    NotFound: ErrorStatus(404, 404, Code.NOT_FOUND, _CALLER),
    TooLarge: ErrorStatus(413, 413, Code.RESOURCE_EXHAUSTED, _CALLER),
    Unsupported: ErrorStatus(400, 400, Code.UNIMPLEMENTED, _CALLER),
    CallerError: ErrorStatus(400, 400, Code.INVALID_ARGUMENT, _CALLER),
    CredentialError: ErrorStatus(401, 401, Code.UNAUTHENTICATED, "authentication_error"),
    Forbidden: ErrorStatus(403, 403, Code.PERMISSION_DENIED, "permission_error"),
    LimitExceeded: ErrorStatus(429, 429, Code.RESOURCE_EXHAUSTED, "rate_limit_error"),
    AccountsRest: ErrorStatus(429, 429, Code.RESOURCE_EXHAUSTED, "rate_limit_error"),
    CapacityError: ErrorStatus(503, 503, Code.UNAVAILABLE, _SERVER),
    UpstreamTimeout: ErrorStatus(504, 504, Code.DEADLINE_EXCEEDED, _SERVER),
    DeadlineError: ErrorStatus(504, 504, Code.DEADLINE_EXCEEDED, _SERVER),
    # In a runtime, the copy of the model that computed the request has ended: the next copy may answer.
    TransportError: ErrorStatus(502, 503, Code.UNAVAILABLE, _SERVER),
    BackendError: ErrorStatus(502, 500, Code.INTERNAL, _SERVER),
    ClientGone: ErrorStatus(499, 499, Code.CANCELLED, _SERVER),
    InferenceError: ErrorStatus(500, 500, Code.INTERNAL, _SERVER),
}
"""The statuses of each class. A class without a row has the row of its nearest base."""

CODES: dict[str, tuple[int, Code | None]] = {
    "unknown_url": (404, None),
    UPGRADE_REQUIRED: (426, Code.UNIMPLEMENTED),
    "method_not_allowed": (405, Code.UNIMPLEMENTED),
    "feedback_late": (409, None),
    "request_timeout": (408, Code.DEADLINE_EXCEEDED),
    "unsupported_media_type": (415, Code.UNIMPLEMENTED),
    "internal_error": (500, None),
}
"""More precise statuses of single error codes; None for the gRPC code of the class."""
OWN_CODES: dict[str, tuple[int, Code | None]] = {
    **CODES,
    # A model's own codes, as Triton reports them.
    "model_reports_existing": (400, Code.ALREADY_EXISTS),
    "model_cancelled": (400, Code.CANCELLED),
    "model_failed_unknown": (400, Code.UNKNOWN),
    "unknown_path": (404, Code.UNIMPLEMENTED),
    "not_implemented": (501, Code.UNIMPLEMENTED),
}
"""The statuses from the server in which the error occurred. A gateway may forward such a code of a server behind it."""


def row_of(error: InferenceError) -> ErrorStatus:
    """The row of the error's class."""
    return next(row for kind in type(error).__mro__ if (row := CLASSES.get(kind)) is not None)


def http_status(error: InferenceError) -> int:
    """The HTTP status that a gateway reports."""
    exact = CODES.get(error.code)
    return row_of(error).http if exact is None else exact[0]


def own_http_status(error: InferenceError) -> int:
    """The HTTP status that the server reports in which the error occurred."""
    exact = OWN_CODES.get(error.code)
    return row_of(error).own if exact is None else exact[0]


def grpc_code(error: InferenceError) -> Code:
    """The gRPC code."""
    exact = OWN_CODES.get(error.code)
    return row_of(error).grpc if exact is None or exact[1] is None else exact[1]


def openai_type(error: InferenceError) -> str:
    """OpenAI's `type`."""
    return row_of(error).openai
