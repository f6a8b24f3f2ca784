"""What the operators' door tells of limits and money."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.fake import FakeAdapter
from gateway.app import Gateway
from gateway.fronts.admin import describe
from tests.support.gateways import Rig, chat, config


@pytest.mark.looptime
async def test_state_tells_limits_and_spend_and_names_no_user() -> None:
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
            "requests": "10/min", "spend": "5 usd/day", "per": "tenant", "enforce": "always",
            "subjects": 1, "remaining": {"requests": 7, "spend": 4.25},
        },
        {
            "requests": "2/h", "concurrency": 3, "per": "user", "enforce": "always",
            "subjects": 2, "remaining": {"requests": 0, "concurrency": 3},
        },
    ]  # fmt: skip
    assert "ann" not in repr(state)


def described(rig: Rig) -> dict[str, Any]:
    gateway = SimpleNamespace(
        clock=rig.core.clock,
        fleet=[],
        ledger=rig.ledger,
        accepting=True,
        server=SimpleNamespace(connections=()),
        tokens=SimpleNamespace(key_sets=()),
        path=Path("headrace.yaml"),
        loaded="",
        last_error="",
    )
    return describe(cast(Gateway, gateway))
