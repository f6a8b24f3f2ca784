"""Explanations that their server refuses after the model has computed for them."""

from typing import Any

import pytest

from adapters.errors import CallerError
from adapters.fake import FakeAdapter, Script
from tests.support.gateways import Rig, config, explain


@pytest.mark.parametrize(("device_ms", "rows"), [(0.0, 100), (250.0, 93)])
async def test_a_refusal_after_computing_counts_against_the_limits_and_has_no_price(
    device_ms: float, rows: int
) -> None:
    error = CallerError("not finite for row 6")
    error.device_ms = device_ms
    limits: dict[str, Any] = {"rows": "100/min", "device_ms": "1000/min"}
    tenant = {"name": "acme", "models": ["*"], "limits": limits}
    one = Rig(config(tenants=[tenant]), {"main": [FakeAdapter(Script(fault=error))]})
    request = explain()
    request.payload.rows = 7
    with pytest.raises(CallerError):
        await one.core.handle(one.principal, request, {}, record := one.record())
    assert (one.left("rows"), one.left("device_ms")) == (rows, 1000 - device_ms)
    assert (record.cost, record.usage) == (None, None)
    one.assert_idle()
