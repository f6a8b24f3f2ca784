"""Any arrivals, departures, deaths and pauses: every turn is answered once, with the sum of the turns before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from adapters.errors import CallerError, DeadlineError, InferenceError
from adapters.tensors import Tensor
from runtimes.tensor.configuration.model_config import SequenceBatching
from runtimes.tensor.interfaces import Tensors
from runtimes.tensor.models.served_model import ModelScheduler
from runtimes.tensor.schedulers import make_scheduler
from tests.runtimes.tensor.scheduling.instances import POISON, VirtualInstance, values_of
from tests.runtimes.tensor.scheduling.sequence_models import (
    CORRID,
    END,
    READY,
    START,
    SUM,
    ByName,
    BySlot,
    sequence_model,
    turn,
    with_state,
)
from tests.support.virtual_machine import VirtualMachine

pytestmark = pytest.mark.plain
IDLE = 0.7
KINDS: dict[str, tuple[SequenceBatching, Callable[[], Callable[[Tensors], Tensors]]]] = {
    "direct": (SequenceBatching("direct", IDLE, controls=(START, READY, END)), BySlot),
    "oldest": (SequenceBatching("oldest", IDLE, 2, controls=(START, READY, END, CORRID)), ByName),
    "patient": (SequenceBatching("oldest", IDLE, 3, 0.05, preserve_ordering=True, states=(SUM,)), lambda: with_state),
    "slots": (SequenceBatching("direct", IDLE, 0, 0.05, 0.5, states=(SUM,)), lambda: with_state),
}


class SequencerMachine(VirtualMachine):
    """`sums` is what each run of a sequence has taken in, by the order in which its turns were sent."""

    @initialize(kind=st.sampled_from(sorted(KINDS)), copies=st.integers(1, 2), rows=st.integers(1, 3))
    def start(self, kind: str, copies: int, rows: int) -> None:
        rules, memory = KINDS[kind]
        self.has_states = bool(rules.states)
        self.copies = [VirtualInstance(f"copy-{n}", lambda _: 0.05, memory()) for n in range(copies)]
        self.futures: list[asyncio.Future[list[Tensor]]] = []
        self.facts: list[tuple[int, int, float]] = []
        """The run, the value and the deadline of each turn."""
        self.ends: list[int] = []
        self.runs: dict[int, int] = {}
        """The expected open run by name of its sequence."""
        self.count = 0

        async def make() -> ModelScheduler:
            return make_scheduler(sequence_model(rules, rows), self.copies)

        self.scheduler = self.run(make())

    @rule(
        name=st.integers(1, 4),
        start=st.booleans(),
        end=st.sampled_from([False, False, True]),
        poison=st.sampled_from([False] * 6 + [True]),
        patience=st.sampled_from([inf, inf, inf, 0.03]),
    )
    def send(self, name: int, start: bool, end: bool, poison: bool, patience: float) -> None:
        value = POISON if poison else 10 ** len(self.futures) % 999_983

        async def submit() -> None:
            open_ = self.scheduler.holds(name)
            due = self.loop.time() + patience
            try:
                future = self.scheduler.infer(turn(name, value, "s" * start + "e" * end), due)
            except CallerError:
                assert not open_
                assert not start
                return
            assert open_ or start
            if start:
                self.count += 1
                self.runs[name] = self.count
            number = len(self.futures)
            self.futures.append(future)
            self.facts.append((self.runs[name], value, due))
            future.add_done_callback(lambda _: self.ends.append(number))
            assert self.scheduler.holds(name) != end

        self.run(submit())

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        open_ = [n for n, future in enumerate(self.futures) if not future.done()]
        if open_:
            self.call(self.futures[data.draw(st.sampled_from(open_))].cancel)

    @rule(seconds=st.sampled_from([0.001, 0.04, 0.1, IDLE * 2]))
    def wait(self, seconds: float) -> None:
        self.pause(seconds)

    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        copy = data.draw(st.sampled_from(self.copies))
        if copy.ready:
            self.call(copy.die)

    @invariant()
    def no_turn_is_answered_twice_or_too_late(self) -> None:
        if hasattr(self, "scheduler"):
            assert len(self.ends) == len(set(self.ends))
            late = self.loop.time() - 0.02
            assert all(f.done() for f, (_, _, due) in zip(self.futures, self.facts, strict=True) if due < late)

    def check_end(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.run(asyncio.wait_for(self.scheduler.drain(), 1000))
        self.pause(1)
        assert sorted(self.ends) == list(range(len(self.futures))), "never answered"
        self.check_sums()
        assert self.scheduler.waiting == self.scheduler.computing == 0
        assert not any(self.scheduler.holds(name) for name in range(1, 5))

    def check_sums(self) -> None:
        """A sum holds its own value and those of all answered turns before; what was cancelled may be in it."""
        before: dict[int, tuple[int, list[int]]] = {}
        for future, (run, value, _) in zip(self.futures, self.facts, strict=True):
            existing, doubtful = before.setdefault(run, (0, []))
            if not future.cancelled() and future.exception() is None:
                (reported,) = values_of(future.result())
                assert _may_be(reported - existing - value, doubtful), "the sum of another sequence or order"
                before[run] = (reported, [])
            elif future.cancelled() or isinstance(future.exception(), DeadlineError):
                doubtful.append(value)
            else:
                error = future.exception()
                assert isinstance(error, InferenceError)
                assert error.code in {"model_failed", "instance_lost", "sequence_lost", "sequence_not_open"}
                assert error.code != "model_failed" or value == POISON, error.message


def _may_be(rest: int, values: list[int]) -> bool:
    """Whether some of the values add up to it."""
    sums = {0}
    for value in values:
        sums |= {existing + value for existing in sums}
    return rest in sums


TestSequencer = SequencerMachine.TestCase
TestSequencer.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
