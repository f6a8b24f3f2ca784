"""Elects one decider among the gateways that share a state database."""

import secrets
from collections.abc import Callable

from sqlalchemy import Connection, select, update

from gateway.features.rollouts.schema import lease

SECONDS = 10.0
"""Seconds after which a decider that has not renewed its lease, by the clock of another gateway, is replaced."""


class DeciderLease:
    """One gateway's view of the lease. No two gateways hold it in one transaction of the database.

    A holder raises the beat; another gateway takes over when it has seen no new beat for some seconds of its own
    monotonic clock. So neither clocks that differ nor clocks that jump matter.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.holder = secrets.token_hex(16)
        self._clock = clock
        self._seen: tuple[str, int] | None = None
        self._since = 0.0

    def renew(self, connection: Connection) -> bool:
        """Whether this gateway decides in this transaction, which must exclude all others."""
        holder, beat = connection.execute(select(lease.c.holder, lease.c.beat)).one()
        now = self._clock()
        if (holder, beat) != self._seen:
            self._seen, self._since = (holder, beat), now
        if holder not in ("", self.holder) and now - self._since < SECONDS:
            return False
        connection.execute(update(lease).values(holder=self.holder, beat=beat + 1))
        self._seen = None
        return True

    def release(self, connection: Connection) -> None:
        """Let another gateway decide at once."""
        connection.execute(update(lease).where(lease.c.holder == self.holder).values(holder=""))
