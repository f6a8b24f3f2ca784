"""What a route's settings come to, whole: pools, retries, fallbacks, over endpoints that fail as written."""

import asyncio

import pytest

from adapters.errors import BackendError, CapacityError, InferenceError, Resting
from adapters.fake import FakeAdapter, Script
from adapters.types import Deadline
from config.schema import Config
from gateway.snapshot import Snapshot, build
from gateway.traffic.kept import Kept
from policies.retry import RetryBudget
from tests.support.gateways import Rig, chat, config

FOREVER = Deadline(1e9, 1e9, 1e9)
POOLS = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "spare")]


@pytest.mark.looptime
async def test_a_429_is_honoured_by_the_others_and_by_the_fallback() -> None:
    """The endpoint that named a time is asked once; meanwhile the pool's other one, then the fallback, answer."""
    busy = [FakeAdapter(Script(fault=CapacityError("x", retry_after=20.0))) for _ in range(2)]
    spare = FakeAdapter()
    models = [{"name": "chat", "routes": [{"to": "main", "fallback": ["spare"], "retry": {"attempts": 2}}]}]
    rig = Rig(config(pools=POOLS, models=models), {"main": busy, "spare": [spare]})
    started = asyncio.get_running_loop().time()
    for _ in range(10):
        answer = await rig.core.handle(rig.principal, chat(), {}, rig.record())
        assert answer.pool == "spare"
    assert [len(fake.calls) for fake in busy] == [1, 1]
    assert len(spare.calls) == 10
    assert asyncio.get_running_loop().time() - started < 1.0  # nobody waited for the rest to end
    rig.assert_idle()


@pytest.mark.looptime
async def test_a_pool_without_a_fallback_waits_a_moment_and_else_says_when() -> None:
    short = FakeAdapter(Script(fault=CapacityError("x", retry_after=0.5)), Script())
    rig = Rig(config(), {"main": [short]})
    record = rig.record()
    assert (await rig.core.handle(rig.principal, chat(), {}, record)).status == 200
    assert record.attempts == 2
    long = Rig(config(), {"main": [FakeAdapter(Script(fault=CapacityError("x", retry_after=20.0)))]})
    with pytest.raises(CapacityError):
        await long.core.handle(long.principal, chat(), {}, long.record())
    with pytest.raises(Resting) as refused:
        await long.core.handle(long.principal, chat(), {}, long.record())
    assert 19.0 < refused.value.retry_after <= 20.0
    rig.assert_idle()
    long.assert_idle()


@pytest.mark.looptime
async def test_a_reload_grants_no_retries_anew() -> None:
    failing = FakeAdapter(Script(fault=BackendError("x")))
    written = config(models=[{"name": "chat", "routes": [{"to": "main", "retry": {"budget": "0%"}}]}])
    rig = Rig(written, {"main": [failing]})
    kept = Kept()
    for _ in range(20):
        rig.core.snapshot = _rebuilt(rig, written, kept)
        with pytest.raises(InferenceError):
            await rig.core.handle(rig.principal, chat(), {}, rig.record())
    assert len(failing.calls) == 20 + RetryBudget(0.0).floor
    rig.assert_idle()


def _rebuilt(rig: Rig, written: Config, kept: Kept) -> Snapshot:
    snapshot = rig.core.snapshot
    return build(written, snapshot.keys, snapshot.pools, rig.core.rng, rig.core.clock, kept=kept)


async def test_what_left_the_configuration_is_forgotten() -> None:
    kept = Kept()
    first = kept.retries(("chat", 0, "main"), 0.2)
    kept.retain(config())
    assert kept.retries(("chat", 0, "main"), 0.5) is first
    assert first.ratio == 0.5
    kept.retain(config(models=[{"name": "other", "routes": [{"to": "main"}]}]))
    assert kept.retries(("chat", 0, "main"), 0.5) is not first


@pytest.mark.looptime
async def test_the_overhead_of_a_stream_is_known_when_it_begins() -> None:
    rig = Rig(config(), {"main": [FakeAdapter(Script(latency=3.0))]})
    answer = await rig.core.handle(rig.principal, chat(stream=True), {}, record := rig.record())
    assert record.first_chunk - record.started == record.upstream_seconds == 3.0
    await answer.aclose()
    rig.assert_idle()
