"""Leases under clocks that stop and jump, and under writes that are lost: a replaced holder changes nothing."""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Column, Integer, MetaData, StaticPool, String, Table, create_engine, insert, select

from gateway.state.lease import Leases

TAKEOVER = 10.0
HOLDERS = st.sampled_from(range(3))
WORK = Table(
    "work",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("holder", String, nullable=False),
    Column("beat", Integer, nullable=False),
    Column("token", Integer, nullable=False),
    Column("written_by", Integer, nullable=False),
)


class Killed(Exception):
    """The process ends before its transaction does."""


class Holder:
    """One process: its own clock, and the token of the row as far as it knows."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leases = Leases(WORK, lambda: self.now, TAKEOVER)
        self.token: int | None = None
        self.seen_at: dict[tuple[str, int], float] = {}
        """When it looked at each beat first."""


class SharedRow(RuleBasedStateMachine):
    """Three processes and one row."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = create_engine("sqlite://", poolclass=StaticPool)
        WORK.metadata.create_all(self.engine)
        with self.engine.begin() as connection:
            connection.execute(insert(WORK).values(id=1, holder="", beat=0, token=0, written_by=0))
        self.holders = [Holder() for _ in range(3)]
        self.writes: list[int] = []
        """The token of each write that succeeded."""

    def teardown(self) -> None:
        self.engine.dispose()

    @rule(at=HOLDERS, seconds=st.sampled_from([0.0, 0.5, 4.0, 11.0, 1e9]))
    def clock_goes_on(self, at: int, seconds: float) -> None:
        self.holders[at].now += seconds

    @rule(at=HOLDERS, killed=st.booleans(), lost=st.booleans())
    def takes(self, at: int, killed: bool, lost: bool) -> None:
        """`killed`: the transaction never ends. `lost`: it does, and the process never hears of it."""
        holder = self.holders[at]
        with suppress(Killed), self.engine.begin() as connection:
            row = connection.execute(select(WORK)).one()
            first = holder.seen_at.setdefault((row.holder, row.beat), holder.now)
            silent = row.holder != "" and holder.now - first >= TAKEOVER and row.holder != holder.leases.holder
            may = holder.leases.may_take(row)
            assert may == (row.holder == "" or silent)
            if may:
                assert holder.leases.take(connection, row)
                assert not holder.leases.take(connection, row)  # it has changed since
                taken = connection.execute(select(WORK)).one()
                assert (taken.holder, taken.token) == (holder.leases.holder, row.token + 1)
                if not (killed or lost):
                    holder.token = row.token + 1
            if killed:
                raise Killed

    @precondition(lambda self: any(holder.token is not None for holder in self.holders))
    @rule(at=HOLDERS, killed=st.booleans())
    def writes_by_its_token(self, at: int, killed: bool) -> None:
        holder = self.holders[at]
        if holder.token is None:
            return
        with suppress(Killed), self.engine.begin() as connection:
            before = connection.execute(select(WORK)).one()
            own = (before.holder, before.token) == (holder.leases.holder, holder.token)
            assert holder.leases.beat(connection, 1, token=holder.token, written_by=holder.token) is own
            after = connection.execute(select(WORK)).one()
            assert after == (before if not own else (1, before.holder, before.beat + 1, before.token, holder.token))
            if killed:
                raise Killed
            self.writes += [holder.token] if own else []

    @rule(at=HOLDERS)
    def releases(self, at: int) -> None:
        holder = self.holders[at]
        if holder.token is None:
            return
        with self.engine.begin() as connection:
            before = connection.execute(select(WORK)).one()
            holder.leases.release(connection, 1, token=holder.token)
            after = connection.execute(select(WORK)).one()
        own = (before.holder, before.token) == (holder.leases.holder, holder.token)
        assert after.holder == ("" if own else before.holder)
        holder.token = None

    @invariant()
    def a_replaced_holder_writes_no_more(self) -> None:
        assert all(first <= second for first, second in pairwise(self.writes))

    @rule(at=HOLDERS)
    def a_silent_holder_is_replaced(self, at: int) -> None:
        """By a process that looks twice, and does not reach it otherwise."""
        holder = self.holders[at]
        with self.engine.begin() as connection:
            if connection.execute(select(WORK.c.holder)).scalar_one() == holder.leases.holder:
                return
            holder.leases.hold(connection, 1)
            holder.now += TAKEOVER
            assert holder.leases.hold(connection, 1)
            holder.token = connection.execute(select(WORK.c.token)).scalar_one()


TestSharedRow = SharedRow.TestCase
TestSharedRow.settings = settings(max_examples=50, stateful_step_count=25)


@pytest.mark.parametrize("stop", [lambda now: 0.0, lambda now: -now], ids=["stops", "runs backwards"])
def test_a_clock_that_stops_takes_no_row(stop: Callable[[float], float]) -> None:
    engine, clock = create_engine("sqlite://", poolclass=StaticPool), iter((0.0, 1.0, 1e3, 1e9))
    WORK.metadata.create_all(engine)
    one, two = Leases(WORK, lambda: 0.0, TAKEOVER), Leases(WORK, lambda: stop(next(clock)), TAKEOVER)
    with engine.begin() as connection:
        connection.execute(insert(WORK).values(id=1, holder="", beat=0, token=0, written_by=0))
        assert one.hold(connection, 1)
        assert [two.hold(connection, 1) for _ in range(4)] == [False] * 4
        one.release(connection, 1)
        assert two.hold(connection, 1)
        assert not one.hold(connection, 1)
    engine.dispose()
