"""The rules of rollouts, experiments and shadows: shares, subjects, counts and copies."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway.features.rollouts.live import LiveComparisons
from gateway.telemetry import Record
from policies.experiments.progress import ExperimentProgress
from policies.rollouts.live import LiveComparison
from policies.rollouts.progress import RolloutProgress
from tests.simulation.calls import COPY, Call
from tests.simulation.clients import Order, Outcome

if TYPE_CHECKING:
    from tests.simulation.world import World

MOST_CALLS = 4
"""Calls of one copy: of the target and, as noise, of the primary, each once more if a reused connection was closed."""


class Counts(Protocol):
    """The counts under one set of shares."""

    assigned: list[int]
    ended: list[int]
    events: dict[str, list[int]]


class InForce(NamedTuple):
    """The shares of a comparison from a moment on."""

    at: float
    shares: tuple[float, ...]


class WatchedShares:
    """Records every change of shares."""

    def __init__(self, rollouts: LiveComparisons, clock: Callable[[], float]) -> None:
        self._rollouts = rollouts
        self._clock = clock
        self.history: dict[int, list[InForce]] = defaultdict(list)
        """By the identity of the comparison in the process."""
        self.lives: dict[int, LiveComparison] = {}

    def look(self) -> None:
        """Record the shares in force."""
        for live in self._rollouts.by_name.values():
            history = self.history[id(live)]
            self.lives[id(live)] = live
            if not history or history[-1].shares != live.shares:
                history.append(InForce(self._clock(), live.shares))

    def at(self, live: LiveComparison, at: float) -> list[tuple[float, ...]]:
        """The shares that a request of a moment may have had: at a change, those before and after it."""
        history = self.history[id(live)]
        before = [each.shares for each in history if each.at < at][-1:]
        return [*before, *(each.shares for each in history if each.at == at)] or [live.shares]


class Assigned(NamedTuple):
    """A request that got an arm."""

    order: Order
    record: Record
    live: LiveComparison
    side: int
    shares: list[tuple[float, ...]]


def comparing(world: "World", seen: list[Outcome]) -> Iterator[str]:
    """Every violation, one sentence each."""
    assigned = list(assignments(world, seen))
    for each in assigned:
        if not any(shares[each.side] > 0 for shares in each.shares):
            yield f"{each.order.id} got the arm {each.record.arm}, whose share was 0"
    yield from _first_attempts(world, assigned)
    yield from _subjects(world, assigned)
    yield from _decisions(world)
    yield from _counts(world)
    yield from _copies(world)


def assignments(world: "World", seen: list[Outcome]) -> Iterator[Assigned]:
    """The requests that got arms, in the order of their begins."""
    orders = {one.order.id: one.order for one in seen}
    for record in sorted(world.log.records, key=lambda record: record.started):
        decision = record.decision
        if decision is None or (live := decision.comparison) is None or record.request_id not in orders:
            continue
        shares = world.watched_shares.at(live, record.started)
        yield Assigned(orders[record.request_id], record, live, decision.side, shares)


def draws(world: "World", seen: list[Outcome]) -> Iterator[tuple[tuple[float, ...], int]]:
    """Of requests that drew their arm: the shares of the arms, and the number of the arm."""
    for each in assignments(world, seen):
        if len(each.shares) == 1 and _sticky(world, each.live.name) == "request":
            yield each.shares[0], each.side


def _first_attempts(world: "World", assigned: Sequence[Assigned]) -> Iterator[str]:
    """The first attempt of a request is in its arm, unless that is full and another pool is not."""
    first: dict[str, str] = {}
    for attempt in world.watch.attempts:
        first.setdefault(attempt.request_id, attempt.pool)
    for each in assigned:
        decision, pool = each.record.decision, first.get(each.order.id)
        assert decision is not None
        if pool is not None and pool != decision.target.pool:
            yield f"{each.order.id} of the arm {decision.arm} was sent to {pool} first"


def _subjects(world: "World", assigned: Sequence[Assigned]) -> Iterator[str]:
    """A subject stays in its arm while the arm's share does not shrink and no other share grows."""
    last: dict[tuple[object, ...], tuple[tuple[float, ...], int]] = {}
    for each in assigned:
        live = each.live
        sticky = _sticky(world, live.name)
        if sticky in ("request", "") or len(each.shares) != 1:
            continue
        subject = (live.salt, tuple(name for name, _ in live.arms), sticky, _subject(sticky, each.order))
        shares, side = each.shares[0], each.side
        if subject in last:
            before, arm = last[subject]
            steady = shares[arm] >= before[arm] and all(
                shares[other] <= before[other] for other in range(len(shares)) if other != arm
            )
            if steady and side != arm:
                yield f"{subject} moved from arm {arm} to {side} with the shares {before} to {shares}"
        last[subject] = (shares, side)


def _sticky(world: "World", name: str) -> str:
    """The subject of a comparison, if it never changed."""
    subjects = {
        route.comparison.sticky
        for config in world.configs
        for model in config.models
        for route in model.routes
        if route.comparison is not None and route.comparison.name == name
    }
    return subjects.pop() if len(subjects) == 1 else ""


def _subject(sticky: str, order: Order) -> tuple[str, str]:
    value = order.key
    if sticky == "user":
        value = order.user or value
    elif sticky.startswith("header:"):
        value = order.headers.get(sticky[7:]) or value
    return order.tenant, value


def _decisions(world: "World") -> Iterator[str]:
    """The shares are those of the step, of the end or of the way back, and they are in force."""
    for plan in world.decider.planned:
        progress = world.decider.progress.get(plan.config.name)
        if progress is None or progress.fingerprint != plan.fingerprint:
            continue
        live = world.rollouts.by_name[progress.name]
        if live.fingerprint == progress.fingerprint and live.shares != progress.order().shares:
            yield f"{progress.name} has the shares {live.shares} and not {progress.order().shares}"
        if isinstance(progress, RolloutProgress):
            expected = {"back": {0.0}, "done": {1.0}}.get(
                progress.status,
                {0.0, *(step.weight for step in plan.config.steps)},  # type: ignore[union-attr]
            )
            if progress.share not in expected:
                yield f"{progress.name} is {progress.status} with the share {progress.share}"
        elif abs(sum(progress.order().shares) - 1) > 1e-9 or min(progress.order().shares) < 0:
            yield f"{progress.name} has the shares {progress.order().shares}"


def _counts(world: "World") -> Iterator[str]:
    """No arm has more ends or events than requests: each ends once."""
    strata_of: dict[str, Sequence[Counts]] = {name: list(each.strata) for name, each in world.store.stored.items()}
    for name, strata in strata_of.items():
        sticky = _sticky(world, name)
        for number, stratum in enumerate(strata):
            counts = {f"events {key}": events for key, events in stratum.events.items()}
            for kind, mine in ({"ends": stratum.ended} | counts).items() if sticky == "request" else ():
                if any(count > most for count, most in zip(mine, stratum.assigned, strict=False)):
                    yield f"{name} has the {kind} {mine} of {stratum.assigned} requests in stratum {number}"
        subjects = sum(sum(stratum.assigned) for stratum in strata)
        for key in {key for stratum in strata for key in stratum.events}:
            events = sum(sum(stratum.events.get(key, ())) for stratum in strata)
            if sticky and events > subjects:
                yield f"{name} has {events} events {key} of {subjects} subjects"


def _copies(world: "World") -> Iterator[str]:
    """A copy comes after its request's answer, reaches no account and no log, and leaves nothing."""
    records = {record.request_id: record for record in world.log.records}
    by_request: dict[str, list[Call]] = defaultdict(list)
    for server in world.servers:
        for call in server.copies:
            by_request[call.request_id].append(call)
    for id, calls in by_request.items():
        record = records.get(id.removesuffix(COPY))
        if id in world.ledger.reserved or id in records:
            yield f"{id} is charged or logged as a request"
        if record is None or record.error or record.decision is None or record.decision.shadow is None:
            yield f"{id} is the copy of a request without an answer or a shadow"
        elif min(call.began for call in calls) < record.ended:
            yield f"{id} began before the end of its request at {record.ended:.3f}"
        if len(calls) > MOST_CALLS:
            yield f"{id} was sent {len(calls)} times"
    copies = world.shadows.copies
    if copies.running or copies.budget.held:
        yield f"{copies.running} copies hold {copies.budget.held} bytes at idle"
    for live in world.shadows.live.by_name.values():
        if live.running:
            yield f"the shadow {live.name} counts {live.running} copies at idle"


def counted(world: "World") -> set[str]:
    """The states that came up."""
    kinds = {
        f"experiment {each.status}" for each in world.store.stored.values() if isinstance(each, ExperimentProgress)
    }
    for progress in world.store.stored.values():
        if isinstance(progress, RolloutProgress):
            kinds |= {f"rollout {progress.status}", f"reason {progress.reason}", f"step {progress.step}"}
    return kinds | {f"copy {end}" for live in world.shadows.live.by_name.values() for end in live.copies}
