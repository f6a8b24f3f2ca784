"""Pipelines while servers fail to describe themselves, and while the configuration changes."""

import asyncio

import pytest
from prometheus_client import generate_latest

from adapters.errors import TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelQuery
from adapters.wire.oip.bodies import decode_metadata
from gateway.features.pipelines.graphs import PIPELINES
from gateway.request.snapshot import build
from tests.gateway.features.pipelines.rigs import TWO, chat_fake, rig
from tests.support.gateways import Rig, chat

METADATA = (
    b'{"name":"a","inputs":[{"name":"x","datatype":"FP32","shape":[-1]}],'
    b'"outputs":[{"name":"y","datatype":"FP32","shape":[-1]}]}'
)


def reload(one: Rig, other: Rig) -> None:
    """Put the configuration of another rig in force, with the pools of the first one."""
    core = one.core
    pools = {**other.core.snapshot.pools, **core.snapshot.pools}
    core.snapshot = build(other.core.snapshot.config, one._keys(), pools, core.rng, core.clock, graphs=PIPELINES)


async def test_a_request_in_flight_ends_under_the_graph_with_which_it_started() -> None:
    one = rig(TWO, {"a": chat_fake("draft", latency=1.0), "b": chat_fake("old")})
    other = rig({"steps": [{"name": "only", "model": "c"}]}, {"c": chat_fake("new")})
    record = one.record()
    running = asyncio.create_task(one.core.handle(one.principal, chat("whole"), {}, record))
    await asyncio.sleep(0.5)
    reload(one, other)
    answer = await one.core.handle(one.principal, chat("whole"), {}, later := one.record())
    assert answer.body is not None
    assert b'"new"' in answer.body
    assert not running.done()
    old = await running
    assert old.body is not None
    assert b'"old"' in old.body
    assert [step.name for step in record.trace.steps] == ["draft", "final"]
    assert [step.name for step in later.trace.steps] == ["only"]
    logged = [[step.step for step in line.steps or ()] for line in one.log.lines]
    assert logged == [["only"], ["draft", "final"]]
    exposed = generate_latest(one.metrics.registry).decode()
    for step in ("draft", "final", "only"):
        assert f'headrace_step_seconds_count{{pipeline="whole",step="{step}"' in exposed


async def test_a_failure_to_describe_a_model_is_reported_and_not_remembered() -> None:
    failing, described = Script(fault=TransportError("gone")), Script(chunks=(METADATA,))
    server = FakeAdapter(failing, failing, described)
    one = rig({"steps": [{"name": "only", "model": "a"}]}, {"a": server}, tensors="a")
    query = ModelQuery(model="whole")
    with pytest.raises(TransportError):
        await one.core.look_up(one.principal, query, {})
    answer = await one.core.look_up(one.principal, query, {})
    assert [tensor.name for tensor in decode_metadata(answer.body or b"").inputs] == ["x"]
