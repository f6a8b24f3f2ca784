"""Refuses what would exceed the quota of a tenant, in the transaction that writes it."""

from collections.abc import Callable

from sqlalchemy import Connection, delete, func, insert, select, text, update

from adapters.errors import StorageFull
from config.schema.limits import DEFAULT_STORAGE
from config.schema.units import format_size
from gateway.features.quota.meter import stored_bytes

Quota = Callable[[str], int]
"""The most bytes that a tenant may store."""
MOST_PARTS = 64
"""Rows of one tenant above which they are folded into one."""
_LOCK = 0x71756F74
_own = stored_bytes.c.tenant


def default_quota(tenant: str) -> int:
    """The quota of a tenant whose limits have none."""
    return DEFAULT_STORAGE


def check_room(connection: Connection, tenant: str, size: int, quota: int) -> int:
    """Refuse `size` more bytes beyond the quota as it is used now. Raises `StorageFull`.

    For work that comes before the transaction that stores. Returns the number of parts.
    """
    counted = select(func.coalesce(func.sum(stored_bytes.c.bytes), 0), func.count()).where(_own == tenant)
    used, parts = connection.execute(counted).one()
    if int(used) + size > quota:
        raise full(quota)
    return int(parts)


def require_room(connection: Connection, tenant: str, size: int, quota: int) -> None:
    """The same for the transaction that stores. Raises `StorageFull`.

    The first statement of it, before those that lock rows; for several tenants, in the order of their names. Until the
    transaction ends, no other one stores for the same tenant, so that together they do not exceed the quota.
    """
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(:lock, hashtext(:tenant))")
        connection.execute(lock, {"lock": _LOCK, "tenant": tenant})
    else:  # a statement that writes takes SQLite's one lock
        connection.execute(update(stored_bytes).where(_own == tenant).values(bytes=stored_bytes.c.bytes))
    if check_room(connection, tenant, size, quota) > MOST_PARTS:
        _fold(connection, tenant)


def used_by_all(connection: Connection) -> dict[str, int]:
    """The bytes of each tenant that stores some."""
    sums = select(_own, func.sum(stored_bytes.c.bytes)).group_by(_own)
    return {tenant: int(used) for tenant, used in connection.execute(sums)}


def full(quota: int) -> StorageFull:
    """The error for a tenant whose quota is used up."""
    return StorageFull(
        f"What this tenant stores would exceed its quota of {format_size(quota)}: delete stored responses, "
        "conversations or files, or send `store: false`."
    )


def _fold(connection: Connection, tenant: str) -> None:
    """Replace the rows of ended transactions by their sum. Those that another process folds are left to it."""
    ended = select(stored_bytes.c.part).where(_own == tenant).with_for_update(skip_locked=True)
    gone = delete(stored_bytes).where(_own == tenant, stored_bytes.c.part.in_(ended)).returning(stored_bytes.c.bytes)
    total = sum(connection.execute(gone).scalars().all())
    part = func.txid_current()
    connection.execute(insert(stored_bytes).values(tenant=tenant, part=part, bytes=total))
