"""Stores the figures of this replica in the background, and reads those of the other replicas for the console."""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

import msgspec

from config.schema.config import Config
from gateway.features.live.frames import ReplicaView, summary_of
from gateway.features.live.history import Sums, columns_of, sums_of
from gateway.features.live.store import LiveStore
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.rounds import Rounds
from gateway.telemetry.figures import Dimension, FigureSet
from gateway.telemetry.recent import MINUTE, RETAINED

PERIOD = 2.0
"""Seconds between two looks at the database: whether somebody watches, and what other replicas do."""
HISTORY_HOURS = 6
_SILENT = 10.0
"""Seconds without a new beat after which nobody watches any more, or a replica is silent."""
_GONE = 120.0
"""Seconds after which a silent replica is no longer shown."""
_MOST_ENDPOINTS = 100
"""Endpoints that a replica stores for the others."""
_SETTLED = 5
"""Minutes after which no replica adds to a minute."""
_STORED_NAMES = 8
"""Names of each dimension of a stored minute, somewhat more than the series of a chart: a page reads hundreds."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class LoadSource(Protocol):
    """What all processes of this replica do."""

    async def load(self) -> dict[str, Any]:
        """Endpoints, queues, and the sums of the last seconds."""

    async def minutes(self) -> dict[str, Any]:
        """The sums of the last complete minutes, by their number."""


class LiveBoard:
    """`run` in the background, then `aclose`. Without the database, this replica shows itself alone."""

    def __init__(
        self,
        config: Callable[[], Config],
        pepper: Callable[[], bytes],
        source: LoadSource,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.replica = secrets.token_hex(8)
        """The id of this replica. A restart has another one."""
        self._config = config
        self._source = source
        self._wall = wall
        self._clock = clock
        self._opened = Opened(lambda: LiveStore(self._config().state.database, pepper()))
        self._outages = Outages("live figures", meanwhile="this replica shows itself alone")
        self._rounds = Rounds(self._outages, "storing", self._round, lambda: PERIOD)
        self._stored = int(wall()) // MINUTE - 1
        """The last minute that is stored."""
        self._watch = (0, -_SILENT)
        """The last beat of those who watch, and when it came."""
        self._published = False
        self._seen: dict[str, tuple[int, float | None]] = {}
        """The last beat of each other replica, and when it changed; None before the first change."""
        self._others: list[ReplicaView] = []
        self._looked = -_SILENT
        self._looking: asyncio.Task[None] | None = None
        self._past: dict[Dimension | None, tuple[int, int, dict[int, Sums]]] = {}
        """By what a page has charted: minutes that are complete, where they begin, and where they end."""
        self._reading = Lock()

    @property
    def name(self) -> str:
        """The name of this replica: that of its host, and its port for operators."""
        return f"{socket.gethostname()}:{self._config().listen.admin.port}"

    @property
    def is_shared(self) -> bool:
        """Whether other replicas may use the same database."""
        return not self._config().state.database.startswith("sqlite")

    async def run(self) -> None:
        """Store until cancelled."""
        await self._rounds.run()

    async def aclose(self) -> None:
        """Delete what this replica does, and close the database."""
        if self._looking is not None:
            await asyncio.wait((self._looking,))
        if self._published:
            with self._outages.noting("storing"):
                await asyncio.to_thread(self._opened().remove, self.replica)
        await asyncio.to_thread(self._opened.close)

    # ── this replica ──────────────────────────────────────────────────────────────────────────────────────

    async def _round(self) -> None:
        if self.is_shared and await asyncio.to_thread(self._is_watched):
            frame = _encode(summary_of(await self._source.load(), _MOST_ENDPOINTS)).decode()
            self._published = True
            await asyncio.to_thread(self._opened().put, self.replica, self.name, self._wall(), frame)
        config = self._config()
        minute = (int(self._wall()) - RETAINED - 1) // MINUTE  # earlier minutes are complete in every worker
        if (config.usage is not None or config.requests is not None) and self._stored < minute - 1:
            complete = await self._source.minutes()
            new = {int(each): figures for each, figures in complete.items() if self._stored < int(each) < minute}
            texts = {each: _minute_of(figures) for each, figures in new.items()}
            oldest = minute - HISTORY_HOURS * MINUTE
            await asyncio.to_thread(lambda: self._opened().add_minutes(self.replica, texts, oldest))
            self._stored = minute - 1

    def _is_watched(self) -> bool:
        """Whether somebody watches, in any replica."""
        beat, now = self._opened().watch(), self._clock()
        if beat != self._watch[0]:
            self._watch = beat, now
        return now - self._watch[1] < _SILENT

    # ── all replicas ──────────────────────────────────────────────────────────────────────────────────────

    async def views(self) -> list[ReplicaView]:
        """This replica, then the others as they were seconds ago. Call it again and again while somebody watches."""
        own = ReplicaView(self.replica, self.name, summary_of(await self._source.load()))
        if not self.is_shared:
            return [own]
        now = self._clock()
        if now - self._looked >= PERIOD and (self._looking is None or self._looking.done()):
            if now - self._looked >= _SILENT:
                self._seen, self._others = {}, []  # nobody has watched
            self._looked, self._looking = now, asyncio.create_task(self._look())
        return [own, *self._others]

    async def _look(self) -> None:
        with self._outages.noting("watching"):
            await asyncio.to_thread(lambda: self._opened().raise_watch())
            rows = await asyncio.to_thread(lambda: self._opened().others(self.replica))
            now, others = self._clock(), []
            for row in rows:
                beat, changed = self._seen.get(row.replica, (row.beat, None))
                if beat != row.beat:
                    changed = now
                self._seen[row.replica] = row.beat, changed
                if changed is not None and (silent := now - changed) < _GONE:
                    state = _decode(row.frame)
                    others.append(ReplicaView(row.replica, row.name, state, silent if silent >= _SILENT else 0.0))
            self._others = others

    async def history(self, hours: int, by: Dimension | None, replica: str | None) -> dict[str, Any]:
        """The minutes of the last hours of one replica or of all of them. Raises `StateError`."""
        return await asyncio.to_thread(self._history, hours, by, replica)

    def _history(self, hours: int, by: Dimension | None, replica: str | None) -> dict[str, Any]:
        end = int(self._wall() - RETAINED - 2 * PERIOD) // MINUTE  # a later minute may not be stored yet
        first, store = end - hours * MINUTE, self._opened()
        if replica is not None:
            return columns_of(sums_of(store.minutes_from(first, replica), by), first, end, by)
        with self._reading:
            settled = end - _SETTLED
            begin, past_end, past = self._past.get(by, (end, 0, {}))
            if first < begin:
                begin, past_end, past = first, 0, {}
            begin = max(begin, end - HISTORY_HOURS * MINUTE)
            whole = past | sums_of(store.minutes_from(max(begin, past_end), None), by)
            stays = {minute: figures for minute, figures in whole.items() if begin <= minute < settled}
            self._past[by] = begin, max(past_end, settled), stays
        return columns_of(whole, first, end, by)


def _minute_of(described: dict[str, Any]) -> str:
    """The JSON of a minute, with its largest names."""
    figures = FigureSet.read(described)
    figures.fold(_STORED_NAMES)
    return _encode(figures.describe()).decode()
