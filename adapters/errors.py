"""Every way a request can fail, as data.

    InferenceError            kind        blames the endpoint  may be tried elsewhere
    ├── CallerError           caller      no                   no     the request itself is wrong
    │   ├── NotFound          caller      no                   no     no such model (or none for this caller)
    │   │   └── NotThere      caller      no                   yes    this endpoint has none by the client's name
    │   ├── TooLarge          caller      no                   no     a body or a prompt over its bound
    │   ├── ContextTooLong    caller      no                   no     prompt longer than the model's context
    │   └── Unsupported       caller      no                   no     the model's servers know no such operation
    ├── CredentialError       credential  no                   no     no key, a wrong, revoked or expired one
    ├── Forbidden             credential  no                   no     a right key, for something else
    ├── CapacityError         capacity    yes                  yes    the upstream is full
    │   ├── LimitExceeded     capacity    no                   no     this tenant is over a limit of ours
    │   ├── ComputationLost   capacity    no                   no     a runtime lost the copy that computed the request
    │   └── Unavailable       capacity    no                   yes    no endpoint of the pool may be picked
    │       ├── ModelNotReady capacity    no                   yes    the endpoint is well, and has not loaded the model
    │       ├── Resting       capacity    no                   yes    every endpoint requires a pause
    │       └── Overloaded    capacity    no                   yes    all eligible endpoints and the queue are full
    ├── BackendError          backend     yes                  yes    the upstream failed, or its response is unreadable
    │   └── ModelFailed       backend     yes                  yes    its model failed: no second time at one endpoint
    │       ├── ServerFailed  backend     yes                  yes    the server reports a failure that may be brief
    │       └── PoisonRequest backend     no                   no     a runtime reports that the request is the cause
    ├── TransportError        transport   yes                  yes    connect, TLS, reset, truncated
    │   └── UpstreamTimeout   transport   yes                  yes    silent for longer than the route allows
    ├── DeadlineError         deadline    no                   no     the request's own time is up
    └── ClientGone            cancelled   no                   no     the client left

`kind` decides breaker, retry and metrics; `adapters/statuses.py` maps each class to the statuses that clients receive.
A message is for the client: it never holds a secret, a path of this machine or an upstream's address.
"""

from typing import ClassVar, Literal

MODEL_FAILED, INSTANCE_LOST, MODEL_NOT_READY = "model_failed", "instance_lost", "model_not_ready"
REPORTED = frozenset({MODEL_FAILED, INSTANCE_LOST})
"""The codes by which a runtime reports that it has computed a request, which must not be computed again."""

Scope = Literal["tenant", "server", "unknown"]
Kind = Literal["caller", "credential", "capacity", "backend", "transport", "deadline", "cancelled"]


class InferenceError(Exception):
    """Base of all.

    `code` is stable and machine-readable, `param` names the field at fault, `retry_after` is the number of
    seconds after which the same request may succeed.
    """

    kind: ClassVar[Kind] = "backend"
    code: str = "internal_error"
    blames_endpoint: ClassVar[bool] = False
    retryable: ClassVar[bool] = False
    elsewhere_only: ClassVar[bool] = False
    """Whether another attempt at the same endpoint cannot help."""
    detail: str = ""
    """What the upstream reports, for the access log: clients may receive less of it."""
    own_words: bool = False
    """Whether message and `param` name the fields of the client's own protocol."""
    delivered: bool = True
    """Whether the upstream may have begun on the request, and done some of what was asked."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        if code is not None:
            self.code = code


class CallerError(InferenceError):
    """The request is wrong; every endpoint would refuse it."""

    kind = "caller"
    code = "invalid_request"


class NotFound(CallerError):
    """No such model, or none that this caller may see: one answer for both, so that names do not leak."""

    code = "model_not_found"


class NotThere(NotFound):
    """The endpoint is healthy and does not know the model by the client's name: another one may have loaded it."""

    retryable = True


class TooLarge(CallerError):
    """A body over its bound."""

    code = "request_too_large"


class ContextTooLong(CallerError):
    """Prompt and requested output do not fit the model's context."""

    code = "context_length_exceeded"


class Unsupported(CallerError):
    """The servers of the model do not support the operation."""

    code = "unsupported_operation"


class CredentialError(InferenceError):
    """No key, or one that is unknown, revoked or expired: one message for all."""

    kind = "credential"
    code = "invalid_api_key"


class Forbidden(InferenceError):
    """The credential is valid, and does not permit this."""

    kind = "credential"
    code = "not_in_scope"


class CapacityError(InferenceError):
    """The upstream is full, or the tenant exceeds its share."""

    kind = "capacity"
    code = "overloaded"
    blames_endpoint = True
    retryable = True
    delivered = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        scope: Scope = "server",
    ) -> None:
        super().__init__(message, code=code, param=param, retry_after=retry_after)
        self.scope: Scope = scope
        """Whose requests the upstream refuses. `unknown`: it did not say, and its limits may be by client."""


class LimitExceeded(CapacityError):
    """The tenant is over one of its limits; `limit` names which."""

    code = "rate_limit_exceeded"
    blames_endpoint = False
    retryable = False

    def __init__(self, message: str, *, limit: str, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)
        self.limit = limit


class ComputationLost(CapacityError):
    """The copy of the model that computed the request died or took too long. The request may be the cause."""

    code = INSTANCE_LOST
    blames_endpoint = False
    retryable = False
    delivered = True

    def __init__(self, message: str, *, detail: str, retry_after: float | None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.detail = detail


class Unavailable(CapacityError):
    """No endpoint may be picked: all are unhealthy, open or full."""

    code = "no_healthy_endpoint"
    blames_endpoint = False


class ModelNotReady(Unavailable):
    """The endpoint is well and has not loaded the model. Another endpoint of the pool may have.

    `state` is LOADING, UNLOADING or UNAVAILABLE, and empty where the endpoint does not report one; `reason` is the
    endpoint's own. `versions` are those that the endpoint knows. `retry_after` is infinite where waiting cannot help.
    """

    code = MODEL_NOT_READY
    elsewhere_only = True

    def __init__(
        self,
        message: str,
        *,
        state: str = "",
        reason: str = "",
        versions: tuple[str, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.state = state
        self.reason = reason
        self.versions = versions
        self.detail = reason


class Resting(Unavailable):
    """Every remaining endpoint requires a pause; `retry_after` is the shortest."""

    code = "overloaded"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after: float = retry_after


class Overloaded(Unavailable):
    """Every endpoint is full, and there is no queue, no room in it, or no time left to wait in it."""

    code = "overloaded"


class BackendError(InferenceError):
    """The upstream failed on a request that may succeed elsewhere, or its response is unreadable."""

    kind = "backend"
    code = "upstream_error"
    blames_endpoint = True
    retryable = True


class ModelFailed(BackendError):
    """The server is healthy, and its model failed on the request. The message is the model's own."""

    code = MODEL_FAILED
    elsewhere_only = True

    def __init__(self, message: str, *, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class ServerFailed(ModelFailed):
    """The server reports that it failed on the request. Another attempt may succeed, at the same endpoint too."""

    code = BackendError.code
    elsewhere_only = False


class PoisonRequest(ModelFailed):
    """A runtime reports that the model fails on this very request: no attempt can help."""

    blames_endpoint = False
    retryable = False


class TransportError(InferenceError):
    """The upstream could not be reached, or the connection broke."""

    kind = "transport"
    code = "upstream_unreachable"
    blames_endpoint = True
    retryable = True


class UpstreamTimeout(TransportError):
    """The upstream was silent for longer than the route allows (connect, first byte or idle)."""

    code = "upstream_timeout"


class DeadlineError(InferenceError):
    """The request's total time is up."""

    kind = "deadline"
    code = "deadline_exceeded"


class ClientGone(InferenceError):
    """The client left before the end."""

    kind = "cancelled"
    code = "client_closed_request"
