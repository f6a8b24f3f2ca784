"""The memory budget: which model is evicted, which never fits, and which returns on request."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError, CapacityError, DeadlineError, Unavailable
from runtimes.tensor.models import residency
from runtimes.tensor.models.manager import ModelManager
from runtimes.tensor.models.residency import MemoryBudget, MemoryHold, Occupant
from runtimes.tensor.models.served_model import ServedModel
from tests.runtimes.tensor.workshop import CONFIG, Workshop, manager_of, managing, memory_used, put, scheduler_of, used
from tests.support.conditions import until

pytestmark = pytest.mark.plain


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 300), st.floats(0, 100), st.booleans()), max_size=12),
    st.integers(0, 1200),
)
def test_the_least_recently_used_go_and_no_more_than_must(
    total: int, loaded: list[tuple[int, float, bool]], size: int
) -> None:
    budget = MemoryBudget(total)
    sizes: dict[MemoryHold, int] = {}
    idle: list[Occupant] = []
    for bytes_, last_used, is_idle in loaded:
        hold = MemoryHold()
        budget.hold(hold, bytes_)
        sizes[hold] = bytes_
        if is_idle:
            idle.append(Occupant(hold, last_used))
    victims = budget.victims(size, idle)
    missing = budget.used + size - total
    if victims is None:
        assert sum(sizes[occupant.hold] for occupant in idle) < missing
        return
    freed = [sizes[hold] for hold in victims]
    assert sum(freed) >= missing
    assert not victims or sum(freed[:-1]) < missing
    ages = {occupant.hold: occupant.last_used for occupant in idle}
    stay = [age for hold, age in ages.items() if hold not in victims]
    assert all(ages[hold] <= age for hold in victims for age in stay)


def test_without_a_budget_nothing_is_counted_against() -> None:
    budget = MemoryBudget()
    assert budget.fits(1 << 60)
    assert budget.victims(1 << 60, []) == ()


@pytest.fixture
async def manager(tmp_path: Path, workshop: Workshop) -> AsyncIterator[ModelManager]:
    """Room for 100 bytes, and three models of 40."""
    for name in "abc":
        put(tmp_path, name, config=CONFIG + "memory: 40B\n")
    async with managing(tmp_path, workshop, memory_budget=100) as manager:
        yield manager


async def wait_for(manager: ModelManager, name: str) -> ServedModel:
    served = manager.lease(name, "") or await manager.wait_for(name, "", None)
    served.release()
    return served


async def test_the_one_that_was_not_used_for_longest_makes_room_and_comes_back(
    manager: ModelManager, workshop: Workshop
) -> None:
    for name in "ab":
        await manager.load(name)
        await asyncio.sleep(1)
    await wait_for(manager, "a")
    await manager.load("c")
    assert manager.lease("b", "") is None
    assert memory_used(manager) == 80
    entry = next(entry for entry in await manager.index() if entry.name == "b")
    assert (entry.state, entry.reason) == ("READY", "cold: unloaded to free memory, loaded again by the next request")
    assert manager.table.is_ready("b")
    assert manager.table.describe("b")[1].name == "b"
    workshop.loaded.clear()
    assert (await wait_for(manager, "b")).name == "b"
    assert workshop.loaded == ["b/1"]
    assert memory_used(manager) == 80


async def test_many_requests_for_a_cold_model_load_it_once(manager: ModelManager, workshop: Workshop) -> None:
    for name in "abc":
        await manager.load(name)
    workshop.loaded.clear()
    assert {served.name for served in await asyncio.gather(*(wait_for(manager, "a") for _ in range(20)))} == {"a"}
    assert workshop.loaded == ["a/1"]


async def test_more_than_there_is_room_for_can_be_loaded_at_once(
    tmp_path: Path, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency, "WAIT_SECONDS", 1000.0)
    for name in "abcdef":
        put(tmp_path, name, config=CONFIG + "memory: 40B\n")
    async with asyncio.timeout(300), managing(tmp_path, workshop, "none", memory_budget=100) as manager:
        assert all(manager.table.is_ready(name) for name in "abcdef")
        assert memory_used(manager) == 80


async def test_one_in_use_is_left_alone(tmp_path: Path, manager: ModelManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "WAIT_SECONDS", 0.2)
    await manager.load("a")
    await manager.load("b")
    a, b = used(manager, "a"), used(manager, "b")
    with pytest.raises(CallerError, match="no memory for c version 1: all loaded models are in use"):
        await manager.load("c")
    waiting = asyncio.create_task(manager.load("c"))
    await until(lambda: "c" in manager.table.models)
    b.release()
    await waiting
    assert manager.lease("b", "") is None
    a.release()


async def test_an_open_sequence_is_use(manager: ModelManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "WAIT_SECONDS", 0.0)
    for name in "ab":
        await manager.load(name)
        served = used(manager, name)
        scheduler_of(served).sequences.add(1)
        served.release()
    with pytest.raises(CallerError, match="no memory"):
        await manager.load("c")
    assert manager.lease("a", "") is not None


@pytest.mark.parametrize("config", ["", "memory: 101B\n"])
async def test_one_larger_than_the_budget_is_refused(
    tmp_path: Path, manager: ModelManager, workshop: Workshop, config: str
) -> None:
    await manager.load("a")
    put(tmp_path, "big", words="memory=101", config=CONFIG + config)
    with pytest.raises(CallerError, match=r"big version 1 takes .* and the memory budget is 100B: raise it"):
        await manager.load("big")
    assert ("big/1" in workshop.loaded) == (not config)  # what is written need not be tried
    assert manager.lease("a", "") is not None
    assert memory_used(manager) == 40


async def test_configured_memory_replaces_the_measured(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, "m", words="memory=40", config=CONFIG + "memory: 70B\n")
    await manager.load("m")
    assert memory_used(manager) == 70


async def test_one_that_grew_makes_others_go_when_they_are_idle(tmp_path: Path, workshop: Workshop) -> None:
    put(tmp_path, "a", config=CONFIG + "memory: 40B\n")
    manager = manager_of(tmp_path, workshop, memory_budget=100)
    await manager.start()  # here: timers of a fixture stand still on virtual time
    await manager.load("a")
    put(tmp_path, "m", words="memory=90")  # its file is small, so it is let in
    a = used(manager, "a")
    await manager.load("m")
    assert memory_used(manager) == 130
    m = used(manager)
    a.release()
    await until(lambda: memory_used(manager) == 90)
    assert manager.lease("a", "") is None
    m.release()
    await manager.aclose()


async def test_a_cold_model_that_fails_is_tried_again_later(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    for name in "abc":
        await manager.load(name)
    put(tmp_path, "a", words="fail")
    for _ in range(3):
        with pytest.raises(Unavailable, match="cold, and cannot be loaded: it does not want to") as caught:
            await wait_for(manager, "a")
        assert caught.value.retry_after
    record = manager.table.models["a"].versions[1]
    assert record.failures == 1
    put(tmp_path, "a")
    record.retry_at = 0
    assert (await wait_for(manager, "a")).version == "1"
    assert (await manager.index())[0].reason == ""


async def test_a_request_without_time_does_not_wait_and_the_load_continues(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    for name in "abc":
        await manager.load(name)
    put(tmp_path, "a", words="hang")
    with pytest.raises(DeadlineError, match="still loading"):
        await manager.wait_for("a", "", asyncio.get_running_loop().time() + 0.05)
    await until(lambda: workshop.hanging == 1)
    leaving = asyncio.create_task(manager.wait_for("a", "", None))
    await asyncio.sleep(0)
    leaving.cancel()
    workshop.release.set()
    await until(lambda: manager.lease("a", "") is not None)


async def test_a_cold_model_that_is_unloaded_stays_away(tmp_path: Path, manager: ModelManager) -> None:
    for name in "abc":
        await manager.load(name)
    put(tmp_path, "a", words="hang")
    waiting = asyncio.create_task(manager.wait_for("a", "", None))
    await until(lambda: manager.table.models["a"].versions[1].warming is not None)
    await manager.unload("a")
    with pytest.raises(Unavailable, match="unloaded"):
        await waiting
    assert not manager.table.is_ready("a")


async def test_a_cold_model_that_is_loaded_anew_meanwhile_is_served_once(
    tmp_path: Path, manager: ModelManager, workshop: Workshop
) -> None:
    for name in "abc":
        await manager.load(name)
    put(tmp_path, "a", words="hang")
    waiting = asyncio.create_task(manager.wait_for("a", "", None))
    await until(lambda: workshop.hanging == 1)
    put(tmp_path, "a", words="other")
    await manager.load("a")
    new = used(manager, "a")
    workshop.release.set()
    assert await waiting is new
    new.release()
    new.release()
    await until(lambda: len([one for one in workshop.open if one.name.startswith("a_")]) == 1)


async def test_no_room_for_a_cold_model_is_an_overload(manager: ModelManager, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        await manager.load(name)
    monkeypatch.setattr(residency, "WAIT_SECONDS", 0.0)
    b, c = used(manager, "b"), used(manager, "c")
    with pytest.raises(CapacityError, match="There is no memory for a version 1"):
        await manager.wait_for("a", "", None)
    b.release()
    c.release()
    assert (await wait_for(manager, "a")).name == "a"
