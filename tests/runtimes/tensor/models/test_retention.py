"""Versions that a rollout can go back to stay loaded, and end by themselves when nobody retains them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.errors import NotFound, Unavailable
from runtimes.tensor.models.manager import ModelManager
from tests.runtimes.tensor.workshop import CONFIG, Workshop, managing, memory_used, put
from tests.support.conditions import until

pytestmark = pytest.mark.plain
NEWEST = CONFIG + "memory: 40B\nversions: {latest: 1}\n"


@pytest.fixture
async def manager(tmp_path: Path, workshop: Workshop) -> AsyncIterator[ModelManager]:
    """Room for 100 bytes, and models of 40."""
    for name in "abc":
        put(tmp_path, name, config=NEWEST)
    async with managing(tmp_path, workshop, memory_budget=100) as manager:
        yield manager


def in_service(manager: ModelManager, name: str, version: str = "") -> bool:
    served = manager.lease(name, version)
    if served is not None:
        served.release()
    return served is not None


async def test_a_retained_version_stays_beside_its_successor_until_its_time(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    await manager.load("a")
    manager.retain("a", "1", 1.0)
    put(tmp_path, "a", 2, config=NEWEST)
    await manager.load("a")
    assert in_service(manager, "a", "1")
    assert manager.table.versions("a") == ["1", "2"]
    manager.retain("a", "1", 2.0)  # extended
    await until(lambda: not in_service(manager, "a", "1"))
    assert manager.table.versions("a") == ["2"]
    assert in_service(manager, "a")
    await until(lambda: workshop.instances[0].closed)


async def test_a_version_that_the_policy_serves_stays_after_its_retention(manager: ModelManager) -> None:
    await manager.load("a")
    manager.retain("a", "", 0.01)
    record = manager.table.models["a"].versions[1]
    await until(lambda: record.releasing is None)
    assert in_service(manager, "a", "1")


async def test_other_versions_make_room_first(manager: ModelManager) -> None:
    await manager.load("a")
    manager.retain("a", "1", 60.0)
    await manager.load("b")
    await manager.load("c")  # a was not used for longest
    assert [in_service(manager, name) for name in "abc"] == [True, False, True]


async def test_memory_for_a_request_takes_precedence_over_a_retention(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "big", config=CONFIG + "memory: 90B\n")
    await manager.load("a")
    manager.retain("a", "1", 60.0)
    await manager.load("big")
    assert [in_service(manager, name) for name in ("a", "big")] == [False, True]
    manager.retain("a", "1", 60.0)  # no room: nothing in use is evicted for it
    await asyncio.sleep(0)
    assert in_service(manager, "big")
    await manager.unload("big")
    await until(lambda: memory_used(manager) == 0)
    manager.retain("a", "1", 60.0)
    await until(lambda: in_service(manager, "a", "1"))


async def test_an_order_to_unload_ends_a_retention(manager: ModelManager) -> None:
    await manager.load("a")
    manager.retain("a", "1", 60.0)
    await manager.unload("a")
    assert not in_service(manager, "a", "1")
    with pytest.raises(Unavailable):
        manager.retain("a", "1", 60.0)


@pytest.mark.parametrize(("name", "version"), [("none", ""), ("a", "7")])
async def test_an_unknown_version_is_not_retained(manager: ModelManager, name: str, version: str) -> None:
    await manager.load("a")
    with pytest.raises(NotFound):
        manager.retain(name, version, 60.0)
