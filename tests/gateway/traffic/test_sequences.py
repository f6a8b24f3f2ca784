"""The requests of a sequence stay with the endpoint that has its state, in all circumstances."""

import asyncio
from typing import Any

import pytest

from adapters.errors import BackendError, InferenceError, TransportError, Unavailable
from adapters.fake import FakeAdapter, Script
from gateway.traffic import sequences
from tests.support.deterministic import START
from tests.support.gateways import Rig, config, infer

WHOLE = Script(chunks=(b"{}",))
ROUTE: dict[str, Any] = {"to": "main", "retry": {"attempts": 3}}


def rig(*fakes: FakeAdapter, route: dict[str, Any] | None = None, **changes: Any) -> Rig:
    models = [{"name": "chat", "routes": [route or ROUTE]}]
    return Rig(config(models=models, **changes), {"main": list(fakes or [FakeAdapter(WHOLE) for _ in range(4)])})


async def send(one: Rig, sequence: str, **fields: Any) -> str:
    """The endpoint that answers."""
    record = one.record()
    await one.core.handle(one.principal, infer(sequence=sequence, **fields), {}, record)
    one.assert_idle()
    return record.endpoint


async def test_all_requests_of_a_sequence_reach_one_endpoint() -> None:
    one = rig()
    homes = set()
    for number in range(40):
        endpoints = {await send(one, str(number), starts=i == 0, ends=i == 4) for i in range(5)}
        assert len(endpoints) == 1
        homes |= endpoints
    assert len(homes) == 4  # and different ones different endpoints


async def test_it_stays_there_when_endpoints_join() -> None:
    one = rig()
    before = {str(i): await send(one, str(i), starts=True) for i in range(20)}
    pool = one.core.snapshot.pools["main"]
    more = rig().core.snapshot.pools["main"].endpoints
    for number, endpoint in enumerate(more):
        endpoint.id = f"main/new{number}"
        endpoint.address = endpoint.id
    pool.endpoints = [*pool.endpoints, *more]
    assert {sequence: await send(one, sequence) for sequence in before} == before


async def test_a_drained_endpoint_finishes_its_sequences() -> None:
    one = rig()
    home = await send(one, "7", starts=True)
    pool = one.core.snapshot.pools["main"]
    pool.leaving = [endpoint for endpoint in pool.endpoints if endpoint.id == home]
    pool.endpoints = [endpoint for endpoint in pool.endpoints if endpoint.id != home]
    assert await send(one, "7", ends=True) == home
    assert await send(one, "7", starts=True) != home


async def test_a_sequence_of_a_lost_endpoint_fails_and_can_restart() -> None:
    one = rig()
    home = await send(one, "7", starts=True)
    pool = one.core.snapshot.pools["main"]
    pool.endpoints = [endpoint for endpoint in pool.endpoints if endpoint.id != home]
    with pytest.raises(Unavailable) as lost:
        await send(one, "7")
    assert lost.value.code == "sequence_lost"
    assert await send(one, "7", starts=True) != home


async def test_another_gateway_routes_a_sequence_by_its_name() -> None:
    first, second = rig(), rig()
    for number in range(20):
        home = await send(first, str(number), starts=True)
        assert await send(second, str(number)) == home


@pytest.mark.parametrize("error", [TransportError("reset"), BackendError("broke")], ids=lambda e: type(e).__name__)
async def test_a_sequence_request_is_never_retried(error: InferenceError) -> None:
    """It is neither retried nor sent elsewhere: an endpoint may have counted it before the failure."""
    route = {**ROUTE, "hedge": {"after": "100ms"}, "fallback": ["other"]}
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "other")]
    models = [{"name": "chat", "routes": [route]}]
    fakes = [FakeAdapter(Script(latency=5.0, fault=error)) for _ in range(3)]
    other = FakeAdapter(WHOLE)
    one = Rig(config(pools=pools, models=models), {"main": fakes, "other": [other]})
    with pytest.raises(type(error)):
        await send(one, "7", starts=True)
    assert sum(len(fake.calls) for fake in fakes) == 1
    assert not other.calls


async def test_answers_of_a_sequence_are_not_cached() -> None:
    fake = FakeAdapter(WHOLE)
    one = rig(fake, route={**ROUTE, "cache": {"only": "all"}})
    for _ in range(2):
        await send(one, "7")
    assert len(fake.calls) == 2
    await send(one, "")
    await send(one, "")
    assert len(fake.calls) == 3  # other answers are cached


async def test_it_stays_with_its_arm() -> None:
    split = {"sticky": "request", "arms": [{"pool": "main", "weight": 1}, {"pool": "other", "weight": 1}]}
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "other")]
    one = Rig(
        config(pools=pools, models=[{"name": "chat", "routes": [{"split": split}]}]),
        {name: [FakeAdapter(WHOLE)] for name in ("main", "other")},
    )
    homes = {str(i): await send(one, str(i), starts=True) for i in range(30)}
    assert len(set(homes.values())) == 2
    for _ in range(3):
        assert {sequence: await send(one, sequence) for sequence in homes} == homes


async def test_a_sequence_waits_for_its_own_endpoint() -> None:
    fakes = [FakeAdapter(Script(chunks=(b"{}",), latency=1.0)) for _ in range(2)]
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "queue": {"max_in_flight": 1}}]
    one = rig(*fakes, pools=pools)
    records = [one.record() for _ in range(3)]
    waits = [one.core.handle(one.principal, infer(sequence="7"), {}, record) for record in records]
    await asyncio.gather(*waits)
    assert len({record.endpoint for record in records}) == 1
    assert asyncio.get_running_loop().time() == pytest.approx(START + 3.0, abs=0.1)
    one.assert_idle()


async def test_silent_sequences_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "MAX_SEQUENCES", 3)
    one = rig()
    for number in range(5):
        await send(one, str(number), starts=True)
    assert len(one.core.sequences) == 3
    await send(one, "4", ends=True)
    assert len(one.core.sequences) == 2
