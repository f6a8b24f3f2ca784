"""Runs a static graph of steps: each step starts as soon as its inputs are available.

    plan = Dataflow(steps).plan(outputs)              # once: the steps that these outputs need
    result = await run(plan, values, start)          # for each request

`start(step, inputs)` runs one step and returns its values; a value that it leaves out is absent. A step whose needed
input is absent is skipped, and so are all that need its outputs: this is how a switch selects a branch.

- The first failure of a required step cancels the other steps in the same turn of the loop, and is raised when these
  have ended.
- The run ends when each requested output is available or certainly absent, and each check (a step without outputs) has
  passed. Steps that still run are then cancelled, and have ended when `run` returns.
- Cancelling `run` cancels all steps.
- A single ready step is awaited in place, without a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Generic, TypeVar

from config.graph import GraphStep, cycle, needed, predecessors

__all__ = ["Dataflow", "GraphResult", "Plan", "Start", "run"]

V = TypeVar("V")


@dataclass(slots=True)
class GraphResult(Generic[V]):
    """The values of a run that has ended."""

    values: dict[str, V]
    """All values that were given or produced."""
    failures: dict[str, Exception] = field(default_factory=dict)
    """Failures of steps that are not required, by step."""


Start = Callable[[GraphStep, dict[str, V]], Awaitable[Mapping[str, V]]]
"""Runs one step. It may return a future, which then needs no task."""


async def run(plan: Plan, values: Mapping[str, V], start: Start[V]) -> GraphResult[V]:
    """Run the steps of a plan. `values` are the request's; those that it leaves out are absent.

    Raises the first failure of a required step.
    """
    if plan.chain and plan.sources <= values.keys() and plan.producers.keys().isdisjoint(values):
        return await _run_chain(plan, values, start)
    execution = _Execution(plan, values, start)
    try:
        await execution.run()
    finally:
        if execution.running:
            await execution.end()
    return execution.result


async def _run_chain(plan: Plan, values: Mapping[str, V], start: Start[V]) -> GraphResult[V]:
    """Run steps of which only one can be ready at a time. All values that no step produces are available."""
    result = GraphResult(dict(values))
    present = result.values
    absent: set[str] = set()
    for index, step in enumerate(plan.chain):
        if absent and not absent.isdisjoint(step.inputs):
            continue
        produced: Mapping[str, V] = {}
        try:
            produced = await start(step, _inputs(step, present))
        except Exception as error:
            if step.required:
                raise
            result.failures[step.name] = error
        for value in step.outputs:
            if value in produced:
                present[value] = produced[value]
            else:
                absent.add(value)
        if absent and _is_settled(plan, plan.chain[index + 1 :], present, absent):
            break
    return result


def _is_settled(plan: Plan, rest: Iterable[GraphStep], present: Collection[str], absent: set[str]) -> bool:
    """Whether no further step can change the outputs or fail a check. `absent` receives outputs of skipped steps."""
    checks = False
    for step in rest:
        if not absent.isdisjoint(step.inputs):
            absent.update(step.outputs)
        elif not step.outputs:
            checks = True
    return not checks and all(value in present or value in absent for value in plan.outputs)


def _inputs(step: GraphStep, present: Mapping[str, V]) -> dict[str, V]:
    inputs = {value: present[value] for value in step.inputs}
    for value in step.optional:
        if value in present:
            inputs[value] = present[value]
    return inputs


class _Execution(Generic[V]):
    """One run of a plan."""

    def __init__(self, plan: Plan, values: Mapping[str, V], start: Start[V]) -> None:
        self.result = GraphResult(dict(values))
        self.running: dict[asyncio.Future[Mapping[str, V]], int] = {}
        self._plan = plan
        self._start = start
        self._waits = list(plan.waits)
        """The number of values that each step still waits for; negative after its start or its skip."""
        self._producers = dict(plan.producers)
        """The number of steps that may still produce each missing value."""
        self._open = len(plan.outputs) + plan.checks
        """Outputs that are not settled, and checks that have not ended."""
        self._ready: list[int] = []
        self._ended: list[asyncio.Future[Mapping[str, V]]] = []
        self._wake: asyncio.Future[None] | None = None
        self._cancelled = False
        """The other steps were cancelled, so their exceptions are ignored."""

    async def run(self) -> None:
        self._begin()
        while self._open and (self._ready or self.running):
            if len(self._ready) == 1 and not self.running:
                await self._run_in_place(self._ready.pop())
                continue
            self._start_ready()
            await self._any_end()

    def _begin(self) -> None:
        """Settle the values of the request, and those that no step produces."""
        plan, given = self._plan, self.result.values
        self._ready = [index for index, count in enumerate(plan.waits) if not count]
        for index in self._ready:
            self._waits[index] = -1
        absent = [
            value for value in {*plan.consumers, *plan.outputs} if value not in given and value not in plan.producers
        ]
        for value in given:
            self._settle(value)
        self._withhold(absent)

    async def _run_in_place(self, index: int) -> None:
        step = self._plan.steps[index]
        try:
            produced = await self._start(step, _inputs(step, self.result.values))
        except Exception as error:
            if step.required:
                raise
            self._fail(index, error)
        else:
            self._produce(index, produced)

    def _start_ready(self) -> None:
        while self._ready:
            index = self._ready.pop(0)
            step = self._plan.steps[index]
            try:
                future = asyncio.ensure_future(self._start(step, _inputs(step, self.result.values)))
            except Exception as error:
                if step.required:
                    raise
                self._fail(index, error)
                continue
            self.running[future] = index
            future.add_done_callback(self._on_end)

    async def _any_end(self) -> None:
        """Wait until a step ends, and settle all that ended."""
        if self.running and not self._ended:
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        ended, self._ended = self._ended, []
        for future in ended:
            index = self.running.pop(future)
            error = None if future.cancelled() else future.exception()
            if isinstance(error, Exception) and not self._plan.steps[index].required:
                self._fail(index, error)
            else:
                self._produce(index, future.result())

    def _on_end(self, future: asyncio.Future[Mapping[str, V]]) -> None:
        failed = future.cancelled() or future.exception() is not None
        if failed and not self._cancelled and self._plan.steps[self.running[future]].required:
            self._ended.insert(0, future)  # this failure is the one to raise
            self._cancel()
        else:
            self._ended.append(future)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # ── values ────────────────────────────────────────────────────────────────────────────────────────

    def _produce(self, index: int, produced: Mapping[str, V]) -> None:
        """A step has ended well."""
        step, values = self._plan.steps[index], self.result.values
        if not step.outputs:
            self._open -= 1
        absent = []
        for value in step.outputs:
            if value not in produced:
                absent.append(value)
            elif value not in values:
                values[value] = produced[value]
                self._settle(value)
        if absent:
            self._withhold(self._given_up(absent))

    def _fail(self, index: int, error: Exception) -> None:
        """A step that is not required has failed."""
        self.result.failures[self._plan.steps[index].name] = error
        self._withhold(self._drop(index))

    def _settle(self, value: str) -> None:
        """A value is available."""
        if value in self._plan.outputs:
            self._open -= 1
        for index in self._plan.consumers.get(value, ()):
            self._wait_less(index)

    def _wait_less(self, index: int) -> None:
        self._waits[index] -= 1
        if not self._waits[index]:
            self._waits[index] = -1
            self._ready.append(index)

    def _withhold(self, absent: list[str]) -> None:
        """These values are absent for good: skip the steps that need them, and so on."""
        for value in absent:  # the list grows
            if value in self._plan.outputs:
                self._open -= 1
            for index in self._plan.consumers.get(value, ()):
                if self._waits[index] < 0:
                    continue
                if value in self._plan.steps[index].inputs:
                    self._waits[index] = -1
                    absent += self._drop(index)
                else:
                    self._wait_less(index)

    def _drop(self, index: int) -> list[str]:
        """A step produces nothing. Returns its values that no other step can produce."""
        step = self._plan.steps[index]
        if not step.outputs:
            self._open -= 1
        return self._given_up(step.outputs)

    def _given_up(self, values: Iterable[str]) -> list[str]:
        """The values among these that no step can produce any more."""
        absent = []
        for value in values:
            self._producers[value] -= 1
            if not self._producers[value] and value not in self.result.values:
                absent.append(value)
        return absent

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _cancel(self) -> None:
        """Cancel each step once: a second time would interrupt its clean-up."""
        if self._cancelled:
            return
        self._cancelled = True
        for future in self.running:
            future.cancel()

    async def end(self) -> None:
        """Cancel the steps that still run, and return when they have ended."""
        self._cancel()
        await all_ended(self.running)


async def all_ended(futures: Collection[asyncio.Future[V]]) -> None:
    """Wait for the end of all futures, even if this wait is cancelled: the cancellation is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while running := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


# A graph of steps, prepared for its runs: the part that some outputs need, and the consumers of each value.

PLANS = 64
"""Plans of one graph that are stored: one for each combination of outputs that requests name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of a graph that produces some outputs."""

    steps: tuple[GraphStep, ...]
    outputs: frozenset[str]
    waits: tuple[int, ...]
    """The values that each step waits for."""
    consumers: Mapping[str, tuple[int, ...]]
    """The steps that wait for each value."""
    producers: Mapping[str, int]
    """The number of steps that may produce each value."""
    checks: int
    """Steps without outputs."""
    chain: tuple[GraphStep, ...] = ()
    """All steps in order, if each needs the one before it: they need no bookkeeping."""
    sources: frozenset[str] = frozenset()
    """Values that the steps of a chain need from the request."""


class Dataflow:
    """A graph, and its plans. Raises `ValueError` for a cycle."""

    def __init__(self, steps: Iterable[GraphStep]) -> None:
        self.steps = tuple(steps)
        if circle := cycle(predecessors(self.steps)):
            raise ValueError(f"the steps {', '.join(circle)} need each other's outputs")
        self.plan = lru_cache(PLANS)(self._plan)

    def _plan(self, outputs: frozenset[str]) -> Plan:
        steps = needed(self.steps, outputs)
        consumers: dict[str, list[int]] = {}
        producers: dict[str, int] = {}
        waits = []
        for index, step in enumerate(steps):
            values = {*step.inputs, *step.optional}
            waits.append(len(values))
            for value in values:
                consumers.setdefault(value, []).append(index)
            for value in set(step.outputs):
                producers[value] = producers.get(value, 0) + 1
        by_value = {value: tuple(indexes) for value, indexes in consumers.items()}
        checks = sum(not step.outputs for step in steps)
        sources = frozenset(value for step in steps for value in step.inputs if value not in producers)
        return Plan(steps, outputs, tuple(waits), by_value, producers, checks, _chain(steps), sources)


def _chain(steps: tuple[GraphStep, ...]) -> tuple[GraphStep, ...]:
    """The steps in their only possible order; empty if there are several."""
    edges = predecessors(steps)
    by_name = {step.name: step for step in steps}
    order = [by_name[name] for name in TopologicalSorter(edges).static_order()]
    produced = [value for step in steps for value in step.outputs]
    is_chain = len(set(produced)) == len(produced) and all(
        before.name in edges[after.name] for before, after in pairwise(order)
    )
    return tuple(order) if is_chain else ()
