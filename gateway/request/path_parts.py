"""The parts of a request's path that clients' requests and the steps of pipelines share."""

from collections.abc import Mapping

from msgspec.structs import replace

from adapters import offload
from adapters.call import StepTrace
from adapters.errors import CallerError, ComputationLost, InferenceError, ModelFailed, NotFound
from adapters.offload import codecs
from adapters.requests import InferRequest, ModelRequest
from adapters.types import Deadline, Usage
from config.schema.config import TimeoutConfig
from config.schema.money import Money
from gateway.auth.keys import Principal
from gateway.telemetry import Record
from gateway.telemetry.redaction.secrets import without_secrets
from policies.facts import Facts
from policies.limits.limits import NOTHING, Amounts
from policies.limits.price import PriceRow
from policies.routing.decision import Decision
from policies.routing.rewrite import NotANumber, Rewrite
from policies.routing.rules import ResolvedModel

MOST_NAME = 128
"""Characters of a client's text in an error."""
NONE = frozenset[str]()


def deadline_of(timeout: TimeoutConfig, request: ModelRequest, now: float) -> Deadline:
    """The deadline of the route, or of the client if that is earlier.

    A text that is not streamed begins when it is complete: a server may be silent, or send spaces, until then.
    """
    total = timeout.total if request.timeout is None else min(timeout.total, request.timeout)
    if request.composes and not request.stream:
        whole = total if timeout.whole is None else timeout.whole
        return Deadline(now + total, whole, whole)
    return Deadline(now + total, timeout.first_byte, timeout.idle)


def facts_of(
    principal: Principal,
    request: ModelRequest,
    model: ResolvedModel,
    headers: Mapping[str, str],
    id: str,
    now_utc: float,
) -> Facts:
    """The facts that rules may read. The request has the model's own name."""
    return Facts(
        principal.tenant,
        principal.key_id,
        request.model,
        headers,
        request.stream,
        request.prompt_tokens,
        request.user,
        id,
        principal.roles,
        principal.labels,
        model.requested or request.model,
        model.version or request.version,
        request.operation,
        request.max_tokens,
        request.n,
        now_utc,
        request.sequence,
        request.uses_feature,
        principal.team,
        principal.lineage,
    )


def check_fields(request: ModelRequest, decision: Decision, record: Record) -> None:
    """Check the fields that the decoder omitted against the route. Raises `CallerError`."""
    dropped = NONE if decision.rewrite is None else decision.rewrite.gone
    ignored = record.trace.ignored
    if request.ignored:
        ignored.add(request.ignored)
    record.ignored = ignored.ignored
    if request.invalid is not None:
        request.invalid.check(dropped)
    if decision.strict or dropped or ignored.ignored:
        ignored.enforce(decision.strict, dropped)


async def prepared(decision: Decision, request: ModelRequest) -> ModelRequest:
    """The request as the route, or the arm of a rollout, sends it. This precedes the reservation. Raises
    `CallerError`."""
    if decision.version:
        request = replace(request, version=decision.version)
    return request if decision.rewrite is None else await rewritten(decision.rewrite, request)


async def rewritten(rewrite: Rewrite, request: ModelRequest) -> ModelRequest:
    """The request as the route rewrites it. This precedes the reservation, whose amounts it may change."""
    codec = request.codec
    try:
        if isinstance(request, InferRequest) and request.size >= offload.SCANNED:
            before = await codecs.fields_of(request)
            return await codecs.rewritten(request, rewrite(before, lambda name: codec.accepts(request, name)))
        return codec.rewrite(request, rewrite(codec.fields(request), lambda name: codec.accepts(request, name)))
    except NotANumber as error:
        raise CallerError(str(error), param=error.field) from None


async def separated(request: ModelRequest, tenant: str) -> ModelRequest:
    """The request with an id of its sequence that no other tenant can use."""
    if isinstance(request, InferRequest) and request.size >= offload.SCANNED:
        return await codecs.separated(request, tenant)
    return request.codec.separate(request, tenant)


def amounts_of(request: ModelRequest, usage: Usage | None) -> Amounts:
    """The amounts to charge for a usage; nothing without an answer."""
    if usage is None:
        return NOTHING
    return (1, usage.total_tokens, usage.rows, request.size + usage.bytes, usage.device_ms)


def computed_before(request: ModelRequest, error: BaseException | None) -> Usage | None:
    """The usage of a request that was refused after its model had computed for it; None for any other."""
    if not isinstance(error, InferenceError) or not error.device_ms:
        return None
    return Usage(rows=request.row_count, device_ms=error.device_ms)


def with_guards(amounts: Amounts, cost: Money | None, spent: StepTrace) -> tuple[Amounts, Money | None]:
    """The amounts and the cost of a request with those of the guards that have called models for it."""
    usage, own = spent.usage or Usage(), spent.cost
    requests, tokens, rows, size, device_ms = amounts
    if own is not None:
        cost = own if cost is None else Money(cost.picos + own.picos, cost.currency)
    return (requests, tokens + usage.total_tokens, rows + usage.rows, size, device_ms + usage.device_ms), cost


def charge(price: PriceRow, usage: Usage) -> Money:
    """The cost of an answer."""
    return price.cost(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        usage.cache_write_tokens,
        usage.cache_hour_tokens,
    )


def unknown_model(name: str, cause: str) -> NotFound:
    """The one error for a model that does not exist or may not be used: clients learn no names. Operators learn the
    cause."""
    message = f"The model `{name[:MOST_NAME]}` does not exist or you may not use it."
    return NotFound(message, param="model").because(cause, model=without_secrets(name[:MOST_NAME]))


def hide_model_error(error: BaseException | None) -> None:
    """Hide a model's own message from the client. The access log has the message."""
    if isinstance(error, ModelFailed | ComputationLost):
        error.message = "The model failed."
    elif isinstance(error, InferenceError) and error.own_message:
        error.message = error.own_message
