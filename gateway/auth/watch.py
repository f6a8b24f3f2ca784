"""Reloads the keys in memory when the database changes."""

import asyncio
import logging
import time
from collections.abc import Callable

from config import waiting
from config.schema.config import Config
from gateway.auth.keys import ApiKey
from gateway.auth.store import KeyStore, LiveKeys
from gateway.auth.table import KeyTable
from gateway.state.database import Stamp
from gateway.state.errors import StateError, StoreUnavailable
from gateway.state.insist import Outages

_log = logging.getLogger(__name__)
_READING = "reading the database"
POLL_INTERVAL = 0.2
"""Seconds between two reads of the epoch. With the reading of what changed, a revocation counts within 250 ms."""
_FULL_LOOK = 5.0
"""Seconds after which the epoch is read although the database's file appears unchanged."""
_PATIENCE = 10.0
"""Seconds after which a database that neither answers nor fails counts as unavailable."""


class KeyWatcher:
    """Polls the store's epoch, and passes a new `KeyTable` to `on_change` when the epoch has moved.

    While the database is unavailable, the current keys stay valid, and the outage is logged once; changes take effect
    when it returns. `available` reports the state.
    """

    def __init__(
        self,
        store: KeyStore,
        pepper: bytes,
        config: Config,
        on_change: Callable[[KeyTable], None],
        *,
        demo: ApiKey | None = None,
    ) -> None:
        self._store = store
        self._pepper = pepper
        self._config = config
        self._on_change = on_change
        self._demo = demo
        self._live: LiveKeys | None = None
        self._table: KeyTable | None = None
        self._reading: asyncio.Task[LiveKeys | None] | None = None
        self._stamp: Stamp | None = None
        self._looked = 0.0
        self._outages = Outages(
            "keys", StateError, meanwhile="the current keys stay valid, and changes of keys take no effect"
        )

    @property
    def available(self) -> bool:
        """Whether the database answered the last time."""
        return self._outages.available

    async def load(self) -> KeyTable:
        """The first table, before the first request.

        Raises `StateError`: a gateway without its keys would refuse valid ones.
        """
        self._live = await asyncio.to_thread(self._read_if_moved) or self._live
        return self.configure(self._config)

    def check(self, config: Config) -> None:
        """Validate a configuration. Raises `StateConfigError` if `configure` would."""
        self._build(config)

    def configure(self, config: Config) -> KeyTable:
        """The table under another configuration, which later changes of the store are combined with.

        On an error the old configuration stays. Does not call `on_change`. Raises `StateConfigError`.
        """
        table = self._build(config)
        self._config, self._table = config, table
        return table

    async def run(self) -> None:
        """Poll until cancelled. An exception of `on_change` is that of `run`: a watcher never fails silently."""
        while True:
            await waiting.until(self._may_have_moved, POLL_INTERVAL)
            await self.poll()

    async def poll(self) -> None:
        """One poll of the store."""
        self._looked = time.monotonic()
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(self._read_if_moved))
        done, _ = await asyncio.wait((self._reading,), timeout=_PATIENCE)
        if not done:
            # A thread cannot be stopped: the next poll waits for the same one, so that only one is blocked.
            self._outages.failed(_READING, StoreUnavailable("the key database does not answer"))
            return
        reading, self._reading = self._reading, None
        try:
            live = reading.result()
        except StateError as error:
            self._outages.failed(_READING, error)
            return
        self._outages.succeeded(_READING)
        if live is not None:
            if live.is_other and self._live is not None:
                counts = len(live.records), len(self._live.records)
                _log.error(
                    "another key database, or an older state of it, is in place of the one before: "
                    "%d keys instead of %d", *counts,
                )  # fmt: skip
            self._live = live
            if live.changed is None or self._table is None:
                self._table = self._build(self._config)
            else:
                changed = {key_id: live.records.get(key_id) for key_id in live.changed}
                self._table = self._table.changed(self._config, changed, live.teams, live.ended)
            self._on_change(self._table)

    def _may_have_moved(self) -> bool:
        """Check the file's stamp first: opening a SQLite database four times a second would dominate an idle gateway's
        CPU.
        """
        seen, self._stamp = self._stamp, self._store.stamp(time.time())
        return self._stamp is None or self._stamp != seen or time.monotonic() - self._looked > _FULL_LOOK

    def _read_if_moved(self) -> LiveKeys | None:
        if self._live is None:
            return self._store.read_live(time.time())
        if self._store.read_epoch() == self._live.position.epoch:
            return None
        return self._store.read_changes(self._live, time.time())

    def _build(self, config: Config) -> KeyTable:
        live = self._live
        if live is None:
            return KeyTable.build(config, self._pepper, demo=self._demo)
        return KeyTable.build(config, self._pepper, live.records.values(), self._demo, live.teams, live.ended)
