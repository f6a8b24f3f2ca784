"""Metrics of waiting requests."""

import asyncio

import pytest
from prometheus_client import generate_latest

from adapters.errors import Overloaded
from adapters.fake import FakeAdapter, Script
from gateway.traffic.metrics.queues import QueueMetrics
from tests.support.gateways import Rig, chat, config


async def test_depth_waits_and_their_outcomes() -> None:
    pool = {"name": "main", "endpoints": ["http://127.0.0.1:9"], "queue": {"max_in_flight": 1, "max": 2}}
    rig = Rig(config(pools=[pool]), {"main": [FakeAdapter(Script(latency=1.0))]})
    rig.metrics.watch(QueueMetrics(rig.queues.values))
    low = {"x-headrace-priority": "low"}
    records = [rig.record() for _ in range(4)]
    calls = [asyncio.create_task(rig.core.handle(rig.principal, chat(), low, record)) for record in records[:3]]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await rig.core.handle(rig.principal, chat(), low, records[3])
    text = generate_latest(rig.metrics.registry).decode()
    assert 'headrace_queue_depth{pool="main",priority="low"} 2.0' in text
    assert 'headrace_queue_depth{pool="main",priority="high"} 0.0' in text
    assert 'headrace_queue_ended_total{end="full",pool="main",priority="low"} 1.0' in text
    await asyncio.gather(*calls)
    text = generate_latest(rig.metrics.registry).decode()
    assert 'headrace_queue_depth{pool="main",priority="low"} 0.0' in text
    assert 'headrace_queue_ended_total{end="served",pool="main",priority="low"} 2.0' in text
    assert 'headrace_queue_wait_seconds_count{pool="main"} 2.0' in text
    assert 'headrace_queue_wait_seconds_sum{pool="main"} 3.0' in text
    assert [record.trace.queue_seconds for record in records] == pytest.approx([0, 1, 2, 0])
    assert all(abs(record.overhead) < 1e-6 for record in records[:3])
    rig.assert_idle()
