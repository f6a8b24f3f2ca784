"""Decisions in both kinds of database while it fails at any statement, and while two gateways write at once."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from gateway.auth.store import KeyStore
from gateway.state.errors import StoreUnavailable
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.tally import ArmTally
from tests.support.gateways import PEPPER
from tests.support.rollouts import OPERATOR, Gateway, Process, counts, planned, progress_of, written

pytestmark = pytest.mark.usefixtures("plain_generations")

MOST_STATEMENTS = 100
BEFORE_COMMIT, AFTER_COMMIT = -1, -2
STEPS = (
    "UPDATE rollout_lease",
    "comparison_batches",
    "INTO comparison_subjects",
    "UPDATE rollouts",
    "INTO audit",
    "commit",
    "the answer to a commit",
)
"""Parts of a decision: each has had a fault."""


@contextmanager
def fault(engine: Engine, at: int) -> Iterator[list[str]]:
    """The database is away from one statement on, or before or after a commit. Yields the place of the fault."""
    statements, failed = 0, list[str]()
    commit = engine.dialect.do_commit

    def fail(place: str) -> None:
        failed.append(place)
        raise OperationalError(place, {}, Exception("the database is away"))

    def execute(*context: Any) -> None:
        nonlocal statements
        if at >= 0 and statements >= at:
            fail(context[2])
        statements += 1

    def do_commit(connection: Any) -> None:
        if at == BEFORE_COMMIT:
            fail("commit")
        commit(connection)
        if at == AFTER_COMMIT:
            fail("the answer to a commit")

    event.listen(engine, "before_cursor_execute", execute)
    engine.dialect.do_commit = do_commit  # type: ignore[method-assign,assignment]
    try:
        yield failed
    finally:
        engine.dialect.do_commit = commit  # type: ignore[method-assign]
        event.remove(engine, "before_cursor_execute", execute)


@pytest.fixture
async def process(any_database: str) -> AsyncIterator[Process]:
    """A rollout of users, so that a decision reads and writes their subjects, too."""
    one = Process(written(any_database, sticky="user"))
    await one.tick()
    yield one
    await one.decider.aclose()


def store_of(process: Process) -> Any:
    return process.decider._store()


def report(process: Process) -> None:
    """Counts of requests and of users that take the rollout back."""
    for number, worker in enumerate(process.workers):
        live = worker.by_name["r"]
        taken = live._stratum(0).tally
        assert taken is not None
        taken.add(ArmTally([40, 10], [40, 10], {}, {"": {1: 0, 2: 1}}))
        users = {100 * number + user: 1 for user in range(8)}
        taken.add(ArmTally(subjects={"failures": {**users, 1000: 0}}))


def stored(process: Process) -> RolloutProgress:
    progress = store_of(process).read()["r"]
    assert isinstance(progress, RolloutProgress)
    return progress


def audited(process: Process) -> list[str]:
    keys = KeyStore(process.config.state.database, PEPPER)
    try:
        assert not keys.verify_audit().problem
        entries = keys.read_audit(1000)[::-1]
        return [entry.action for entry in entries if entry.action.startswith("rollout")]
    finally:
        keys.close()


async def test_a_fault_at_any_statement_of_a_decision_delays_it_and_counts_nothing_twice(process: Process) -> None:
    """The rollout starts anew after each fault. Its counts, its audit entries and its shares are those without one."""
    engine, places = store_of(process)._database._engine, list[str]()
    for at in (BEFORE_COMMIT, AFTER_COMMIT, *range(MOST_STATEMENTS)):
        assert process.shares == {0.2}
        before = stored(process)
        report(process)
        with fault(engine, at) as failed:
            await process.tick()
        if not failed:
            break
        places += failed[:1]
        assert (process.decider.available, process.shares) == (False, {0.2})
        if at == AFTER_COMMIT:
            assert stored(process).status == "back"
        else:
            assert stored(process) == before
        await process.tick()
        progress = progress_of(process)
        assert (progress.status, progress.reason, process.shares) == ("back", "failures", {0.0})
        assert progress.strata[0].events == {"failures": [1, 16]}
        assert (progress.strata[0].assigned, progress.strata[0].ended) == ([81, 21], [80, 20])
        assert progress == stored(process)
        await process.decider.order("r", "on", OPERATOR)
    for step in STEPS:
        assert any(step in place for place in places), step
    round_of_a_fault = ["rollout.back", "rollout.on", "rollout.running"]
    assert audited(process) == ["rollout.start", *round_of_a_fault * len(places), "rollout.back"]


async def test_a_fault_at_any_statement_of_an_order_changes_nothing(process: Process) -> None:
    engine, faults = store_of(process)._database._engine, 0
    for at in (BEFORE_COMMIT, *range(MOST_STATEMENTS)):
        before = stored(process)
        with fault(engine, at) as failed:
            try:
                await process.decider.order("r", "pause", OPERATOR)
            except StoreUnavailable:
                faults += 1
        if not failed:
            break
        if "pause" not in "".join(audited(process)):
            assert msgspec.structs.replace(stored(process), elapsed=0.0) == msgspec.structs.replace(before, elapsed=0.0)
    assert faults > 5
    assert progress_of(process).reason == "paused"
    assert audited(process) == ["rollout.start", "rollout.pause"]


def test_two_gateways_that_write_at_once_lose_nothing_and_one_decides(any_database: str) -> None:
    gateways, ticks = [Gateway(any_database), Gateway(any_database)], 30
    begun = gateways[0].tick(planned(), seconds=0.1)
    assert begun is not None

    def run(gateway: Gateway) -> None:
        for _ in range(ticks):
            gateway.number += 1
            gateway.now += 0.1
            while True:
                try:
                    gateway.again(planned(), counts(95, 5, (2, 0)), seconds=0.1)
                    break
                except StoreUnavailable:  # the other one writes for long, on a slow machine
                    continue

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, gateways))
    progress = gateways[0].store.read()["r"]
    assert progress.strata[0].assigned == [95 * 2 * ticks, 5 * 2 * ticks]
    assert progress.strata[0].events == {"failures": [2 * 2 * ticks, 0]}
    assert progress.elapsed == pytest.approx(begun.elapsed + 0.1 * ticks)
    assert gateways[0].audit()[0][0] == "rollout.start"
    for gateway in gateways:
        gateway.store.close()
