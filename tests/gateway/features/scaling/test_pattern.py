"""Replicas that start before the hours of recorded usage, from a real state database."""

import logging
from pathlib import Path
from typing import Any

import pytest

from config.schema.config import Config
from gateway.features.scaling.pattern import LEAD, UsagePattern
from gateway.features.usage.labels import HOUR
from gateway.state.errors import StoreUnavailable
from tests.support.fleets import Fleet
from tests.support.gateways import config
from tests.support.usage_hosts import NOVEMBER, Host, counting, record


def configured(**replicas: Any) -> Config:
    runtime = {"kind": "command", "command": ["serve", "{port}"], "replicas": {"min": 0, **replicas}}
    return config(pools=[{"name": "main", "runtime": runtime}])


async def test_a_replica_is_expected_in_the_hour_of_yesterday_s_requests(tmp_path: Path, any_database: str) -> None:
    one = Host(tmp_path / "counts", any_database)
    counter = counting(one.folder)
    counter.put(record(model="chat", at=NOVEMBER + 9 * HOUR))
    counter.close()
    one.now = float(NOVEMBER + 10 * HOUR)
    await one.writer.write()
    now = float(NOVEMBER + 33 * HOUR)  # the same hour of the next day
    pattern = UsagePattern(lambda: configured(prewarm=True), lambda: one.writer, lambda: now)
    await pattern.read()
    assert pattern.floor("main", 30.0) == 1
    now -= 30 + LEAD
    await pattern.read()
    assert pattern.floor("main", 30.0) == 1, "it does not start early"
    now -= 1
    assert pattern.floor("main", 30.0) == 0
    now = float(NOVEMBER + 34 * HOUR)
    await pattern.read()
    assert pattern.floor("main", 30.0) == 0
    now = float(NOVEMBER + (9 + 168) * HOUR)
    await pattern.read()
    assert pattern.floor("main", 30.0) == 1
    pattern = UsagePattern(configured, lambda: one.writer, lambda: now)
    await pattern.read()
    assert pattern.floor("main", 30.0) == 0, "`prewarm` is not set"
    await one.writer.aclose()


async def test_without_the_database_nothing_is_expected_and_one_warning_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unavailable:
        async def store(self) -> Any:
            raise StoreUnavailable("the database does not answer")

    pattern = UsagePattern(lambda: configured(prewarm=True), Unavailable)  # type: ignore[arg-type]
    for _ in range(3):
        await pattern.read()
    assert pattern.floor("main", 1.0) == 0
    assert [r.levelno for r in caplog.records] == [logging.WARNING]


async def test_the_pattern_is_a_floor_of_the_decision() -> None:
    class Expected:
        def floor(self, pool: str, start_seconds: float) -> int:
            return 1

    fleet = Fleet(min=0, max=2)
    fleet.autoscaler._pattern = Expected()  # type: ignore[assignment]
    await fleet.run(3)
    assert list(fleet.replicas) == [0]
