"""Sequences: which turn may run, on which copy, with which state. In virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from adapters.errors import CallerError, CapacityError, DeadlineError, InferenceError
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    SequenceBatching,
    SequenceControl,
    SequenceState,
)
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.served_model import ModelScheduler
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.sequences import sequence
from tests.runtimes.tensor.scheduling.instances import MURDER, POISON, VirtualInstance, model, request, values_of
from tests.runtimes.tensor.scheduling.sequence_models import (
    CORRID,
    END,
    PAST,
    READY,
    START,
    SUM,
    ByName,
    BySlot,
    growing,
    sequence_model,
    turn,
    with_state,
)

pytestmark = [pytest.mark.plain, pytest.mark.looptime]

DIRECT = SequenceBatching(controls=(START, READY))
OLDEST = SequenceBatching("oldest", controls=(START, CORRID))
IMPLICIT = SequenceBatching("oldest", states=(SUM,))


def now() -> float:
    return asyncio.get_running_loop().time()


def make(
    rules: SequenceBatching, compute: Any, copies: int = 1, max_batch_size: int = 4
) -> tuple[ModelScheduler, list[VirtualInstance]]:
    instances = [VirtualInstance(f"copy-{n}", compute=compute() if compute in (BySlot, ByName) else compute)
                 for n in range(copies)]  # fmt: skip
    return make_scheduler(sequence_model(rules, max_batch_size), instances), instances


async def outcome(future: asyncio.Future[Any]) -> Any:
    """Its value, or the code of its error."""
    try:
        return values_of(await future)[0]
    except InferenceError as error:
        return error.code


@pytest.mark.parametrize(
    ("rules", "compute"),
    [(DIRECT, BySlot), (OLDEST, ByName), (IMPLICIT, with_state)],
    ids=["direct", "oldest", "state"],
)
async def test_sequences_are_computed_together_and_stay_separate(rules: SequenceBatching, compute: Any) -> None:
    scheduler, (copy,) = make(rules, compute)
    futures = [scheduler.infer(turn(name, value, flags)) for value, flags in ((1, "s"), (10, ""), (100, "e"))
               for name in (7, 8, 9)]  # fmt: skip
    assert [await outcome(future) for future in futures] == [1, 1, 1, 11, 11, 11, 111, 111, 111]
    assert copy.batches == [[1, 1, 1]] * 3
    await scheduler.drain()
    assert not scheduler.holds(7)
    assert await outcome(scheduler.infer(turn(7, 5, "se"))) == 5


async def test_a_slot_without_a_turn_is_marked_not_ready() -> None:
    scheduler, (copy,) = make(DIRECT, BySlot)
    await asyncio.gather(*[scheduler.infer(turn(name, 1, "s")) for name in (1, 2, 3)])
    assert await outcome(scheduler.infer(turn(3, 1))) == 2
    assert copy.batches[-1] == [1, 1, 1]
    assert await outcome(scheduler.infer(turn(1, 5))) == 6
    assert copy.batches[-1] == [1]


async def test_a_sequence_stays_with_its_copy() -> None:
    scheduler, copies = make(OLDEST, ByName, copies=2)
    for value, flags in ((1, "s"), (1, ""), (1, ""), (1, "e")):
        answers = await asyncio.gather(*[outcome(scheduler.infer(turn(n, value, flags))) for n in range(1, 9)])
    assert answers == [4] * 8
    assert all(copy.batches for copy in copies)


@pytest.mark.parametrize("name", [0, "", True, 1.5, -3, 2**64])
async def test_a_request_must_name_its_sequence(name: Any) -> None:
    scheduler, _ = make(OLDEST, ByName)
    with pytest.raises(CallerError) as refused:
        scheduler.infer(turn(name, 1, "s"))
    assert refused.value.param == "sequence_id"


async def test_names_have_the_datatype_of_the_models_input() -> None:
    narrow = SequenceBatching("oldest", controls=(START, SequenceControl("corrid", "CORRID", "INT32")))
    scheduler, _ = make(narrow, ByName)
    for name in ("text", 2**31):
        with pytest.raises(CallerError, match="sequence_id"):
            scheduler.infer(turn(name, 1, "s"))
    text = SequenceBatching("oldest", controls=(START, SequenceControl("corrid", "CORRID", "BYTES")))
    scheduler, _ = make(text, ByName)
    assert await outcome(scheduler.infer(turn("text", 1, "s"))) == 1
    assert await outcome(scheduler.infer(turn("text", 2, "e"))) == 3


@pytest.mark.parametrize(("rules", "compute"), [(DIRECT, BySlot), (OLDEST, ByName), (IMPLICIT, with_state)])
async def test_a_start_in_an_open_sequence_starts_it_over(rules: SequenceBatching, compute: Any) -> None:
    scheduler, _ = make(rules, compute)
    turns = [(1, "s"), (2, ""), (10, "s"), (20, ""), (100, "s"), (200, "e")]
    futures = [scheduler.infer(turn(1, value, flags)) for value, flags in turns]
    assert [await outcome(future) for future in futures] == [1, 3, 10, 30, 100, 300]


async def test_a_cancelled_restart_leaves_the_earlier_turns() -> None:
    scheduler, _ = make(OLDEST, ByName)
    before = [scheduler.infer(turn(1, 1, "s")), scheduler.infer(turn(1, 2))]
    restart, after = scheduler.infer(turn(1, 10, "s")), scheduler.infer(turn(1, 20))
    restart.cancel()
    assert [await outcome(future) for future in before] == [1, 3]
    with pytest.raises(CallerError, match="was cancelled"):
        await after
    await scheduler.drain()
    assert await outcome(scheduler.infer(turn(1, 5, "se"))) == 5


async def test_a_turn_out_of_order_is_refused_with_the_reason() -> None:
    scheduler, _ = make(OLDEST, ByName)
    with pytest.raises(CallerError, match="must specify the START flag on the first request"):
        scheduler.infer(turn(1, 1))
    first = scheduler.infer(turn(1, 1, "s"))
    last = scheduler.infer(turn(1, 1, "e"))
    with pytest.raises(CallerError, match="has ended"):
        scheduler.infer(turn(1, 1))
    again = scheduler.infer(turn(1, 7, "s"))  # it waits until the first of that name is over
    assert [await outcome(future) for future in (first, last, again)] == [1, 2, 7]
    with pytest.raises(CallerError, match="2 rows"):
        scheduler.infer(request(1, 2, width=1, parameters={"sequence_id": 3, "sequence_start": True}))


@pytest.mark.parametrize("given_up_after", ["before the next", "after the next"])
async def test_a_new_sequence_waits_for_the_old_one_of_its_name_though_one_between_was_given_up(
    given_up_after: str,
) -> None:
    rules = SequenceBatching("oldest", 0.5, controls=(START, READY, END, CORRID))
    scheduler, _ = make(rules, ByName)
    scheduler.infer(turn(1, 1, "s"))
    await asyncio.sleep(0.001)  # it is being computed
    scheduler.infer(turn(1, 1, "e")).cancel()
    between = scheduler.infer(turn(1, 5, "s"))
    if given_up_after == "before the next":
        between.cancel()
    else:
        scheduler.infer(turn(1, 5, "e"))
    new = scheduler.infer(turn(1, 7, "s"))
    between.cancel()
    assert await outcome(new) == 7
    assert await outcome(scheduler.infer(turn(1, 1, "e"))) == 8
    await scheduler.drain()


async def test_sequences_wait_for_a_slot_in_order_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "MAX_BACKLOG", 2)
    scheduler, _ = make(DIRECT, BySlot, max_batch_size=1)
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == 1
    second, third = scheduler.infer(turn(2, 2, "s")), scheduler.infer(turn(3, 3, "s"))
    with pytest.raises(CapacityError) as refused:
        scheduler.infer(turn(4, 4, "s"))
    assert refused.value.retry_after == 1.0
    assert await outcome(scheduler.infer(turn(1, 1, "e"))) == 2
    assert await outcome(second) == 2
    assert not third.done()
    third.cancel()
    assert not scheduler.holds(3)
    assert await outcome(scheduler.infer(turn(2, 0, "e"))) == 2
    await scheduler.drain()


async def test_a_sequence_that_is_idle_for_too_long_ends_for_the_model_too() -> None:
    rules = SequenceBatching(controls=(START, READY, END), max_sequence_idle=0.5)
    memory = BySlot()
    scheduler, (copy,) = make(rules, memory, max_batch_size=1)
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == 1
    await asyncio.sleep(0.4)
    assert await outcome(scheduler.infer(turn(1, 1))) == 2
    waits = scheduler.infer(turn(2, 5, "s"))
    began = now()
    assert await outcome(waits) == 5
    assert 0.49 < now() - began < 0.6
    assert memory.ended == [0]
    assert len(copy.batches) == 4
    with pytest.raises(CallerError, match="idle"):
        scheduler.infer(turn(1, 1))
    await scheduler.drain()
    assert memory.ended == [0, 0]


async def test_state_is_stored_here_grows_and_begins_as_configured() -> None:
    scheduler, (copy,) = make(SequenceBatching("oldest", states=(PAST,)), growing)
    assert [await outcome(scheduler.infer(turn(1, value, flags))) for value, flags in ((1, "s"), (2, ""))] == [1, 3]
    both = [scheduler.infer(turn(1, 4)), scheduler.infer(turn(2, 50, "s"))]
    assert [await outcome(future) for future in both] == [7, 50]
    assert copy.batches[-2:] == [[1], [1]]  # states of other shapes cannot be joined
    first = np.array([40], "<i8").tobytes()
    scheduler, _ = make(
        SequenceBatching(states=(SequenceState("SUM_IN", "SUM_OUT", "INT64", (1,), first),)), with_state
    )
    assert await outcome(scheduler.infer(turn(1, 2, "s"))) == 42
    with pytest.raises(ModelLoadError, match="first value"):
        make(SequenceBatching(states=(SequenceState("SUM_IN", "SUM_OUT", "INT64", (1,), b"abc"),)), with_state)


async def test_a_turn_that_fails_leaves_the_sequence_as_it_was_and_its_neighbours_unharmed() -> None:
    scheduler, _ = make(IMPLICIT, with_state)
    await asyncio.gather(*[scheduler.infer(turn(name, name, "s")) for name in (1, 2, 3)])
    futures = [scheduler.infer(turn(name, POISON if name == 2 else 10)) for name in (1, 2, 3)]
    assert [await outcome(future) for future in futures] == [11, "model_failed", 13]
    assert await outcome(scheduler.infer(turn(2, 10, "e"))) == 12


async def test_a_sequence_with_a_failed_first_request_has_not_begun() -> None:
    scheduler, _ = make(IMPLICIT, with_state)
    futures = [scheduler.infer(turn(1, POISON, "s")), scheduler.infer(turn(1, 1))]
    assert [await outcome(future) for future in futures] == ["model_failed", "sequence_not_open"]
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == 1


async def test_state_in_a_copy_dies_with_it_and_state_stored_here_does_not() -> None:
    scheduler, copies = make(OLDEST, ByName, copies=1)
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == 1
    murder = scheduler.infer(turn(2, MURDER, "s"))
    queued = scheduler.infer(turn(2, 1))
    assert [await outcome(murder), await outcome(queued)] == ["instance_lost", "sequence_not_open"]
    with pytest.raises(CallerError, match="lost with its copy"):
        scheduler.infer(turn(1, 1))
    assert await outcome(scheduler.infer(turn(1, 5, "s"))) == 5
    scheduler, copies = make(IMPLICIT, with_state)
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == 1
    copies[0].die()
    assert await outcome(scheduler.infer(turn(1, 5))) == 6


async def test_a_copy_that_dies_idle_loses_its_sequences_too() -> None:
    scheduler, (copy,) = make(SequenceBatching("oldest", 60.0, controls=(START, CORRID)), ByName)
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == 1
    copy.die()
    assert await outcome(scheduler.infer(turn(1, 1))) == "sequence_lost"


async def test_a_cancelled_or_late_turn_is_removed_and_the_sequence_continues() -> None:
    scheduler, _ = make(OLDEST, ByName)
    first = scheduler.infer(turn(1, 1, "s"))
    left = scheduler.infer(turn(1, 10))
    late = scheduler.infer(turn(1, 100), now() + 0.005)
    last = scheduler.infer(turn(1, 1000))
    left.cancel()
    assert await outcome(late) == "deadline_exceeded"
    assert [await outcome(first), await outcome(last)] == [1, 1001]
    with pytest.raises(DeadlineError):
        scheduler.infer(turn(1, 1), now())
    end = scheduler.infer(turn(1, 1, "e"))
    end.cancel()
    with pytest.raises(CallerError, match="has ended"):
        scheduler.infer(turn(1, 1))
    await scheduler.drain()


async def test_no_request_waits_forever_for_a_lost_copy() -> None:
    scheduler, (copy,) = make(OLDEST, ByName)
    copy.die(returns=False)
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == "deadline_exceeded"
    assert scheduler.is_idle


async def test_slots_wait_for_company_no_longer_than_it_can_come() -> None:
    rules = SequenceBatching(controls=(START, READY), max_queue_delay=0.2, minimum_slot_utilization=0.75)
    scheduler, _ = make(rules, BySlot)
    began = now()
    assert await outcome(scheduler.infer(turn(1, 1, "s"))) == 1  # there is no other sequence
    assert now() - began < 0.1
    await asyncio.gather(*[scheduler.infer(turn(name, 1, "s")) for name in (2, 3, 4)])
    began = now()
    one = scheduler.infer(turn(1, 1))
    await asyncio.sleep(0.05)
    two = scheduler.infer(turn(2, 1))
    assert await outcome(one) == await outcome(two) == 2
    assert 0.2 < now() - began < 0.25
    began = now()
    assert [await outcome(f) for f in [scheduler.infer(turn(name, 1)) for name in (1, 2, 3)]] == [3, 3, 2]
    assert now() - began < 0.1


async def test_answers_come_in_order_where_it_was_promised() -> None:
    rules = SequenceBatching("oldest", controls=(START, CORRID, END), preserve_ordering=True)
    slow = VirtualInstance("slow", lambda rows: 0.3, ByName())
    fast = VirtualInstance("fast", lambda rows: 0.1, ByName())
    scheduler = make_scheduler(sequence_model(rules), [slow, fast])
    ended: list[int] = []
    for name in range(1, 5):
        scheduler.infer(turn(name, 1, "s")).add_done_callback(lambda _, n=name: ended.append(n))  # type: ignore[misc]
    await scheduler.drain()
    assert ended == [1, 2, 3, 4]
    assert scheduler.waiting == scheduler.computing == 0


async def test_closing_ends_waiting_turns() -> None:
    scheduler, _ = make(OLDEST, ByName)
    running, waiting = scheduler.infer(turn(1, 1, "s")), scheduler.infer(turn(1, 1))
    await asyncio.sleep(0.001)
    await scheduler.aclose()
    assert await outcome(waiting) == "model_unloading"
    assert await outcome(running) == 1
    assert scheduler.is_idle
    with pytest.raises(CapacityError):
        scheduler.infer(turn(2, 1, "s"))


async def test_a_model_is_of_one_kind() -> None:
    for fields in ({"decoupled": True, "batching": None}, {"batching": DynamicBatching()}):
        config = model(sequence_batching=OLDEST, **fields)
        with pytest.raises(ModelLoadError, match="not both"):
            make_scheduler(config, [VirtualInstance()])
