"""The keys and tokens that one process accepts, refreshed from the database and the issuers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from config.schema.config import Config
from gateway.auth.certificates import Certificates
from gateway.auth.credentials import Credentials
from gateway.auth.keys import ApiKey
from gateway.auth.pepper import derived, load_pepper
from gateway.auth.sealed import SealedKeys
from gateway.auth.store import KeyStore
from gateway.auth.table import KeyTable
from gateway.auth.tokens import Tokens
from gateway.auth.watch import KeyWatcher
from gateway.state.database import sqlite_path
from gateway.state.local_folder import local_folder


class Identity:
    """Runs `open`, then all of `works` until the end, then `close`. `configure` on a reload."""

    def __init__(
        self,
        config: Config,
        demo: ApiKey | None = None,
        on_change: Callable[[KeyTable], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        lent: Path | None = None,
        *,
        is_worker: bool = False,
    ) -> None:
        """`on_change` is called when the keys have changed, but not when the configuration has. `lent` is a sealed copy
        of the keys that the supervisor has written for this process, which writes none itself."""
        self.tokens = Tokens(config.auth.jwt, clock)
        self.store: KeyStore
        self.keys: KeyTable
        self._config = config
        self.demo = demo
        """The demo key, if there is one."""
        self._on_change = on_change
        self._lent = lent
        self._is_worker = is_worker
        self._watcher: KeyWatcher
        self._pepper = b""

    async def open(self) -> None:
        """Load every key before the first request.

        Raises `StateError`; an unavailable issuer does not prevent the start, nor does an unavailable database if a
        sealed copy of its keys can be used.
        """
        pepper = self._pepper = await asyncio.to_thread(load_pepper, self._config)
        open_store = partial(KeyStore, self._config.state.database, pepper, waits=True)
        self.store = await asyncio.to_thread(open_store)
        own = None if self._lent is not None else _sealed_path(self._config)
        try:
            self._watcher = KeyWatcher(
                self.store, pepper, self._config, self._changed, demo=self.demo,
                own=self._sealed(own), lent=self._sealed(self._lent),
                warns=not self._is_worker,
            )  # fmt: skip
            self.keys = await self._watcher.load()
        except BaseException:
            self.store.close()
            raise
        await self.tokens.load()

    def secret(self, purpose: str) -> bytes:
        """A secret of this deployment for one purpose, after `open`: always the same in all of its processes."""
        return derived(self._pepper, purpose)

    @property
    def pepper(self) -> bytes:
        """The pepper, after `open`: other parts of the state database need it for their audit entries."""
        return self._pepper

    def works(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """The work of background tasks that refresh the keys, each with a name."""
        yield "keys", self._watcher.run
        if self._lent is None and _sealed_path(self._config) is not None:
            yield "sealed keys", self._watcher.seal
        yield "tokens", self.tokens.run

    def check(self, config: Config) -> None:
        """Validate a configuration. Raises `StateConfigError` if `configure` would."""
        self._watcher.check(config)

    def configure(self, config: Config) -> KeyTable:
        """Apply another configuration to the keys. On an error the old one stays. Raises `StateConfigError`."""
        self.keys = self._watcher.configure(config)
        self._config = config
        self.tokens.files_may_have_changed()
        return self.keys

    def credentials(self) -> Credentials:
        """An authenticator for callers without a snapshot, outside the path of a request."""
        tenants = {tenant.name for tenant in self._config.tenants}
        return Credentials(self.keys, self.tokens, Certificates(self._config.tenants), tenants)

    @property
    def database_available(self) -> bool:
        """Whether the last read of the database succeeded."""
        return self._watcher.available

    @property
    def keys_age(self) -> float:
        """Seconds since the keys were those of the database; 0 while it answers."""
        return self._watcher.age

    async def lend(self, path: Path) -> bool:
        """Write a sealed copy of the keys for a process that starts. Returns whether there is one."""
        sealed = self._sealed(path) if _sealed_path(self._config) is not None else None
        return sealed is not None and await self._watcher.lend(sealed)

    def _sealed(self, path: Path | None) -> SealedKeys | None:
        return None if path is None else SealedKeys(path, self._pepper, self._config.state.database)

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def _changed(self, keys: KeyTable) -> None:
        self.keys = keys
        self._on_change(keys)


def _sealed_path(config: Config) -> Path | None:
    """The path of the sealed copy; None for SQLite, whose file is on this host itself."""
    if sqlite_path(config.state.database) is not None:
        return None
    return local_folder(config.state.database, "keys", config.state.folder) / "keys.sealed"
