"""Graphs of steps run as described, in virtual time: random graphs against a model of their times, and single rules."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from math import inf

import pytest

from adapters.dataflow import Dataflow, GraphResult, run
from config.graph import GraphStep, needed

pytestmark = pytest.mark.looptime

Values = dict[str, int]


class Broken(Exception):
    """The failure of one step."""


class Script:
    """The behaviour of each step: how long it takes, whether it fails, and which outputs it leaves out."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.given = [f"in{i}" for i in range(rng.randint(1, 3))]
        self.missing = {value for value in self.given if rng.random() < 0.1}
        self.steps: list[GraphStep] = []
        values = list(self.given)
        for index in range(rng.randint(1, 12)):
            inputs = rng.sample(values, min(len(values), rng.randint(0 if rng.random() < 0.2 else 1, 3)))
            outputs = [f"v{index}.{i}" for i in range(rng.choice([0, 1, 1, 1, 2]) if index else 1)]
            if rng.random() < 0.2 and self.steps and self.steps[-1].outputs:
                outputs = [self.steps[-1].outputs[0]]  # a second producer
                inputs = [value for value in inputs if value not in outputs]
            optional = [value for value in inputs if rng.random() < 0.15]
            needs = tuple(value for value in inputs if value not in optional)
            step = GraphStep(f"s{index}", needs, tuple(outputs), tuple(optional), rng.random() < 0.7)
            self.steps.append(step)
            values += [value for value in outputs if value not in values]
        produced = [value for step in self.steps for value in step.outputs]
        self.outputs = frozenset(rng.sample(produced, rng.randint(1, min(3, len(produced)))))
        self.seconds = {step.name: rng.uniform(0.1, 10) for step in self.steps}
        self.fails = {step.name for step in self.steps if rng.random() < 0.12}
        self.left_out = {value for value in produced if rng.random() < 0.15}
        self.cancelled_at = rng.uniform(0.1, 15) if rng.random() < 0.25 else inf


class Expected:
    """The times of a script by plain recursion: when each value is there or absent, and when each step starts."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.steps = needed(script.steps, script.outputs)
        self.start: dict[str, float] = {}
        self.end: dict[str, float] = {}
        self.skipped: dict[str, float] = {}
        for step in self.steps:  # producers come before consumers
            self._step(step)
        failures = [self.end[step.name] for step in self.steps if step.required and self._failed(step)]
        self.fails_at = min(failures, default=inf)
        ends = [self.value(value)[1] for value in script.outputs]
        ends += [self._ended(step) for step in self.steps if not step.outputs]
        self.completes_at = max(ends)

    def value(self, name: str) -> tuple[bool, float]:
        """Whether a value is ever there, and since when this is certain."""
        if name in self.script.given:
            return name not in self.script.missing, 0.0
        producers = [step for step in self.steps if name in step.outputs]
        times = [self.end[step.name] for step in producers if self._produces(step, name)]
        return (True, min(times)) if times else (False, max((self._ended(step) for step in producers), default=0.0))

    def _step(self, step: GraphStep) -> None:
        states = {value: self.value(value) for value in (*step.inputs, *step.optional)}
        absent = [since for value, (there, since) in states.items() if not there and value in step.inputs]
        if absent:
            self.skipped[step.name] = min(absent)
            return
        self.start[step.name] = max((since for _, since in states.values()), default=0.0)
        self.end[step.name] = self.start[step.name] + self.script.seconds[step.name]

    def _ended(self, step: GraphStep) -> float:
        return self.end.get(step.name, self.skipped.get(step.name, 0.0))

    def _failed(self, step: GraphStep) -> bool:
        return step.name in self.end and step.name in self.script.fails

    def _produces(self, step: GraphStep, value: str) -> bool:
        return step.name in self.end and not self._failed(step) and value not in self.script.left_out


@pytest.mark.parametrize("group", range(4))
async def test_random_graphs_run_like_their_model(group: int) -> None:
    ends = set()
    for seed in range(group * 200, group * 200 + 200):
        ends.add(await _run_and_compare(Script(seed)))
    assert ends == {"complete", "failed", "cancelled"}


async def _run_and_compare(script: Script) -> str:
    expected = Expected(script)
    loop = asyncio.get_running_loop()
    began = loop.time()
    started: dict[str, float] = {}
    inputs_of: dict[str, set[str]] = {}
    running: set[str] = set()

    async def start(step: GraphStep, inputs: Values) -> Values:
        assert step.name not in started, "a step runs once"
        started[step.name] = loop.time() - began
        inputs_of[step.name] = set(inputs)
        running.add(step.name)
        try:
            await asyncio.sleep(script.seconds[step.name])
        finally:
            running.remove(step.name)
        if step.name in script.fails:
            raise Broken(step.name)
        return {value: 1 for value in step.outputs if value not in script.left_out}

    values = {value: 0 for value in script.given if value not in script.missing}
    work = asyncio.ensure_future(run(Dataflow(script.steps).plan(script.outputs), values, start))
    await asyncio.wait((work,), timeout=None if script.cancelled_at == inf else script.cancelled_at)
    work.cancel()
    await asyncio.wait((work,))
    seconds = loop.time() - began

    end = min(expected.completes_at, expected.fails_at, script.cancelled_at)
    assert not running
    assert seconds == pytest.approx(end, abs=1e-3)
    assert started == pytest.approx({name: at for name, at in expected.start.items() if at < end - 1e-6}, abs=1e-3)
    for step in expected.steps:
        if step.name in started:
            there = {value for value in (*step.inputs, *step.optional) if expected.value(value)[0]}
            assert inputs_of[step.name] == there
    if end == script.cancelled_at:
        assert work.cancelled()
        return "cancelled"
    if end == expected.fails_at:
        failed = [step.name for step in expected.steps if step.required and expected.end.get(step.name) == end]
        assert str(work.exception()) in failed
        return "failed"
    result = work.result()
    produced = {value for value in script.outputs if expected.value(value)[0]}
    assert script.outputs & result.values.keys() == produced
    optional = {
        step.name: expected.end[step.name] for step in expected.steps if step.name in script.fails & started.keys()
    }
    assert result.failures.keys() == {name for name, at in optional.items() if at <= end}
    return "complete"


DIAMOND = [
    GraphStep("top", ("in",), ("t",)),
    GraphStep("left", ("t",), ("l",)),
    GraphStep("right", ("t",), ("r",)),
    GraphStep("join", ("l", "r"), ("out",)),
]
Work = Callable[[GraphStep, Values], Awaitable[Mapping[str, int]]]


async def _run(steps: list[GraphStep], work: Work, *outputs: str) -> GraphResult[int]:
    return await run(Dataflow(steps).plan(frozenset(outputs or ("out",))), {"in": 1}, work)


async def test_single_steps_need_no_task() -> None:
    present = []

    async def work(step: GraphStep, inputs: Values) -> Values:
        present.append((step.name, asyncio.current_task(), len(asyncio.all_tasks())))
        return dict.fromkeys(step.outputs, sum(inputs.values()) + 1)

    result = await _run(DIAMOND, work)
    assert result.values == {"in": 1, "t": 2, "l": 3, "r": 3, "out": 7}
    mine = asyncio.current_task()
    assert [task is mine for _, task, _ in present] == [True, False, False, True]


async def test_futures_need_no_task() -> None:
    loop = asyncio.get_running_loop()

    def work(step: GraphStep, inputs: Values) -> asyncio.Future[Values]:
        future: asyncio.Future[Values] = loop.create_future()
        loop.call_later(1, future.set_result, dict.fromkeys(step.outputs, len(asyncio.all_tasks())))
        return future

    result = await _run(DIAMOND, work)
    assert set(result.values.values()) == {1}
    assert loop.time() == pytest.approx(3, abs=0.01)


async def test_a_failure_cancels_the_others_in_the_same_turn() -> None:
    loop = asyncio.get_running_loop()
    turns = 0
    cancelled_after: list[int] = []

    def count() -> None:
        nonlocal turns
        turns += 1
        counting[0] = loop.call_soon(count)

    counting = [loop.call_soon(count)]

    async def work(step: GraphStep, inputs: Values) -> Values:
        nonlocal turns
        if step.name == "left":
            turns = 0
            raise Broken
        if step.name == "right":
            try:
                await loop.create_future()
            finally:
                cancelled_after.append(turns)
        return dict.fromkeys(step.outputs, 1)

    with pytest.raises(Broken):
        await _run(DIAMOND, work)
    counting[0].cancel()
    assert cancelled_after
    assert cancelled_after[0] <= 3  # the end of the task, its callback, the cancelled task


async def test_a_failure_waits_for_steps_that_end_slowly() -> None:
    async def work(step: GraphStep, inputs: Values) -> Values:
        if step.name == "left":
            raise Broken
        if step.name == "right":
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(5)
        return dict.fromkeys(step.outputs, 1)

    with pytest.raises(Broken):
        await _run(DIAMOND, work)
    assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.01)


async def test_a_start_that_raises_at_once_is_a_failure_of_the_step() -> None:
    cancelled = []

    def work(step: GraphStep, inputs: Values) -> asyncio.Future[Values]:
        if step.name == "right":
            raise Broken
        future: asyncio.Future[Values] = asyncio.get_running_loop().create_future()
        if step.name == "left":
            future.add_done_callback(lambda future: cancelled.append(future.cancelled()))
        else:
            future.set_result(dict.fromkeys(step.outputs, 1))
        return future

    with pytest.raises(Broken):
        await _run(DIAMOND, work)
    await asyncio.sleep(0)
    assert cancelled == [True]


async def test_the_selected_branch_of_a_switch_runs_alone() -> None:
    steps = [
        GraphStep("switch", ("in",), ("yes", "no")),
        GraphStep("a", ("yes",), ("out",)),
        GraphStep("b", ("no",), ("b1",)),
        GraphStep("c", ("b1",), ("out",)),
    ]
    names = []

    async def work(step: GraphStep, inputs: Values) -> Values:
        names.append(step.name)
        return {"no": 1} if step.name == "switch" else dict.fromkeys(step.outputs, 2)

    assert (await _run(steps, work)).values["out"] == 2
    assert names == ["switch", "b", "c"]


async def test_the_first_of_several_producers_ends_the_others() -> None:
    steps = [GraphStep("slow", ("in",), ("out",)), GraphStep("fast", ("in",), ("out",))]

    async def work(step: GraphStep, inputs: Values) -> Values:
        await asyncio.sleep(10 if step.name == "slow" else 1)
        return {"out": 1}

    assert (await _run(steps, work)).values["out"] == 1
    assert asyncio.get_running_loop().time() == pytest.approx(1, abs=0.01)


async def test_a_result_waits_for_its_checks() -> None:
    steps = [GraphStep("guard", ("in",)), GraphStep("model", ("in",), ("out",))]

    async def work(step: GraphStep, inputs: Values) -> Values:
        await asyncio.sleep(3 if step.name == "guard" else 1)
        if step.name == "guard":
            raise Broken
        return {"out": 1}

    with pytest.raises(Broken):
        await _run(steps, work)
    assert asyncio.get_running_loop().time() == pytest.approx(3, abs=0.01)


async def test_a_second_cancellation_still_waits_for_the_steps() -> None:
    ended = []

    async def work(step: GraphStep, inputs: Values) -> Values:
        if step.name == "top":
            return {"t": 1}
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(5)
            ended.append(step.name)
        return {}

    task = asyncio.create_task(_run(DIAMOND, work))
    for _ in range(3):
        await asyncio.sleep(1)
        task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert ended == ["left", "right"]


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="a, b"):
        Dataflow([GraphStep("a", ("y",), ("x",)), GraphStep("b", ("x",), ("y",))])
