"""The part of the limits that Redis counts: reservations, unsent settlements, and the fallback without Redis."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count, islice
from random import Random
from typing import Any

from config.schema.limits import LimitsConfig
from gateway.limits.allowance import Allowance, Hold
from gateway.limits.mutexes import LimitsUnavailable
from gateway.limits.remote.allowance import PREFIX, RemoteAllowance
from gateway.limits.remote.exact import Booking, ExactAllowance
from gateway.limits.remote.leased import LeasedAllowance
from gateway.limits.remote.link import CONNECT, Link, LinkDown
from gateway.limits.subjects import Spare, Store
from policies.limits.limits import NOTHING, Amounts

LEASE = 10.0
"""Seconds without a heartbeat after which Redis releases the reservations of a gateway."""
SYNC = 0.02
"""Seconds between two refills of leases."""
IDLE = 1.0
"""Seconds without use after which a lease is returned."""
BATCH = 100
"""Rows in one call."""
GOODBYE = 2.0
"""Seconds for the last settlements at the end of the process."""


class Debt:
    """The amounts that have not been charged to a row yet."""

    __slots__ = ("allowance", "amounts", "picos")

    def __init__(self, allowance: RemoteAllowance) -> None:
        self.allowance = allowance
        self.amounts: Amounts = NOTHING
        self.picos = 0


End = tuple[int, bool, list[ExactAllowance], Amounts, int]


class RedisLedger:
    """The Redis ledger of one process. Counts locally while Redis is unavailable or `run` does not run."""

    def __init__(
        self, url: str, timeout: float, rng: Random, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.link = Link(url, timeout, rng)
        self._clock = clock
        self._wall = wall
        self.name = secrets.token_hex(8)
        self._keys = [PREFIX + b"gateways", PREFIX + b"held:" + self.name.encode()]
        self._generation = 0
        self._ids = count(1)
        self._settled = 0
        self._batch: tuple[list[End], list[Debt]] | None = None
        self._ends: list[End] = []
        self._debts: dict[bytes, Debt] = {}
        self._to_settle = asyncio.Event()
        self._leases: dict[LeasedAllowance, None] = {}
        self._to_fill = asyncio.Event()
        self._in_use: dict[LeasedAllowance, None] = {}

    @property
    def up(self) -> bool:
        return self.link.up

    @property
    def patience(self) -> float:
        return max(1.0, self.link.next_try - self._clock())

    @property
    def unsent(self) -> int:
        """Ended requests and debts of rows that Redis has not counted yet."""
        ends, debts = self._batch or ([], [])
        return len(self._ends) + len(self._debts) + len(ends) + len(debts)

    @property
    def stores(self) -> dict[str, Store]:
        """Stores of allowances, by `count`."""
        return {"exact": self._store(ExactAllowance), "leased": self._store(LeasedAllowance)}

    def _store(self, kind: type[ExactAllowance] | type[LeasedAllowance]) -> Store:
        """A store of allowances of one kind."""

        def make(
            scope: str, subject: str, config: LimitsConfig, spare: Spare | None, now: float, utc: float
        ) -> Allowance:
            return kind(self, scope, subject, config, now, utc)

        return make

    # ── one request at a time ─────────────────────────────────────────────────────────────────────────

    async def reserve(
        self, exact: Sequence[ExactAllowance], amounts: Amounts, picos: int, utc: float
    ) -> tuple[list[Hold], list[ExactAllowance]]:
        """The holds, and the allowances that refuse. No holds if an allowance outside of shadow mode refuses.

        Raises `LimitsUnavailable`.
        """
        if self.link.up:
            booking = next(self._ids)
            rows = [allowance.row(amounts, picos, utc) for allowance in exact]
            try:
                everything, granted, states = await self._call(b"reserve", exact, booking, rows)
            except LinkDown:
                self._enqueue((booking, True, list(exact), NOTHING, 0))  # Redis may have taken it or not
            except asyncio.CancelledError:
                self._enqueue((booking, True, list(exact), NOTHING, 0))
                raise
            else:
                now = self._clock()
                for allowance, state in zip(exact, states, strict=True):
                    allowance.load(state, now)
                refused = [a for a, has in zip(exact, granted, strict=True) if not has]
                parts = [a for a, has in zip(exact, granted, strict=True) if has and everything]
                return [Booking(parts[0], {}, 0, 0, booking, parts)] if parts else [], refused
        return self._reserve_here(exact, amounts, picos, utc)

    def _reserve_here(
        self, exact: Sequence[ExactAllowance], amounts: Amounts, picos: int, utc: float
    ) -> tuple[list[Hold], list[ExactAllowance]]:
        now = self._clock()
        holds: list[Hold] = []
        refused: list[ExactAllowance] = []
        try:
            for allowance in exact:
                if hold := allowance.take_here(amounts, picos, now, utc):
                    holds.append(hold)
                else:
                    refused.append(allowance)
        except LimitsUnavailable:
            _undo(holds, now)
            raise
        if not all(allowance.in_shadow for allowance in refused):
            _undo(holds, now)
            return [], refused
        return holds, refused

    def end(self, booking: Booking, amounts: Amounts, picos: int, *, undone: bool) -> None:
        """Settle a booking soon."""
        self._enqueue((booking.id, undone, booking.parts, amounts, picos))

    def _enqueue(self, end: End) -> None:
        self._ends.append(end)
        self._to_settle.set()

    def owe(self, allowance: RemoteAllowance, amounts: Amounts, picos: int) -> None:
        """Charge a row later for usage during an outage of Redis."""
        debt = self._debts.get(allowance.key)
        if debt is None:
            debt = self._debts[allowance.key] = Debt(allowance)
        a, b = debt.amounts, amounts
        debt.amounts = (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4])
        debt.picos += picos
        self._to_settle.set()

    def request_refill(self, allowance: LeasedAllowance) -> None:
        self._leases[allowance] = None
        self._to_fill.set()

    # ── in the background ─────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Exchange with Redis until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.run(self._hello), name="redis")
            tasks.create_task(self._always(self._settle))
            tasks.create_task(self._always(self._fill))
            tasks.create_task(self._always(self._beat))
            tasks.create_task(self._sweep())

    async def opened(self) -> None:
        """Wait for Redis for a short time: without it the gateway counts locally."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT):
                await self.link.is_up.wait()

    async def aclose(self) -> None:
        """Send the unsent usage and return the leases, in bounded time. `run` must still run."""
        with suppress(TimeoutError, LinkDown):
            async with asyncio.timeout(GOODBYE):
                while self.unsent and self.up:  # noqa: ASYNC110 - at the end of the process, once
                    await asyncio.sleep(SYNC)
                if self.up:
                    await self._call(b"bye", ())

    async def _hello(self) -> None:
        """Start a new generation: Redis ignores earlier messages of this process that are still in flight."""
        self._generation += 1
        await self._call(b"hello", (), LEASE, self._settled - (self._batch is not None))

    async def _call(self, step: bytes, rows: Sequence[RemoteAllowance], *arguments: Any) -> Any:
        keys = [*self._keys, *(allowance.key for allowance in rows)]
        return await self.link.call(step, keys, [self.name, self._generation, *arguments])

    async def _always(self, work: Callable[[], Any]) -> None:
        """Repeat `work` while the link is up. Work that fails with the link is repeated when the link is restored."""
        while True:
            await self.link.is_up.wait()
            with suppress(LinkDown):
                await work()

    async def _beat(self) -> None:
        await self._call(b"beat", (), LEASE)
        await asyncio.sleep(LEASE / 3)

    async def _settle(self) -> None:
        """Send a batch until Redis confirms it. Its number prevents double counting."""
        if self._batch is None:
            if not self._ends and not self._debts:
                self._to_settle.clear()
                await self._to_settle.wait()
            self._batch = self._next_batch()
            self._settled += 1
        ends, debts = self._batch
        rows = {a.key: a for _, _, parts, _, _ in ends for a in parts} | {d.allowance.key: d.allowance for d in debts}
        place = {key: i + 1 for i, key in enumerate(rows)}
        utc = self._wall()
        settlements = [
            (id_, undone, [(place[a.key], amounts, float(picos)) for a in parts])
            for id_, undone, parts, amounts, picos in ends
        ]
        owed = [(place[d.allowance.key], d.amounts, float(d.picos)) for d in debts]
        templates = [allowance.row(NOTHING, 0, utc) for allowance in rows.values()]
        states = await self._call(b"settle", list(rows.values()), self._settled, templates, settlements, owed)
        self._batch = None
        now = self._clock()
        for allowance, state in zip(rows.values(), states, strict=False):  # none if it was settled before
            allowance.load(state, now)

    def _next_batch(self) -> tuple[list[End], list[Debt]]:
        ends, self._ends = self._ends[:BATCH], self._ends[BATCH:]
        debts = [self._debts.pop(key) for key in list(islice(self._debts, BATCH))]
        return ends, debts

    async def _fill(self) -> None:
        if not self._leases:
            self._to_fill.clear()
            await self._to_fill.wait()
        if not self.up:
            return
        utc = self._wall()
        demands = []
        for allowance in list(islice(self._leases, BATCH)):
            del self._leases[allowance]
            self._in_use[allowance] = None
            if (demand := allowance.demand(utc, idle=False)) is not None:
                demands.append((allowance, *demand))
        await self._lease(demands)
        await asyncio.sleep(SYNC)

    async def _lease(self, demands: list[tuple[LeasedAllowance, list[Any], int | bool]]) -> None:
        if not demands:
            return
        rows = [allowance for allowance, _, _ in demands]
        states, grants = await self._call(b"lease", rows, [row for _, row, _ in demands], [s for _, _, s in demands])
        now = self._clock()
        for allowance, state, grant in zip(rows, states, grants, strict=True):
            allowance.granted(state, grant, now)

    async def _sweep(self) -> None:
        """Return the leases that no request has used since the last sweep."""
        while True:
            await asyncio.sleep(IDLE)
            utc = self._wall()
            idle = [allowance for allowance in self._in_use if not allowance.used]
            for allowance in self._in_use:
                allowance.used = False
            for start in range(0, len(idle) if self.up else 0, BATCH):
                some = idle[start : start + BATCH]
                demands = [(a, *demand) for a in some if (demand := a.demand(utc, idle=True)) is not None]
                with suppress(LinkDown):
                    await self._lease(demands)
                for allowance in some:
                    if allowance.is_idle(self._clock(), utc):
                        del self._in_use[allowance]

    def describe(self) -> dict[str, Any]:
        """The state for operators."""
        return {"up": self.up, "error": self.link.error, "breaks": self.link.breaks, "untold": self.unsent}


def _undo(holds: list[Hold], now: float) -> None:
    for hold in holds:
        hold.allowance.undo(hold, now)
