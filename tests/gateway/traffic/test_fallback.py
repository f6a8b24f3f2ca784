import asyncio
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContentRefused,
    ContextTooLong,
    DeadlineError,
    InferenceError,
    LimitExceeded,
    TransportError,
    Unavailable,
    UpstreamSilent,
    UpstreamTimeout,
)
from adapters.fake import FakeAdapter, Script
from adapters.types import Deadline
from config.schema.config import FallbackConfig, TargetConfig
from config.schema.target import ANOTHER_MAY_DO
from gateway.traffic.fallback import Fallback, FallbackStep
from gateway.traffic.split import SplitUpstream
from policies.routing.decision import compiled
from tests.support.gateways import chat

FOREVER = Deadline(1e9, 60.0, 60.0)
ERRORS: dict[str, InferenceError] = {
    "capacity": CapacityError("x"),
    "unavailable": Unavailable("x"),
    "backend": BackendError("x"),
    "transport": TransportError("x"),
    "unaccepted": UpstreamTimeout("x"),
    "silent": UpstreamSilent("x"),
    "too long": ContextTooLong("x"),
    "caller": CallerError("x", code="content_policy_violation"),
    "content": ContentRefused("x", code="content_policy_violation"),
    "limit": LimitExceeded("x", limit="requests", retry_after=1.0),
    "deadline": DeadlineError("x"),
}
USUAL = {"capacity", "unavailable", "backend", "transport", "unaccepted"}


def failing(error: InferenceError) -> FakeAdapter:
    return FakeAdapter(Script(fault=error))


async def falls_back(error: InferenceError, *on: str) -> bool:
    up = FakeAdapter()
    step = FallbackStep(frozenset(FallbackConfig.model_validate({"pool": "p", "on": on} if on else "p").on), up)
    with suppress(type(error)):
        await Fallback(failing(error), [step]).call(chat(), Call(FOREVER))
    return len(up.calls) == 1


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ((), USUAL),
        (("capacity",), {"capacity", "unavailable"}),
        (("backend",), {"backend"}),
        (("transport",), {"transport", "unaccepted"}),
        (("timeout",), {"unaccepted", "silent"}),
        (("context_length",), {"too long"}),
        (("filtered",), {"content"}),
        ((*ANOTHER_MAY_DO, "context_length"), USUAL | {"too long"}),
    ],
)
async def test_each_class_of_failure_uses_its_configured_fallback(on: tuple[str, ...], expected: set[str]) -> None:
    """A request that is invalid, over a limit or out of time never falls back, under any configuration."""
    assert {name for name, error in ERRORS.items() if await falls_back(error, *on)} == expected


async def test_a_step_for_another_failure_is_passed_over_and_not_come_back_to() -> None:
    long = FakeAdapter(Script(fault=BackendError("long")))
    spare = FakeAdapter(Script(fault=ContextTooLong("spare")), Script())
    steps = [FallbackStep(frozenset({"context_length"}), long), FallbackStep(frozenset(ANOTHER_MAY_DO), spare)]
    with pytest.raises(ContextTooLong, match="spare"):
        await Fallback(failing(Unavailable("first")), steps).call(chat(), Call(FOREVER))
    assert (len(long.calls), len(spare.calls)) == (0, 1)
    await Fallback(failing(ContextTooLong("first")), steps).call(chat(), Call(FOREVER))
    assert (len(long.calls), len(spare.calls)) == (1, 2)


async def test_the_last_failure_is_the_answer() -> None:
    step = FallbackStep(frozenset(ANOTHER_MAY_DO), failing(BackendError("last")))
    with pytest.raises(BackendError, match="last"):
        await Fallback(failing(Unavailable("first")), [step]).call(chat(), Call(FOREVER))


async def test_a_client_that_leaves_is_not_sent_elsewhere() -> None:
    slow, other = FakeAdapter(Script(latency=60.0)), FakeAdapter()
    task = asyncio.create_task(
        Fallback(slow, [FallbackStep(frozenset(ANOTHER_MAY_DO), other)]).call(chat(), Call(FOREVER))
    )
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not other.calls


async def test_a_split_among_the_fallbacks_is_as_sticky_as_any() -> None:
    arms = [{"pool": "a", "weight": 3}, {"pool": "b", "weight": 1}]
    target = compiled(TargetConfig.model_validate({"split": {"sticky": "user", "arms": arms}}), "chat#0^0")
    assert target.split is not None
    fakes = {arm: FakeAdapter() for arm in ("a", "b")}
    split = SplitUpstream(target.split, fakes, Random(1))
    users = [f"u{i}" for i in range(400)] * 2
    for user in users:
        await split.call(chat(user=user), Call(FOREVER))
    assert len(fakes["a"].calls) + len(fakes["b"].calls) == len(users)
    assert 540 < len(fakes["a"].calls) < 660
    for fake in fakes.values():
        assert set(Counter(call.request.user for call in fake.calls).values()) == {2}
