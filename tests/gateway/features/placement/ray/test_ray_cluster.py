"""The driver's process, with a program in its place that needs no Ray."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from config.schema.config import LlmRuntime
from gateway.features.placement.ray import cluster as module
from gateway.features.placement.ray.cluster import RayClusters
from gateway.features.placement.ray.runtime import RayRuntime
from tests.support.waiting import until

pytestmark = pytest.mark.processes

DRIVER = """
import json, os, sys

def report(message):
    os.write(1, json.dumps(message).encode() + b"\\n")

log = open(os.environ["DRIVER_LOG"], "a", buffering=1)
report({"connected": 3})
for line in sys.stdin:
    message = json.loads(line)
    log.write(line)
    if "place" in message:
        name = message["place"]["name"]
        report({"log": {"name": name, "lines": ["serving", "one model"]}})
        report({"state": {"name": name, "state": "placed", "reason": "", "address": "http://10.0.0.2:4000",
                          "pid": 7, "restarts": 0, "ends": 0, "last_end": ""}})
"""


@asynccontextmanager
async def placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RayClusters, RayRuntime, Path]]:
    program, log = tmp_path / "driver.py", tmp_path / "log"
    program.write_text(DRIVER)
    monkeypatch.setattr(module, "DRIVER", program)
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.01)
    monkeypatch.setenv("DRIVER_LOG", str(log))
    ray = {"address": "10.0.0.1:6379", "driver": sys.executable}
    config = LlmRuntime.model_validate({"kind": "llm", "model": "/m", "on": "ray", "ray": ray})
    clusters = RayClusters()
    runtime = clusters.make("pool", config, lambda reason: None, 0)
    runtime.start()
    try:
        await until(lambda: runtime.address)
        yield clusters, runtime, log
    finally:
        await clusters.aclose()


async def test_a_killed_driver_is_replaced_and_the_address_of_its_replica_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with placed(tmp_path, monkeypatch) as (clusters, runtime, log):
        (cluster,) = clusters
        first = cluster.driver
        assert first is not None
        assert cluster.nodes == 3
        psutil.Process(first).kill()
        await until(lambda: log.read_text().count("place") == 2)
        assert runtime.address == "http://10.0.0.2:4000"
        assert cluster.driver != first
        assert log.read_text().count("owner") == 2
    assert "runtime pool: one model" in caplog.text
    assert "the driver ended with status -9; the replicas that respond stay in use" in caplog.text


async def test_a_stopped_replica_is_released_and_a_closed_cluster_releases_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with placed(tmp_path, monkeypatch) as (clusters, runtime, log):
        assert clusters.occupies("pool")
        await runtime.stop()
        assert not clusters.occupies("pool")
        await until(lambda: f'"release": {{"name": "{runtime.spec.name}"' in log.read_text())
    async with placed(tmp_path, monkeypatch) as (clusters, runtime, log):
        (cluster,) = clusters
        driver = cluster.driver
        before = log.read_text()
        await clusters.aclose()
        await runtime.stop()
        assert driver is not None
        assert not psutil.pid_exists(driver)
        assert log.read_text() == before


async def test_an_interpreter_that_is_absent_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    ray = {"address": "10.0.0.1:6379", "driver": "/nowhere/python"}
    config = LlmRuntime.model_validate({"kind": "llm", "model": "/m", "on": "ray", "ray": ray})
    clusters = RayClusters()
    clusters.make("pool", config, lambda reason: None, 0).start()
    (cluster,) = clusters
    try:
        await until(lambda: cluster.error)
        assert cluster.error == "could not be started: /nowhere/python: No such file or directory"
    finally:
        await clusters.aclose()
