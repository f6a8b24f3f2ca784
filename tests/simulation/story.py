"""One seed, one story: the clients' requests, the servers' faults, and the operators' actions meanwhile."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gateway.auth.audit import Actor
from gateway.features.rollouts.planned import Verb
from gateway.state.errors import StoreUnavailable
from policies.rollouts.decide import OrderRefused
from tests.simulation import configurations, virtual
from tests.simulation.clients import Leave, Order, Outcome, send
from tests.simulation.comparisons import Variant, compared, has_comparisons
from tests.simulation.fates import FINE, MOODS
from tests.simulation.shares import counted, draws
from tests.simulation.verdicts import judge
from tests.simulation.virtual import VirtualLoop
from tests.simulation.world import GATEWAY, KEYS, World

SECONDS = 16.0
MOST_OF_COPIES = 30.0
VERBS: tuple[Verb, ...] = ("pause", "on", "on", "back", "stop")
ORDERS = 36
MORE_ORDERS = 90
"""Of a story with comparisons, which decide by evidence."""


@dataclass(slots=True)
class Story:
    """The outcomes of a story and its broken rules."""

    seed: int
    peaceful: bool
    """Nothing fails, and clients stay: only ops are at work."""
    problems: list[str] = field(default_factory=list)
    seen: list[Outcome] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    """Fates and statuses that came up."""
    admitted: int = 0
    refused: int = 0
    """Requests that limits admitted and refused."""
    drawn: list[tuple[tuple[float, ...], int]] = field(default_factory=list)
    """Of requests that drew their arm: the shares of the arms, and the number of the arm."""


def play(seed: int, variant: Variant | None = None) -> Story:
    """Run it to its end. `variant`: with these comparisons, also in a story that has none."""
    story = Story(seed, peaceful=seed % 6 == 0)
    variant = variant or ("all" if has_comparisons(seed) else None)
    logs = _Logs()
    gc.disable()  # what a story leaves behind is found when it ends, and not in the next one
    logging.getLogger("gateway").addHandler(logs)
    try:
        virtual.run(lambda loop: _Player(loop, story, variant).run(), ordered=variant in ("copies", "few copies"))
    except virtual.Stuck as stuck:
        story.problems.append(str(stuck))
    finally:
        logging.getLogger("gateway").removeHandler(logs)
        gc.enable()
    story.problems += logs.lines
    return story


class _Logs(logging.Handler):
    """Nothing that happens here is worth a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not text.startswith("rollouts: ") and " is unhealthy: " not in text:  # the database or a server was away
            self.lines.append(f"logged: {text}")


class _Player:
    """Plays one story."""

    def __init__(self, loop: VirtualLoop, story: Story, variant: Variant | None) -> None:
        self.loop = loop
        self.story = story
        self.dice = Random(story.seed)
        self.world = World(loop, story.seed)
        self.urls = [server.url for server in self.world.servers]
        self.written = configurations.first(self.dice, self.urls)
        self.variant = variant
        self.version = 0
        self.models = [model["name"] for model in self.written["models"]]

    async def run(self) -> None:
        world, story = self.world, self.story
        await world.start(self._file())
        await world.decider.open()
        deciding = asyncio.create_task(world.decider.run())
        orders = [self._order(i) for i in range(ORDERS if self.variant is None else MORE_ORDERS)]
        events = [self._at(at, act) for at, act in self._events()]
        clients = [self._client(order) for order in orders]
        looking = asyncio.create_task(self._look())
        await asyncio.gather(*events, *clients)
        for task in (looking, deciding):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for server in world.servers:
            server.revive()
            server.mood = FINE
        world.store.is_away = False
        await asyncio.sleep(SECONDS / 8)
        async with asyncio.timeout(MOST_OF_COPIES):
            while world.shadows.copies.running:
                await asyncio.sleep(0.1)
        await world.decider.tick()
        story.problems += judge(world, story.seen, peaceful=story.peaceful)
        await world.stop()
        await asyncio.sleep(0.2)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        story.problems += [f"a task is left: {task}" for task in left]
        gc.collect(0)
        story.problems += [f"unhandled: {e.get('message')} {e.get('exception')!r}" for e in self.loop.errors]
        story.kinds |= {call.fate.kind for server in world.servers for call in server.calls}
        story.kinds |= {str(seen.status) for seen in story.seen}
        story.kinds |= counted(world)
        story.drawn = list(draws(world, story.seen))
        oracle = world.ledger.oracle
        story.admitted, story.refused = oracle.admitted, oracle.refused

    async def _client(self, order: Order) -> None:
        await asyncio.sleep(order.at)
        self.story.seen.append(await send(self.loop, GATEWAY, order))

    async def _look(self) -> None:
        """Now and then, at moments at which nothing else happens."""
        dice = Random(self.story.seed)
        while True:
            await asyncio.sleep(dice.uniform(0.1, 0.3))
            for pool in self.world.pools.values():
                pool.unserved()

    async def _at(self, at: float, act: Callable[[], Awaitable[None] | None]) -> None:
        await asyncio.sleep(at)
        if (waiting := act()) is not None:
            await waiting

    # ── what clients do ───────────────────────────────────────────────────────────────────────────────

    def _order(self, index: int) -> Order:
        dice = self.dice
        # Half of them come in bursts at one moment, the others whenever.
        at = dice.choice((2.0, 5.0, 9.0)) if dice.random() < 0.5 else dice.uniform(0.0, 0.8 * SECONDS)
        if self.variant in ("copies", "few copies"):
            at += index * 0.001  # of requests of one moment, an unordered set decides which times out first
        tenant = dice.choice(self.written["tenants"])["name"]
        key = f"{tenant}/k{dice.randint(0, 1)}"
        leave: Leave = "never"
        if not self.story.peaceful and dice.random() < 0.25:
            leave = dice.choice(("before", "amid", "amid", "stops_reading"))
        return Order(
            at=at,
            id=f"r{index}",
            tenant=tenant,
            key=KEYS[key].plaintext if dice.random() < 0.97 else "hr-" + "q" * 12 + "-" + "s" * 43,
            model=dice.choice(self.models) if dice.random() < 0.97 else "nothing",
            user=dice.choice((None, "ann", "bob")),
            stream=dice.random() < 0.6,
            prompt=dice.choice((4, 40, 400)),
            max_tokens=dice.choice((None, 5, 100, 5000)),
            n=dice.choice((1, 1, 1, 2)),
            headers=dice.choice(({}, {"x-session": "one"}, {"x-session": "two"}, {"x-headrace-priority": "low"})),
            leave=leave,
            after=0.0 if leave == "before" else dice.uniform(0.0, 2.0),
            body=b'{"model": ' if dice.random() < 0.03 else b"",
        )

    # ── what happens to servers, and what ops do ──────────────────────────────────────────────────────

    def _events(self) -> list[tuple[float, Callable[[], Any]]]:
        dice = self.dice
        reloads = range(dice.choice((0, 1, 2, 4)))
        events: list[tuple[float, Callable[[], Any]]]
        events = [(dice.uniform(0.5, 0.8 * SECONDS), self._reload) for _ in reloads]
        if dice.random() < 0.3:
            events.append((dice.uniform(0.5, 0.8 * SECONDS), lambda: self.world.revoke(dice.choice(sorted(KEYS)))))
        if self.variant is not None:
            events += self._of_rollouts()
        if self.story.peaceful:
            return events
        for server in self.world.servers:
            if dice.random() < 0.6:
                server.mood = dice.choice(MOODS)
            for _ in range(dice.choice((0, 0, 1, 3))):
                start, length = dice.uniform(0.5, 0.7 * SECONDS), dice.choice((0.1, 1.0, 5.0))
                harm = dice.choice((server.kill, server.kill, server.vanish, server.freeze, server.sicken))
                events += [(start, harm), (start + length, server.revive)]
        return events

    def _reload(self) -> Awaitable[None]:
        self.written = configurations.changed(self.dice, self.written, self.urls)
        self.version += 1
        return self.world.reload(self._file())

    def _file(self) -> dict[str, Any]:
        """The file with its comparisons."""
        if self.variant is None:
            return self.written
        return compared(self.story.seed, self.version, self.written, self.variant)

    def _of_rollouts(self) -> list[tuple[float, Callable[[], Any]]]:
        """Orders of operators, and times in which the database is away."""
        dice = Random(f"{self.story.seed} rollouts")
        events: list[tuple[float, Callable[[], Any]]]
        events = [
            (dice.uniform(1.0, SECONDS), lambda: self._order_rollout(dice)) for _ in range(dice.choice((0, 1, 3)))
        ]
        for _ in range(dice.choice((0, 0, 1, 2))):
            start = dice.uniform(0.0, 0.7 * SECONDS)
            events += [(start, lambda: self._set_away(away=True)), (start + 3.0, lambda: self._set_away(away=False))]
        return events

    async def _order_rollout(self, dice: Random) -> None:
        plans = self.world.decider.planned
        if plans:
            config, verb = dice.choice(plans).config, dice.choice(VERBS)
            with suppress(OrderRefused, StoreUnavailable):
                await self.world.decider.order(config.name, verb, Actor("operator", "sim"), config.kind)

    def _set_away(self, *, away: bool) -> None:
        self.world.store.is_away = away
