"""The state of limits and budgets at the operators' door."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from adapters.fake import FakeAdapter, Script
from gateway.process.data_plane import DataPlane
from gateway.process.plane_state import describe
from gateway.traffic.queue import PoolQueue
from tests.support.gateways import Rig, chat, config

BY_HOST = {"count": "host", "on_redis_failure": "allow"}


async def test_state_has_limits_and_spend_and_names_no_user() -> None:
    limits = [{"requests": "10/min", "spend": "5 usd/day"}, {"requests": "2/h", "per": "user", "concurrency": 3}]
    models = [{"name": "chat", "routes": [{"to": "main"}], "price": {"request": "0.25 usd"}}]
    tenant = {"name": "acme", "models": ["*"], "limits": limits}
    one = Rig(config(tenants=[tenant], models=models), {"main": [FakeAdapter()]})
    for user in ("ann", "ann", "bob"):
        await one.core.handle(one.principal, chat(user=user), {}, one.record())
    (state,) = described(one)["tenants"]
    assert state["spent"] == [{"key": one.key.id, "amount": "0.75 usd"}]
    assert state["limits"] == [
        {
            "requests": "10/min", "spend": "5 usd/day", "per": "tenant", "enforce": "always", **BY_HOST,
            "subjects": 1, "remaining": {"requests": 7, "spend": 4.25},
        },
        {
            "requests": "2/h", "concurrency": 3, "per": "user", "enforce": "always", **BY_HOST,
            "subjects": 2, "remaining": {"requests": 0, "concurrency": 3},
        },
    ]  # fmt: skip
    assert "ann" not in repr(state)


class NoMembers(list[Any]):
    """A fleet with nothing but queues."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self._rig = rig

    def queues(self) -> Iterator[PoolQueue]:
        return iter(self._rig.queues.values())


async def test_state_lists_the_waiting_requests() -> None:
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "queue": {"max_in_flight": 1}}]
    one = Rig(config(pools=pools), {"main": [FakeAdapter(Script(latency=1.0))]})
    calls = [
        asyncio.create_task(one.core.handle(one.principal, chat(), {"x-headrace-priority": priority}, one.record()))
        for priority in ("high", "normal", "low")
    ]
    await asyncio.sleep(0.5)
    (queue,) = described(one)["queues"]
    assert queue == {
        "pool": "main",
        "waiting": 2,
        "by_priority": {"high": 0, "normal": 1, "low": 1, "batch": 0},
        "by_tenant": {"acme": 2},
        "served_per_second": None,
    }
    await asyncio.gather(*calls)
    one.assert_idle()


def described(rig: Rig) -> dict[str, Any]:
    plane = SimpleNamespace(
        clock=rig.core.clock,
        fleet=NoMembers(rig),
        ledger=rig.ledger,
        accepting=True,
        listeners=SimpleNamespace(connections=0),
        metrics=SimpleNamespace(pools={}),
        identity=SimpleNamespace(tokens=SimpleNamespace(key_sets=())),
    )
    return describe(cast(DataPlane, plane))
