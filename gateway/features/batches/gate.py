"""Admits lines of batches into the capacity that live requests leave, earliest deadline first."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

from adapters.errors import InferenceError
from gateway.request.snapshot import Snapshot
from gateway.traffic.pool import Pool
from policies.batches.admission import Admission, PoolLoad

LOOK = 0.05
"""Seconds between two looks at the load while a line waits."""

Rank = tuple[float, str, int]
"""The deadline of a batch, its id, and the number of the shard."""


class GateLane:
    """The lines of models with the same pools."""

    def __init__(self, pools: frozenset[str], *, in_order: bool) -> None:
        self.pools = pools
        self.admission = Admission(in_order=in_order)
        self.running = 0
        self.waiting: list[tuple[Rank, int, asyncio.Future[None]]] = []


class Gate:
    """`enter` before each attempt of a line, `leave` after it."""

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Callable[[], float], most: int, reserve: float) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._most = most
        self._reserve = reserve
        self._lanes: dict[frozenset[str], GateLane] = {}
        self._numbers = count()
        self._look: asyncio.TimerHandle | None = None

    @property
    def lanes(self) -> list[GateLane]:
        """The sets of pools in use."""
        return list(self._lanes.values())

    @property
    def running(self) -> int:
        """Lines in flight."""
        return sum(lane.running for lane in self._lanes.values())

    async def enter(self, model: str | None, rank: Rank) -> GateLane:
        """Wait until a line for the model may begin, and count it."""
        lane = self._lane(model)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(lane.waiting, (rank, next(self._numbers), turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._left(lane)
            raise
        return lane

    def leave(self, lane: GateLane, error: InferenceError | None, seconds: float = 0.0) -> None:
        """Count the end of an attempt after `seconds`."""
        if error is None:
            lane.admission.answered(lane.running, seconds, self._most, self._clock())
        elif error.kind == "capacity" and getattr(error, "limit", None) is None:
            lane.admission.crowded(self._clock())
        self._left(lane)

    def waits_of(self, batch: str) -> list[str]:
        """The reasons why lines of a batch wait here, one for each set of pools."""
        now, snapshot, reasons = self._clock(), self._snapshot(), list[str]()
        for lane in self._lanes.values():
            own = sum(rank[1] == batch for rank, _, turn in lane.waiting if not turn.done())
            if not own:
                continue
            pools = ", ".join(sorted(lane.pools))
            first = min(rank for rank, _, turn in lane.waiting if not turn.done())
            if first[1] != batch:
                reasons.append(f"{own} lines wait for the pools {pools}: the batch {first[1]} is due earlier")
                continue
            load = _load([snapshot.pools[name] for name in lane.pools if name in snapshot.pools], now)
            running = sum(each.running for each in self._lanes.values() if each.pools & lane.pools)
            reason = lane.admission.reason(load, running, self._most, self._reserve)
            reasons.append(f"{own} lines wait for the pools {pools}: {reason}")
        return reasons

    def close(self) -> None:
        """Stop looking."""
        if self._look is not None:
            self._look.cancel()

    def _left(self, lane: GateLane) -> None:
        lane.running -= 1
        self._admit()

    def _lane(self, model: str | None) -> GateLane:
        pools = self._pools_of(model)
        lane = self._lanes.get(pools)
        if lane is None:
            self._lanes = {key: lane for key, lane in self._lanes.items() if lane.running or lane.waiting}
            lane = self._lanes[pools] = GateLane(pools, in_order=self._in_order(pools))
        return lane

    def _in_order(self, pools: frozenset[str]) -> bool:
        """Whether servers without priorities answer: those of tensors."""
        configs = self._snapshot().config.pools
        return bool(pools) and all(pool.takes_tensors for pool in configs if pool.name in pools)

    def own_pools(self, model: str | None) -> frozenset[str] | None:
        """The pools of a model's routes; None for a pipeline, for arms that are models, and for an unknown model."""
        snapshot = self._snapshot()
        resolved = None if model is None else snapshot.catalogue.find(model)
        if resolved is None or resolved.rules.model in snapshot.pipelines:
            return None
        routes = next(m.routes for m in snapshot.config.models if m.name == resolved.rules.model)
        if any(True for route in routes for _ in route.models()):
            return None
        return frozenset(pool for route in routes for pool in route.pools() if pool in snapshot.pools)

    def _pools_of(self, model: str | None) -> frozenset[str]:
        """The pools that a line may use; all pools if the model does not determine them."""
        own = self.own_pools(model)
        return frozenset(self._snapshot().pools) if own is None else own

    def _admit(self) -> None:
        now, snapshot = self._clock(), self._snapshot()
        for lane in sorted(self._lanes.values(), key=lambda each: each.waiting[0][0] if each.waiting else (inf, "", 0)):
            self._admit_to(lane, snapshot, now)
        if any(lane.waiting for lane in self._lanes.values()):
            if self._look is None:
                self._look = asyncio.get_running_loop().call_later(LOOK, self._look_again)
        elif self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_again(self) -> None:
        self._look = None
        self._admit()

    def _admit_to(self, lane: GateLane, snapshot: Snapshot, now: float) -> None:
        while lane.waiting:
            turn = lane.waiting[0][2]
            if not turn.done():
                load = _load([snapshot.pools[name] for name in lane.pools if name in snapshot.pools], now)
                own = sum(each.running for each in self._lanes.values() if each.pools & lane.pools)
                if self.running >= self._most or lane.admission.room(load, own, self._most, self._reserve, now) < 1:
                    return
                lane.running += 1
                turn.set_result(None)
            heappop(lane.waiting)


def _load(pools: list[Pool], now: float) -> PoolLoad:
    loads = [pool.load(now) for pool in pools]
    return PoolLoad(sum(each[0] for each in loads), sum(each[1] for each in loads), sum(each[2] for each in loads))
