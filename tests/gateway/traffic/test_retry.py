import asyncio
import contextlib
from random import Random

import pytest

from adapters.base import Upstream
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ComputationLost,
    DeadlineError,
    InferenceError,
    ModelFailed,
    PoisonRequest,
    Resting,
    TransportError,
    Unavailable,
    UpstreamSilent,
)
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from adapters.types import Deadline
from gateway.traffic.retry import Retry
from policies.retry import RetryBudget
from tests.support.deterministic import START
from tests.support.gateways import Rig, chat, config, infer
from tests.support.pools import FOREVER


def retry(
    upstream: Upstream,
    attempts: int = 3,
    budget: RetryBudget | None = None,
    base: float = 0.01,
    patient: bool = True,
    again: bool = False,
) -> Retry:
    return Retry(
        upstream,
        "main",
        attempts=attempts,
        base=base,
        budget=budget or RetryBudget(1.0),
        rng=Random(1),
        clock=asyncio.get_running_loop().time,
        patient=patient,
        again=again,
    )


def failing(*faults: InferenceError) -> FakeAdapter:
    return FakeAdapter(*[Script(fault=fault) for fault in faults], Script())


@pytest.mark.parametrize("fault", [BackendError("x"), TransportError("x"), CapacityError("x")])
async def test_a_transient_failure_is_retried(fault: InferenceError) -> None:
    fake = failing(fault, fault)
    assert (await retry(fake).call(chat(), Call(FOREVER))).body
    assert len(fake.calls) == 3


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("request_", [chat(), chat(stream=True), infer()], ids=["whole", "stream", "tensors"])
async def test_a_text_that_a_silent_server_may_still_write_is_requested_once(
    request_: ModelRequest, again: bool
) -> None:
    fake = failing(UpstreamSilent("x"))
    with contextlib.suppress(UpstreamSilent):
        await retry(fake, again=again).call(request_, Call(FOREVER))
    assert len(fake.calls) == (1 if request_.composes and not again else 2)


@pytest.mark.parametrize("fault", [CallerError("x"), DeadlineError("x"), Unavailable("x")])
async def test_a_permanent_failure_is_raised_at_once(fault: InferenceError) -> None:
    fake = failing(fault)
    with pytest.raises(type(fault)):
        await retry(fake).call(chat(), Call(FOREVER))
    assert len(fake.calls) == 1


async def test_retries_are_recorded_and_first_attempts_are_not() -> None:
    for faults in ([], [BackendError("x")], [BackendError("x"), TransportError("y")]):
        call = Call(FOREVER)
        await retry(failing(*faults)).call(chat(), call)
        assert call.trace.events == (("retry", "main"),) * len(faults)


async def test_attempts_count_the_first_and_the_last_error_is_raised() -> None:
    fake = failing(BackendError("first"), BackendError("second"), BackendError("third"))
    with pytest.raises(BackendError, match="second"):
        await retry(fake, attempts=2).call(chat(), Call(FOREVER))


async def test_nothing_is_retried_after_the_first_chunk() -> None:
    fake = FakeAdapter(Script(fault=TransportError("broke"), fault_after=1))
    answer = await retry(fake).call(chat(stream=True), Call(FOREVER))
    assert await answer.__anext__()
    with pytest.raises(TransportError):
        await answer.__anext__()
    assert len(fake.calls) == 1


async def test_when_everything_fails_the_budget_bounds_the_load() -> None:
    fake = FakeAdapter(Script(fault=BackendError("x")))
    budget = RetryBudget(0.2, floor=3)
    both = retry(fake, budget=budget)
    for _ in range(100):
        with pytest.raises(BackendError):
            await both.call(chat(), Call(FOREVER))
    assert len(fake.calls) <= 100 + 3 + 0.2 * 100


async def test_no_try_is_begun_that_cannot_end_in_time() -> None:
    fake = failing(BackendError("x"))
    with pytest.raises(BackendError):
        await retry(fake, base=10.0).call(chat(), Call(Deadline(START + 0.001, 1.0, 1.0)))
    assert len(fake.calls) == 1


async def test_a_short_rest_is_waited_for_once_and_is_no_attempt() -> None:
    fake = FakeAdapter(Script(fault=Resting("x", retry_after=1.0)), Script())
    assert (await retry(fake, attempts=1, budget=RetryBudget(0.0, floor=0)).call(chat(), Call(FOREVER))).body
    assert 1.0 <= asyncio.get_running_loop().time() - START <= 1.5
    still = FakeAdapter(Script(fault=Resting("x", retry_after=1.0)))
    with pytest.raises(Resting):
        await retry(still).call(chat(), Call(FOREVER))
    assert len(still.calls) == 2


@pytest.mark.parametrize(("seconds", "left", "patient"), [(5.0, 60.0, True), (1.0, 0.5, True), (1.0, 60.0, False)])
async def test_a_rest_is_not_waited_for_in_vain(seconds: float, left: float, patient: bool) -> None:
    """A rest is too long, beyond the deadline, or avoidable by a fallback."""
    fake = FakeAdapter(Script(fault=Resting("x", retry_after=seconds)))
    with pytest.raises(Resting):
        await retry(fake, patient=patient).call(chat(), Call(Deadline(START + left, 1.0, 1.0)))
    assert len(fake.calls) == 1
    assert asyncio.get_running_loop().time() == START


ERRORS: list[InferenceError] = [
    BackendError("x"),
    CapacityError("x"),
    CallerError("x"),
    TransportError("x"),
    ModelFailed("x", detail="x"),
    PoisonRequest("x", detail="x"),
    ComputationLost("x", detail="x", retry_after=1.0),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("endpoints", [1, 2, 3])
@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_no_failure_is_repeated_where_that_cannot_help(
    error: InferenceError, endpoints: int, attempts: int
) -> None:
    fakes = [FakeAdapter(Script(fault=error)) for _ in range(endpoints)]
    routes = [{"to": "main", "retry": {"attempts": attempts, "budget": "100%"}, "fallback": ["other"]}]
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "other")]
    models = [{"name": "chat", "routes": routes}]
    other = FakeAdapter()
    rig = Rig(config(pools=pools, models=models), {"main": fakes, "other": [other]})
    with contextlib.suppress(InferenceError):
        await (await rig.core.handle(rig.principal, chat(), {}, rig.record())).aclose()
    calls = [len(fake.calls) for fake in fakes]
    if not error.retryable:
        assert (sum(calls), len(other.calls)) == (1, 0)
    elif error.elsewhere_only:
        assert (sum(calls), max(calls), len(other.calls)) == (min(attempts, endpoints), 1, 1)
    else:
        assert (sum(calls), len(other.calls)) == (attempts, 1)
    rig.assert_idle()
