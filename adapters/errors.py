"""The tree of errors: every way in which a request can fail.

    InferenceError            kind        blames the endpoint  may be retried
    ├── CallerError           caller      no                   no     the request itself is wrong
    │   ├── NotFound          caller      no                   no     no such model, or no right to use it
    │   │   └── NotThere      caller      no                   yes    this endpoint has no model of the client's name
    │   ├── TooLarge          caller      no                   no     a body or a prompt exceeds its limit
    │   ├── ContentFiltered   caller      no                   no     a guard blocked the content
    │   ├── ContentRefused    caller      no                   no     the provider refuses the content
    │   ├── ContextTooLong    caller      no                   no     prompt longer than the model's context
    │   └── Unsupported       caller      no                   no     the model's servers lack the operation
    ├── CredentialError       credential  no                   no     the key is missing, wrong, revoked or expired
    ├── Forbidden             credential  no                   no     the key is valid, but does not permit this
    ├── CapacityError         capacity    yes                  yes    the upstream is full
    │   ├── AccountRefused    capacity    no                   yes    the account of the pool's key is exhausted
    │   ├── LimitExceeded     capacity    no                   no     the tenant exceeds a limit of the gateway
    │   │   └── StorageFull   capacity    no                   no     the tenant stores as much as it may
    │   ├── ComputationLost   capacity    no                   no     a runtime lost the copy that computed the request
    │   ├── Drained           capacity    no                   no     the gateway ends before the answer is complete
    │   └── Unavailable       capacity    no                   yes    no endpoint of the pool may be selected
    │       ├── ModelNotReady capacity    no                   yes    the healthy endpoint has not loaded the model
    │       ├── NonePermitted capacity    no                   yes    a proxy permits no endpoint that may be selected
    │       ├── Resting       capacity    no                   yes    every endpoint requires a pause
    │       │   └── AccountsRest                                      every account of the provider is exhausted
    │       └── Overloaded    capacity    no                   yes    all eligible endpoints and the queue are full
    ├── BackendError          backend     yes                  yes    the upstream failed, or its response is unreadable
    │   ├── StepFailed        backend     no                   no     a step of a pipeline got bad input from another
    │   ├── GuardFailed       backend     no                   no     a guard could not judge the content
    │   └── ModelFailed       backend     yes                  yes    the model failed: retried at other endpoints only
    │       ├── ServerFailed  backend     yes                  yes    the server reports a failure that may be brief
    │       └── PoisonRequest backend     no                   no     a runtime reports that the request is the cause
    ├── TransportError        transport   yes                  yes    connect, TLS, reset, truncated
    │   └── UpstreamTimeout   transport   yes                  yes    it did not answer in time
    │       └── UpstreamSilent transport  yes                  yes    and may still compute the request
    ├── DeadlineError         deadline    no                   no     the deadline of the request has passed
    └── ClientGone            cancelled   no                   no     the client has disconnected

`kind` decides breaker, retry and metrics; `adapters/statuses.py` maps each class to the statuses that clients receive.
A message is for the client: it never contains a secret, a path of this machine or the address of an upstream.
"""

from collections.abc import Mapping
from math import inf
from typing import ClassVar, Literal, Self

from adapters.reason import BY_CODE, Fact, Reason, reason

MODEL_FAILED, INSTANCE_LOST, MODEL_NOT_READY = "model_failed", "instance_lost", "model_not_ready"
UPGRADE_REQUIRED = "upgrade_required"
REPORTED = frozenset({MODEL_FAILED, INSTANCE_LOST})
"""The codes by which a runtime reports that it has computed a request, so that no retry computes it again."""

Scope = Literal["tenant", "server", "unknown"]
Kind = Literal["caller", "credential", "capacity", "backend", "transport", "deadline", "cancelled"]


class InferenceError(Exception):
    """The base class of all errors.

    `code` is stable and machine-readable, `param` names the invalid field, `retry_after` is the number of seconds after
    which the same request may succeed.
    """

    kind: ClassVar[Kind] = "backend"
    code: str = "internal_error"
    blames_endpoint: ClassVar[bool] = False
    retryable: ClassVar[bool] = False
    elsewhere_only: ClassVar[bool] = False
    """Whether another attempt at the same endpoint cannot help."""
    detail: str = ""
    """The upstream's report, for the access log: clients may receive only a part of it."""
    own_message: str = ""
    """The message without the words of the upstream, if it has both."""
    own_words: bool = False
    """Whether `message` and `param` already use the field names of the client's protocol."""
    delivered: bool = True
    """Whether the upstream may have begun to process the request."""
    cause: ClassVar[str] = ""
    """The cause of a refusal that has no more precise one; empty for an error that is no refusal."""
    refusal: Reason | None = None
    """Why the request is refused, for operators; None if the class or the code says it all."""

    device_ms: float = 0.0
    """The milliseconds that a model computed for a request before it was refused."""

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

    def because(self, cause: str, **facts: Fact | None) -> Self:
        """Note why the request is refused, and return the error."""
        self.refusal = reason(cause, **facts)
        return self

    def note(self, **facts: Fact | None) -> Self:
        """Add facts to the reason of a refusal, and return the error. The facts that it has stay."""
        if (before := self.reason_of_refusal) is not None:
            self.refusal = reason(before.cause, **{**facts, **before.facts})
        return self

    @property
    def reason_of_refusal(self) -> Reason | None:
        """Why the request is refused: as noted, or that of the code or of the class. None for no refusal."""
        if self.refusal is not None:
            return self.refusal
        cause = BY_CODE.get(self.code) or self.cause
        return reason(cause) if cause else None


class CallerError(InferenceError):
    """The request is wrong: every endpoint would reject it."""

    kind = "caller"
    code = "invalid_request"
    inner: Mapping[str, object] | None = None
    """The verdict of the upstream's filter of content, for clients of OpenAI's API."""


class NotFound(CallerError):
    """The model does not exist, or the caller may not use it. One error for both, so that names do not leak."""

    code = "model_not_found"
    cause = "model_unknown"


class NotThere(NotFound):
    """The endpoint is healthy but has no model of the client's name: another endpoint may have loaded it."""

    cause = "upstream_model"
    retryable = True


class TooLarge(CallerError):
    """A body exceeds its limit."""

    code = "request_too_large"


class ContextTooLong(CallerError):
    """Prompt and requested output exceed the model's context."""

    code = "context_length_exceeded"


class BudgetExceeded(CallerError):
    """A call of a pipeline's model may cost more than the budget of the pipeline for one request."""

    code = "pipeline_budget_exceeded"


class ContentFiltered(CallerError):
    """A guard of a route, or of a pipeline, blocked the request or its answer."""

    code = "content_filter"


class ContentRefused(CallerError):
    """The provider refuses the content. Another provider may accept it: a route decides whether that one is asked."""


class Unsupported(CallerError):
    """The servers of the model do not support the operation."""

    code = "unsupported_operation"


class TakesNoPrompts(Unsupported):
    """The servers take tensors, but no prompts of the generate extension."""


class HasNoState(Unsupported):
    """The servers have no state between requests, so no sequences."""


class SeveralResponses(Unsupported):
    """The model answers a request with any number of responses: only a stream can have them."""


class CredentialError(InferenceError):
    """The key is missing, unknown, revoked or expired: one message for all cases."""

    kind = "credential"
    code = "invalid_api_key"
    cause = "unknown"
    holder: tuple[str, str, str] | None = None
    """Tenant, key and team of a credential that was right until it ended; None if nothing proves them."""


class Forbidden(InferenceError):
    """The credential is valid but does not permit the request."""

    kind = "credential"
    code = "not_in_scope"
    cause = "not_permitted"


class CapacityError(InferenceError):
    """The upstream is full, or the tenant exceeds its share."""

    kind = "capacity"
    code = "overloaded"
    cause = "upstream_overloaded"
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
        """The scope of the upstream's limit. `unknown`: not reported, and the limit may apply to each client."""


class LimitExceeded(CapacityError):
    """The tenant exceeds one of its limits, which `limit` names."""

    code = "rate_limit_exceeded"
    cause = "fair_share"
    blames_endpoint = False
    retryable = False

    def __init__(self, message: str, *, limit: str, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)
        self.limit = limit
        self.because(self.cause, unit=limit)


class StorageFull(LimitExceeded):
    """The tenant stores as much as it may. Only deletions help, so that no retry is advised."""

    code = "storage_quota_exceeded"
    cause = "storage"

    def __init__(self, message: str) -> None:
        super().__init__(message, limit="storage", retry_after=inf)


class AccountRefused(CapacityError):
    """The account of the pool's key has no credit or no quota left. The endpoint rests, for every model.

    With the scope `tenant` the credit is too little for this request only, and nothing rests.
    """

    code = "upstream_quota_exhausted"
    cause = "upstream_account"
    blames_endpoint = False
    elsewhere_only = True


class ComputationLost(CapacityError):
    """The copy of the model that computed the request died or took too long. The request may be the cause."""

    code = INSTANCE_LOST
    cause = "upstream_lost"
    blames_endpoint = False
    retryable = False
    delivered = True

    def __init__(self, message: str, *, detail: str, retry_after: float | None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.detail = detail


class Drained(CapacityError):
    """The gateway ended its drain before the answer was complete."""

    code = "gateway_draining"
    cause = "drained"
    blames_endpoint = False
    retryable = False
    delivered = True


class Unavailable(CapacityError):
    """No endpoint may be selected: each is unhealthy, full, or has an open breaker."""

    code = "no_healthy_endpoint"
    cause = "no_healthy_endpoint"
    blames_endpoint = False


class ModelNotReady(Unavailable):
    """The endpoint is healthy but has not loaded the model. Another endpoint of the pool may have loaded it.

    `state` is LOADING, UNLOADING or UNAVAILABLE, or empty if the endpoint reports no state; `reason` is the endpoint's
    own text. `versions` are the versions that the endpoint reports. `retry_after` is infinite if waiting cannot help.
    """

    code = MODEL_NOT_READY
    cause = "model_not_ready"
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


class NonePermitted(Unavailable):
    """The proxy that carries the request permits no endpoint of the pool that may be selected."""

    code = "no_permitted_endpoint"
    cause = "none_permitted"


class Resting(Unavailable):
    """Every remaining endpoint requires a pause; `retry_after` is the shortest pause."""

    code = "overloaded"
    cause = "upstream_resting"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after: float = retry_after


class AccountsRest(Resting):
    """No account of the pool may send the request now; `retry_after` is the earliest reset."""

    code = "upstream_rate_limited"
    cause = "upstream_quota"


class Overloaded(Unavailable):
    """Every endpoint is full, and the request cannot wait: no queue, a full queue, or no time left."""

    code = "overloaded"
    cause = "pool_full"


class BackendError(InferenceError):
    """The upstream failed on a request that may succeed elsewhere, or its response is unreadable."""

    kind = "backend"
    code = "upstream_error"
    blames_endpoint = True
    retryable = True


class ModelFailed(BackendError):
    """The server is healthy, but its model failed on the request. The message is the model's own."""

    code = MODEL_FAILED
    elsewhere_only = True

    def __init__(self, message: str, *, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class ServerFailed(ModelFailed):
    """The server reports that it failed on the request. Another attempt may succeed, even at the same endpoint."""

    code = BackendError.code
    elsewhere_only = False


class PoisonRequest(ModelFailed):
    """A runtime reports that the model always fails on this request: no retry can help."""

    blames_endpoint = False
    retryable = False


class StepFailed(BackendError):
    """A step of a pipeline failed for a reason that the client did not cause, such as another step's output.

    `step` is the name of the step, with those of the steps around it: `recognise` or `page.recognise`.
    """

    code = "pipeline_step_failed"
    blames_endpoint = False
    retryable = False

    def __init__(self, message: str, *, step: str = "") -> None:
        super().__init__(message)
        self.step = step


class GuardFailed(BackendError):
    """A guard that blocks what it cannot judge could not judge the content."""

    code = "guard_failed"
    blames_endpoint = False
    retryable = False


class TransportError(InferenceError):
    """The upstream could not be reached, or the connection broke."""

    kind = "transport"
    code = "upstream_unreachable"
    blames_endpoint = True
    retryable = True


class UpstreamTimeout(TransportError):
    """The upstream was silent for longer than the route permits (connect, first byte or idle)."""

    code = "upstream_timeout"


class UpstreamSilent(UpstreamTimeout):
    """The upstream has accepted the request, was silent for too long, and may still compute it."""


class DeadlineError(InferenceError):
    """The deadline of the request has passed."""

    kind = "deadline"
    code = "deadline_exceeded"


class ClientGone(InferenceError):
    """The client disconnected before the end."""

    kind = "cancelled"
    code = "client_closed_request"
