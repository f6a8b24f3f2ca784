"""A replica in a Ray cluster, by the reports of the driver."""

import logging
from typing import Any

import pytest

from config.schema.config import LlmRuntime
from gateway.features.placement.ray.runtime import RayRuntime, spec_of

PLACED = {"pid": 7, "restarts": 0, "ends": 0, "last_end": ""}


class Address:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def move(self, address: str) -> None:
        self.seen.append(address)


class NoCluster:
    def place(self, runtime: RayRuntime) -> None:
        raise AssertionError

    async def release(self, runtime: RayRuntime) -> None:
        """Nothing to let go of."""


def section(**settings: Any) -> LlmRuntime:
    ray = {"address": "10.0.0.1:6379", **settings.pop("ray", {})}
    return LlmRuntime.model_validate({"kind": "llm", "model": "/m", "on": "ray", "ray": ray, **settings})


def replica(ends: list[str]) -> RayRuntime:
    config = section()
    return RayRuntime("pool", config, spec_of("pool", 0, config), 0, ends.append, NoCluster())


def placed(address: str, **more: Any) -> dict[str, Any]:
    return {"state": "placed", "reason": "", "address": address, **PLACED, **more}


async def test_a_lost_node_removes_the_address_at_once_and_the_next_node_gives_another() -> None:
    ends: list[str] = []
    runtime, client = replica(ends), Address()
    runtime.follow(client.move)
    runtime.report({"state": "pending", "reason": "waits for a node with 1 CPU"})
    assert (runtime.address, ends, client.seen) == ("", [], [])
    runtime.report(placed("http://10.0.0.2:4000"))
    runtime.report({"state": "lost", "reason": "its node died"})
    assert (runtime.address, ends, runtime.restarts) == ("", ["was lost: its node died"], 1)
    runtime.report(placed("http://10.0.0.3:5000"))
    assert client.seen == ["http://10.0.0.2:4000", "", "http://10.0.0.3:5000"]
    await runtime.stop()
    runtime.report(placed("http://10.0.0.4:6000"))
    assert len(client.seen) == 3


async def test_a_new_driver_that_has_not_reached_a_replica_leaves_its_address() -> None:
    ends: list[str] = []
    runtime = replica(ends)
    runtime.report(placed("http://10.0.0.2:4000"))
    runtime.report({"state": "pending", "reason": "waits for a node with 1 CPU"})
    runtime.report({"state": "pending", "reason": "waits for a node with 1 CPU and more"})
    assert (runtime.address, ends) == ("http://10.0.0.2:4000", [])


async def test_a_server_that_no_node_can_hold_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    runtime, reason = replica([]), "no node of the 3 in the cluster has 4 GPU: the most of a node is 0 GPU"
    for _ in range(3):
        runtime.report({"state": "pending", "reason": reason})
    assert runtime.failing == reason
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == [f"runtime pool on Ray: {reason}"]
    runtime.report(placed("http://10.0.0.2:4000"))
    assert runtime.failing == ""


async def test_a_server_that_ends_soon_after_each_start_is_failing() -> None:
    ends: list[str] = []
    runtime = replica(ends)
    for count in (1, 2):
        runtime.report(placed("http://10.0.0.2:4000", pid=None, ends=count, last_end="ended with status 1"))
        assert runtime.failing == ""
    runtime.report(placed("http://10.0.0.2:4000", pid=None, ends=3, last_end="ended with status 1"))
    assert (runtime.failing, ends) == ("ended with status 1", ["ended with status 1"] * 3)


def test_the_name_of_an_actor_depends_on_everything_that_the_server_depends_on() -> None:
    first = spec_of("pool", 0, section())
    assert first.name.startswith("pool/0#")
    assert spec_of("pool", 0, section()).name == first.name
    others = [
        section(max_num_seqs=4),
        section(env={"A": "1"}),
        section(resources={"gpus": 1}),
        section(ray={"lease": "1m"}),
        section(ray={"key": "of-the-runtime"}),
    ]
    names = {spec_of("pool", 0, other).name for other in others} | {first.name, spec_of("pool", 1, section()).name}
    assert len(names) == len(others) + 2


def test_the_command_has_the_address_of_the_node_and_no_key() -> None:
    config = section(resources={"cpus": 4, "gpus": 0.5, "memory": "1GiB", "custom": {"a100": 1}}, ray={"key": "k3y"})
    spec = spec_of("pool", 0, config)
    line = " ".join(spec.command)
    assert line.startswith("-m runtimes.llm --host {host} --exit-with-parent --port {port} --model /m")
    assert "--threads 4" in line
    assert "k3y" not in line
    assert spec.env == {"HEADRACE_RUNTIME_KEY": "k3y"}
    assert spec.resources == {"CPU": 4.0, "GPU": 0.5, "memory": float(2**30), "a100": 1.0}
