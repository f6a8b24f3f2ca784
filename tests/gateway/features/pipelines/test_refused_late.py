"""Steps whose server refuses a call after its model has computed for it."""

from typing import Any

import pytest

from adapters.errors import CallerError, InferenceError
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import batch, floats, infer, infers, outputs, rig

LIMITS = {"rows": "100/min", "device_ms": "1000/min"}
INNER = {"name": "inner", "pipeline": {"steps": [{"name": "late", "model": "b", "in": {"x": "request.x"}}]}}


@pytest.mark.parametrize("refused", ["b", "inner"])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
async def test_a_step_that_is_refused_after_computing_counts_against_the_limits(refused: str, on_error: str) -> None:
    error = CallerError("not finite for row 1")
    error.device_ms = 250.0
    steps: list[dict[str, Any]] = [
        {"name": "answer", "model": "a", "in": {"x": "request.x"}},
        {"name": "why", "model": refused, "in": {"x": "request.x"}, "on_error": on_error},
    ]
    fakes = {"a": infers(floats("y", 7)), "b": FakeAdapter(Script(fault=error))}
    pipeline = {"steps": steps, "out": {"y": "answer.y", "why": "why.y"}}
    one = rig(pipeline, fakes, tensors="ab", limits=LIMITS, models=[INNER] if refused == "inner" else [])
    record = one.record()
    if on_error == "fail":
        with pytest.raises(InferenceError):
            await one.core.handle(one.principal, infer(batch(1)), {}, record)
    else:
        assert "y" in await outputs(await one.core.handle(one.principal, infer(batch(1)), {}, record))
    assert one.left("device_ms") == 750
    assert record.usage is not None
    assert record.usage.device_ms == 0  # it has no price, and is no part of the answer
