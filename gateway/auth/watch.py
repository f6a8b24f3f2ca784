"""Reloads the keys in memory when the database changes."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import islice

from config import waiting
from config.schema.config import Config
from gateway.auth.keys import ApiKey
from gateway.auth.sealed import SealedKeys, SealedKeysRefused
from gateway.auth.store import KeyStore, LiveKeys
from gateway.auth.table import KeyTable
from gateway.state.database import Stamp
from gateway.state.errors import StateError, StoreUnavailable
from gateway.state.insist import Outages

_log = logging.getLogger(__name__)
_READING = "reading the database"
POLL_INTERVAL = 0.1
"""Seconds between two reads of the epoch. With the reading of what changed, a revocation takes little longer."""
_FULL_LOOK = 5.0
"""Seconds after which the epoch is read although the database's file appears unchanged."""
_RENEWING = 1.0
"""Seconds between two writes of keys that are hashed anew."""
_MOST_RENEWED = 500
"""Keys of one such write: databases bound the parameters of a statement."""
CONFIRM_INTERVAL = 60.0
"""Seconds after which a sealed copy without a change is marked as still right."""
SEAL_PAUSE = 1.0
"""Shortest pause between two writes of the sealed copy, in seconds."""
_MOST_NAMED = 5
"""Tenants of one line in the log."""
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
        own: SealedKeys | None = None,
        lent: SealedKeys | None = None,
        warns: bool = True,
    ) -> None:
        """`own` is the sealed copy that `seal` writes, and `lent` one of another process of this gateway. With `warns`,
        keys of tenants that a configuration does not have are logged."""
        self._warns = warns
        self._removed: Collection[str] = ()
        self._store = store
        self._pepper = pepper
        self._config = config
        self._on_change = on_change
        self._demo = demo
        self._own = own
        self._lent = lent
        self._confirmed = 0.0
        self._to_seal = asyncio.Event()
        self._live: LiveKeys | None = None
        self._renewed: dict[str, bytes] = {}
        """The hashes under the present pepper of keys that were used, until they are stored."""
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
        """The first table, before the first request: from the database, else from a sealed copy.

        Without both, only credentials that do not depend on the database work, if the file has any. Raises
        `StateError`: otherwise no request could be answered.
        """
        try:
            self._live = await asyncio.to_thread(self._read_if_moved) or self._live
            self._confirmed = time.time()
            self._to_seal.set()
        except StoreUnavailable as error:
            await asyncio.to_thread(self._unseal, error)
            self._outages.failed(_READING, error)
        return self.configure(self._config)

    @property
    def age(self) -> float:
        """Seconds since the keys were those of the database; infinite before the first time."""
        if self.available:
            return 0.0
        return max(0.0, time.time() - self._confirmed) if self._confirmed else math.inf

    def _unseal(self, error: StoreUnavailable) -> None:
        """Raises `StoreUnavailable`."""
        reasons = []
        for copy in filter(None, (self._lent, self._own)):
            try:
                self._live, age = copy.read()
            except SealedKeysRefused as reason:
                reasons.append(str(reason))
                continue
            self._confirmed = time.time() - age
            _log.warning(
                "the database is unavailable: %d keys are from the sealed copy %s, which is %.0f s old",
                len(self._live.records), copy.path, age,
            )  # fmt: skip
            return
        why = ", ".join(reasons) or "a database of this kind has none"
        if not _depends_on_file(self._config):
            raise StoreUnavailable(f"{error}; and no sealed copy of the keys can be used: {why}") from None
        _log.error(
            "the database is unavailable, and no sealed copy of the keys can be used: %s. "
            "Only keys of the file, tokens and certificates are accepted until it returns", why,
        )  # fmt: skip

    async def seal(self) -> None:
        """Write the sealed copy after each change of the keys, until cancelled."""
        failures = Outages("keys", OSError, meanwhile="a process that starts without the database has older keys")
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFIRM_INTERVAL):
                    await self._to_seal.wait()
            began = time.monotonic()
            changed = self._to_seal.is_set()
            self._to_seal.clear()
            if self._own is not None and self._live is not None and (changed or self.available):
                work = partial(self._own.write, self._live, self._confirmed) if changed else self._own.confirm
                with failures.noting("the sealed copy"):
                    await asyncio.to_thread(work)
                if not failures.available:
                    self._to_seal.set()  # the file is not what the database has: it must not be confirmed
            await asyncio.sleep(max(SEAL_PAUSE, 10 * (time.monotonic() - began)))

    async def lend(self, copy: SealedKeys) -> bool:
        """Write another sealed copy, for a process that starts. Returns whether it has the keys."""
        if self._live is None:
            return False
        try:
            await asyncio.to_thread(copy.write, self._live, self._confirmed)
        except OSError as error:
            _log.error("the keys cannot be lent to another process: %s", error)
            return False
        return True

    def check(self, config: Config) -> None:
        """Validate a configuration. Raises `StateConfigError` if `configure` would."""
        self._build(config)

    def configure(self, config: Config) -> KeyTable:
        """The table under another configuration, which later changes of the store are combined with.

        On an error the old configuration stays. Does not call `on_change`. Raises `StateConfigError`.
        """
        table = self._build(config)
        self._config, self._table = config, table
        if self._warns:
            self._warn_of_removed(config)
        return table

    def _warn_of_removed(self, config: Config) -> None:
        """Log the tenants of valid keys that a configuration does not have."""
        tenants = {tenant.name for tenant in config.tenants}
        keys = self._live.records.values() if self._live is not None else ()
        removed = Counter(r.principal.tenant for r in keys if r.principal.tenant not in tenants)
        if removed and removed.keys() != self._removed:
            named = ", ".join(f"{tenant} ({count})" for tenant, count in removed.most_common(_MOST_NAMED))
            _log.warning(
                "valid keys in the database belong to tenants that the file does not have: %s%s. They are refused: "
                "add the tenants again, or revoke the keys", named, ", …" if len(removed) > _MOST_NAMED else "",
            )  # fmt: skip
        self._removed = removed.keys()

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
        self._confirmed = time.time()
        if live is not None:
            if live.is_other and self._live is not None:
                counts = len(live.records), len(self._live.records)
                _log.error(
                    "another key database, or an older state of it, is in place of the one before: "
                    "%d keys instead of %d", *counts,
                )  # fmt: skip
            self._live = live
            self._to_seal.set()
            if live.changed is None or self._table is None:
                self._table = self._build(self._config)
            else:
                changed = {key_id: live.records.get(key_id) for key_id in live.changed}
                self._table = self._table.changed(self._config, changed, live.teams, live.ended)
            self._on_change(self._table)

    def _may_have_moved(self) -> bool:
        """Check the file's stamp first: opening a SQLite database ten times a second would dominate an idle gateway's
        CPU.
        """
        if self._renewed and time.monotonic() - self._looked > _RENEWING:
            return True
        seen, self._stamp = self._stamp, self._store.stamp(time.time())
        return self._stamp is None or self._stamp != seen or time.monotonic() - self._looked > _FULL_LOOK

    def _read_if_moved(self) -> LiveKeys | None:
        if renewed := dict(islice(self._renewed.items(), _MOST_RENEWED)):
            self._store.renew(renewed)
            for key_id in renewed:
                self._renewed.pop(key_id, None)
        if self._live is None:
            return self._store.read_live(time.time())
        if self._store.read_epoch() == self._live.position.epoch:
            return None
        return self._store.read_changes(self._live, time.time())

    def _build(self, config: Config) -> KeyTable:
        live = self._live
        if live is None:
            table = KeyTable.build(config, self._pepper, demo=self._demo, is_complete=False)
        else:
            issued = live.records.values()
            table = KeyTable.build(config, self._pepper, issued, self._demo, live.teams, live.ended)
        table.on_old_pepper = self._renewed.__setitem__
        return table


def _depends_on_file(config: Config) -> bool:
    """Whether a configuration has credentials that do not need the database."""
    return bool(config.auth.jwt or config.auth.demo_key) or any(t.keys or t.certificates for t in config.tenants)
