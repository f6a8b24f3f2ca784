"""Any arrivals, departures, failures, hangs, shapes and priorities: each request is answered once, and rightly."""

from __future__ import annotations

import asyncio
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from adapters.errors import CapacityError, DeadlineError, InferenceError
from adapters.tensors import Tensor
from runtimes.tensor.configuration.model_config import DynamicBatching, QueuePolicy
from runtimes.tensor.scheduling.batcher import Batcher
from tests.runtimes.tensor.scheduling.instances import (
    MURDER,
    POISON,
    VirtualInstance,
    model,
    request,
    values_of,
)
from tests.support.virtual_machine import VirtualMachine

pytestmark = pytest.mark.plain
EXECUTION_TIMEOUT = 3.0
QUEUE = 12


class BatcherMachine(VirtualMachine):
    """Values are unique, so a row that goes astray is found; `ends` counts how often each future ended."""

    @initialize(
        copies=st.integers(1, 3),
        max_rows=st.integers(1, 4),
        delay=st.sampled_from([0.0, 0.05]),
        ordered=st.booleans(),
        levels=st.sampled_from([0, 3]),
        timeout=st.sampled_from([0.0, 0.3]),
        action=st.sampled_from(["reject", "delay"]),
        preferred=st.sampled_from([(), (2,), (3, 4)]),
    )
    def start(
        self,
        copies: int,
        max_rows: int,
        delay: float,
        ordered: bool,
        levels: int,
        timeout: float,
        action: str,
        preferred: tuple[int, ...],
    ) -> None:
        self.ordered = ordered
        self.max_rows = max_rows
        self.futures: dict[int, asyncio.Future[list[Tensor]]] = {}
        self.rows: dict[int, list[int]] = {}
        self.due: dict[int, float] = {}
        self.ends: list[int] = []
        self.cancelled: set[int] = set()
        self.doomed: set[int] = set()
        self.next = 1
        rules = DynamicBatching(
            preferred_batch_size=preferred,
            max_queue_delay=delay,
            preserve_ordering=ordered,
            priority_levels=levels,
            default_priority_level=levels and 2,
            default_queue_policy=QueuePolicy(QUEUE, timeout, "delay" if action == "delay" else "reject", True),
        )
        self.copies = [VirtualInstance(f"copy-{n}", lambda rows: 0.05 + 0.01 * rows) for n in range(copies)]
        config = model(max_rows, (-1,), rules)

        async def make() -> Batcher:
            return Batcher(config, self.copies)

        self.batcher = self.run(make())

    @rule(
        count=st.integers(1, 9),
        width=st.integers(1, 2),
        special=st.sampled_from([0, 0, 0, 0, 0, POISON, MURDER]),
        patience=st.sampled_from([inf, inf, 0.02, 0.2, 1.0]),
        priority=st.integers(0, 4),
        timeout=st.sampled_from([0, 0, 100_000]),
    )
    def arrive(self, count: int, width: int, special: int, patience: float, priority: int, timeout: int) -> None:
        values = list(range(self.next, self.next + count))
        self.next += count
        if special:
            values[count // 2] = special
        number = values[0] if values[0] > 0 else self.next + 10_000

        async def submit() -> None:
            due = self.loop.time() + patience
            parameters = {"priority": priority, "timeout": timeout}
            try:
                future = self.batcher.infer(request(*values, width=width, parameters=parameters), due)
            except CapacityError:
                return
            self.futures[number] = future
            self.rows[number] = values
            self.due[number] = due
            if special:
                self.doomed.add(number)
            future.add_done_callback(lambda ended: self.ended(number, ended))

        self.run(submit())

    def ended(self, number: int, future: asyncio.Future[list[Tensor]]) -> None:
        self.ends.append(number)
        if not future.cancelled():
            future.exception()  # looked at, also when another check fails first

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        open_ = [number for number, future in self.futures.items() if not future.done()]
        if open_:
            number = data.draw(st.sampled_from(open_))
            if self.call(self.futures[number].cancel):  # else its end was on its way
                self.cancelled.add(number)

    @rule(seconds=st.sampled_from([0.001, 0.03, 0.1, 0.5]))
    def wait(self, seconds: float) -> None:
        self.pause(seconds)

    @rule(data=st.data())
    def hang(self, data: st.DataObject) -> None:
        """A copy never ends its next batch, until its watchdog kills it."""
        copy = data.draw(st.sampled_from(self.copies))
        if copy.ready and not copy.hangs and not copy.busy:
            copy.hangs = True

            def kill() -> None:
                if copy.hangs and copy.ready:
                    copy.die()

            self.call(lambda: self.loop.call_later(EXECUTION_TIMEOUT, kill))

    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        copy = data.draw(st.sampled_from(self.copies))
        if copy.ready:
            self.call(copy.die)

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "batcher"):
            return
        assert self.batcher.waiting <= QUEUE * 3
        assert len(self.ends) == len(set(self.ends)), "answered twice"
        assert all(sum(batch) <= self.max_rows for copy in self.copies for batch in copy.batches)
        late = self.loop.time() - 0.02
        assert all(future.done() for number, future in self.futures.items() if self.due[number] < late)

    @invariant()
    def no_copy_idles_beside_work(self) -> None:
        if hasattr(self, "batcher") and self.batcher.waiting:
            self.pause(0.11)  # longer than any delay for a batch, and than any batch takes
            if any(copy.ready and not copy.busy for copy in self.copies):
                assert not self.batcher.waiting

    def check_end(self) -> None:
        if not hasattr(self, "batcher"):
            return
        self.run(asyncio.wait_for(self.batcher.drain(), 1000))
        self.pause(1)
        assert set(self.ends) == set(self.futures), "never answered"
        for number, future in self.futures.items():
            self.check(number, future)
        self.in_order()
        assert self.batcher.waiting == self.batcher.computing == 0

    def check(self, number: int, future: asyncio.Future[list[Tensor]]) -> None:
        assert future.cancelled() == (number in self.cancelled)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            assert number not in self.doomed
            assert values_of(future.result()) == [2 * value for value in self.rows[number]]
        else:
            assert isinstance(error, InferenceError)
            assert error.code in {"model_failed", "instance_lost", "queue_timeout", "deadline_exceeded"}
            assert error.code != "model_failed" or POISON in self.rows[number]
            assert not isinstance(error, DeadlineError) or self.due[number] < inf

    def in_order(self) -> None:
        """Answers and failures of the model come in the order of arrival, except for cancelled requests."""
        if self.ordered:
            answered = [n for n in self.ends if not self.futures[n].cancelled() and not self.futures[n].exception()]
            whole = [n for n in answered if len(self.rows[n]) <= self.max_rows]
            assert whole == [n for n in self.futures if n in set(whole)]


TestBatcher = BatcherMachine.TestCase
TestBatcher.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
