"""The keys and tokens that one process accepts, refreshed from the database and the issuers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from config.schema.config import Config
from gateway.auth.certificates import Certificates
from gateway.auth.credentials import Credentials
from gateway.auth.keys import ApiKey
from gateway.auth.pepper import derived, load_pepper
from gateway.auth.store import KeyStore
from gateway.auth.table import KeyTable
from gateway.auth.tokens import Tokens
from gateway.auth.watch import KeyWatcher


class Identity:
    """Runs `open`, then all of `works` until the end, then `close`. `configure` on a reload."""

    def __init__(
        self,
        config: Config,
        demo: ApiKey | None = None,
        on_change: Callable[[KeyTable], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is called when the keys have changed, but not when the configuration has."""
        self.tokens = Tokens(config.auth.jwt, clock)
        self.store: KeyStore
        self.keys: KeyTable
        self._config = config
        self.demo = demo
        """The demo key, if there is one."""
        self._on_change = on_change
        self._watcher: KeyWatcher
        self._pepper = b""

    async def open(self) -> None:
        """Load every key before the first request.

        Raises `StateError`; an unavailable issuer does not prevent the start.
        """
        pepper = self._pepper = await asyncio.to_thread(load_pepper, self._config)
        self.store = await asyncio.to_thread(KeyStore, self._config.state.database, pepper)
        try:
            self._watcher = KeyWatcher(self.store, pepper, self._config, self._changed, demo=self.demo)
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

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def _changed(self, keys: KeyTable) -> None:
        self.keys = keys
        self._on_change(keys)
