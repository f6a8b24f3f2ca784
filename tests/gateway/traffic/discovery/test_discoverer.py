import asyncio
from random import Random
from typing import Any

import pytest

from config.schema.config import DiscoverConfig
from gateway.traffic.discovery.discoverer import BACKOFF, Discoverer
from gateway.traffic.discovery.target import MAX_TARGETS, DiscoveredEndpoint, DiscoveryError
from tests.gateway.traffic.discovery.following import Scripted, urls

A, B = DiscoveredEndpoint("http://10.0.0.1:80"), DiscoveredEndpoint("http://10.0.0.2:80")


def scripted(**fields: Any) -> tuple[Discoverer, Scripted]:
    config = DiscoverConfig(file="unused.yaml", **fields)
    discoverer, source = Discoverer("main", config, asyncio.get_running_loop().time, Random(1)), Scripted()
    discoverer._source = source
    discoverer.start()
    return discoverer, source


async def test_a_report_counts_at_once_each_address_once_in_one_order() -> None:
    discoverer, source = scripted()
    changes = []
    discoverer.on_change = lambda: changes.append(urls(discoverer))
    await asyncio.sleep(0)
    source.report([B, A, B])
    source.report([A, B])
    source.report([A])
    assert changes == [[A.url, B.url], [A.url]]
    assert discoverer.error == ""
    discoverer.stop()


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (DiscoveryError("no answer"), "no answer"),
        (RecursionError("no"), "the answer cannot be used: RecursionError: no"),
    ],
)
async def test_a_failing_source_changes_nothing_and_is_polled_with_backoff(failure: Exception, reported: str) -> None:
    discoverer, source = scripted(grace="10s")
    await asyncio.sleep(0)
    source.report([A, B])
    source.fail(failure)
    await asyncio.sleep(3600)
    assert urls(discoverer) == [A.url, B.url]
    assert discoverer.error == reported
    assert discoverer.age == pytest.approx(3600, abs=1)
    assert 3600 / BACKOFF[1] - 5 < source.follows < 3600 / BACKOFF[1] * 2 + 10
    source.error = None
    await asyncio.sleep(31)
    source.report([A])
    assert (urls(discoverer), discoverer.error) == ([A.url], "")
    discoverer.stop()


async def test_nothing_at_all_is_believed_after_the_grace() -> None:
    discoverer, source = scripted(grace="10s")
    await asyncio.sleep(0)
    source.report([A, B])
    source.report([])
    await asyncio.sleep(5)
    source.report([])
    assert urls(discoverer) == [A.url, B.url]
    assert "no endpoint" in discoverer.error
    await asyncio.sleep(5.1)
    assert urls(discoverer) == []
    source.report([B])
    assert (urls(discoverer), discoverer.error) == ([B.url], "")
    discoverer.stop()


async def test_nothing_for_a_moment_changes_nothing() -> None:
    discoverer, source = scripted(grace="10s")
    changes = []
    await asyncio.sleep(0)
    source.report([A, B])
    discoverer.on_change = lambda: changes.append(urls(discoverer))
    source.report([])
    await asyncio.sleep(9)
    source.report([A, B])
    await asyncio.sleep(60)
    assert changes == []
    discoverer.stop()


async def test_endpoints_are_capped_to_the_same_ones_everywhere() -> None:
    discoverer, source = scripted()
    await asyncio.sleep(0)
    many = [DiscoveredEndpoint(f"http://10.0.{i // 250}.{i % 250}:80") for i in range(MAX_TARGETS + 7)]
    source.report(reversed(many))
    assert len(discoverer.targets) == MAX_TARGETS
    assert str(MAX_TARGETS + 7) in discoverer.error
    first = discoverer.targets
    source.report(many)
    assert discoverer.targets == first
    discoverer.stop()


async def test_a_start_waits_for_the_first_word_and_not_for_ever() -> None:
    discoverer, source = scripted()
    waiting = asyncio.create_task(discoverer.first())
    await asyncio.sleep(1)
    source.report([A])
    assert await waiting
    silent, _ = scripted()
    assert not await silent.first()
    assert silent.error == "has not answered yet"
    silent.stop()
    discoverer.stop()
