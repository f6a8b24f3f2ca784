"""Any order of events of models: a lease stays valid, and nothing is lost or held too long."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError, CapacityError, NotFound, Unavailable
from runtimes.tensor.models import residency
from runtimes.tensor.models.manager import ModelManager
from runtimes.tensor.models.served_model import ServedModel
from tests.runtimes.tensor.workshop import CONFIG, FakeInstance, Workshop, manager_of, memory_used, put, scheduler_of
from tests.support.conditions import until

pytestmark = pytest.mark.plain
NAMES = st.sampled_from("ab")
NUMBERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, NUMBERS, st.sampled_from(["fine", "fine", "other", "fail", "refuse"])),
        st.tuples(st.just("take away"), NAMES, NUMBERS, st.just("")),
        st.tuples(st.sampled_from(["load", "load meanwhile", "unload"]), NAMES, st.just(0), st.just("")),
        st.tuples(st.sampled_from(["lease", "lease", "open"]), NAMES, st.integers(0, 3), st.just("")),
        st.tuples(st.sampled_from(["release", "end", "turn"]), NAMES, st.just(0), st.just("")),
    ),
    min_size=4,
    max_size=25,
)
POLICY = "versions: {latest: 2}\nmemory: 40B\n"
WARMED = CONFIG + POLICY + "warmup: [{inputs: [{name: A, datatype: FP32, dims: [2]}]}]\n"
Step = tuple[str, str, int, str]


class Story:
    """One manager, and all its clients."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workshop = Workshop()
        self.manager: ModelManager = manager_of(root, self.workshop, memory_budget=100)
        self.leased: list[ServedModel] = []
        self.opened: list[ServedModel] = []
        self.loads: list[asyncio.Task[None]] = []

    async def play(self, steps: list[Step]) -> None:
        await self.manager.start()
        for name in "ab":  # so that there is something to change
            put(self.root, name, 1, config=WARMED)
            await self.manager.load(name)
        for action, name, number, words in steps:
            await self._step(action, name, number, words)
            await asyncio.sleep(0)
            self._check()
        await self._quiet()
        await self.manager.aclose()
        assert self.workshop.open == []
        assert memory_used(self.manager) == 0

    async def _step(self, action: str, name: str, number: int, words: str) -> None:
        version = str(number) if number else ""
        match action:
            case "put":
                put(self.root, name, number, words, WARMED)
            case "take away":
                shutil.rmtree(self.root / name / version, ignore_errors=True)
            case "load":
                await self._attempt(self.manager.load(name))
            case "load meanwhile":
                self.loads.append(asyncio.create_task(self._attempt(self.manager.load(name))))
            case "unload":
                await self.manager.unload(name)
            case "lease" | "open":
                served = self.manager.lease_sequence(name, version, "s")
                if served is None:
                    await self._attempt(self._wait(name, version))
                else:
                    self._hold(served, action)
            case "release" if self.leased:
                self.leased.pop(0).release()
            case "end" if self.opened:
                scheduler_of(self.opened.pop(0)).end("s")
            case "turn":
                await asyncio.sleep(0)

    async def _wait(self, name: str, version: str) -> None:
        self._hold(await self.manager.wait_for(name, version, None), "lease")

    def _hold(self, served: ServedModel, action: str) -> None:
        assert not any(isinstance(one, FakeInstance) and one.closed for one in served.instances)
        self.leased.append(served)
        if action == "open" and served not in self.opened:
            scheduler_of(served).sequences.add("s")
            self.opened.append(served)

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        with suppress(CallerError, NotFound, Unavailable, CapacityError):
            await work

    def _check(self) -> None:
        """Every version that requests can lease or hold is alive."""
        for served in (*self.manager.table.leases.values(), *self.leased, *self.opened):
            assert not any(isinstance(one, FakeInstance) and one.closed for one in served.instances)
            assert not scheduler_of(served).closed
        for name, record in self.manager.table.records():
            assert (record.served is None) or record.state == "READY", (name, record.number)
            assert not (record.cold and record.served is not None)
            assert record.usable == (record.state == "READY")

    async def _quiet(self) -> None:
        """When all leases are released, only the versions in service remain."""
        await asyncio.gather(*self.loads)
        for served in self.leased:
            served.release()
        for served in self.opened:
            scheduler_of(served).end("s")
        models = self.manager.table.models
        await until(lambda: not any(model.retiring for model in models.values()))
        await until(self._is_exact)
        self.leased.clear()
        self.opened.clear()
        self._check()

    def _is_exact(self) -> bool:
        served = [record.served for _, record in self.manager.table.records() if record.served is not None]
        alive = {id(one) for one in self.workshop.open}
        return alive == {id(one) for model in served for one in model.instances} and (
            memory_used(self.manager) == 40 * len(served)
        )


def virtually(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(story)


@given(STEPS)
@settings(max_examples=15)
def test_whatever_happens_leases_hold_and_nothing_stays(steps: list[Step]) -> None:
    wait, residency.WAIT_SECONDS = residency.WAIT_SECONDS, 0.0
    try:
        with tempfile.TemporaryDirectory() as folder:
            virtually(Story(Path(folder)).play(steps))
    finally:
        residency.WAIT_SECONDS = wait


@given(st.permutations(range(6)))
@settings(max_examples=10)
def test_loads_and_unloads_of_one_model_at_once_end_in_one_state(order: list[int]) -> None:
    async def story(root: Path) -> None:
        workshop = Workshop()
        manager = manager_of(root, workshop)
        put(root, "m")
        works = [manager.load("m") if number % 2 else manager.unload("m") for number in order]
        tasks = [asyncio.create_task(work) for work in works]
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(task.exception(), Unavailable | None) for task in tasks)
        assert (manager.lease("m", "") is not None) == order[-1] % 2  # the last operation decides
        await until(lambda: len(workshop.open) == order[-1] % 2)
        await manager.aclose()
        assert workshop.open == []

    with tempfile.TemporaryDirectory() as folder:
        virtually(story(Path(folder)))
