"""Batches of one tenant or of all, over every API, for operators and tenants' admins. Every function blocks."""

from typing import Final, NamedTuple, get_args

from sqlalchemy import select

from gateway.auth.keys import Principal
from gateway.features.batches.rows import StoredBatch
from gateway.features.batches.schema import batches
from gateway.features.batches.store import BatchStore, batch_of
from policies.batches.states import ENDED, Status

MOST_ROWS: Final = 100
UNFINISHED: Final = "unfinished"
"""Stands for every state of a batch that has not ended."""
STATES: Final = (UNFINISHED, *get_args(Status))


class BatchSearch(NamedTuple):
    """Batches, newest first. Without a tenant those of all tenants, without a state those of all states."""

    tenant: str | None = None
    state: str | None = None
    after: str | None = None
    """The id of the last batch of the page before."""
    limit: int = 50


def page_of(store: BatchStore, search: BatchSearch) -> list[StoredBatch] | None:
    """One page; None if the batch that it follows does not exist."""
    own = [] if search.tenant is None else [batches.c.tenant == search.tenant]
    query = select(batches).where(*own)
    if search.state is not None:
        states = sorted(set(get_args(Status)) - ENDED) if search.state == UNFINISHED else [search.state]
        query = query.where(batches.c.status.in_(states))
    with store.database.transaction() as connection:
        if search.after is not None:
            last = select(batches.c.number).where(*own, batches.c.id == search.after)
            number = connection.execute(last).scalar()
            if number is None:
                return None
            query = query.where(batches.c.number < number)
        rows = connection.execute(query.order_by(batches.c.number.desc()).limit(search.limit)).all()
        return [batch_of(connection, row) for row in rows]


def one_of(store: BatchStore, id_: str, tenant: str | None) -> StoredBatch | None:
    """One batch, if it is the tenant's."""
    own = [] if tenant is None else [batches.c.tenant == tenant]
    with store.database.transaction() as connection:
        row = connection.execute(select(batches).where(batches.c.id == id_, *own)).one_or_none()
        return None if row is None else batch_of(connection, row)


def cancel(store: BatchStore, id_: str, tenant: str | None, now: float) -> StoredBatch | None:
    """Let no further line of a batch begin. A batch that has ended, or is ending, does not change."""
    batch = one_of(store, id_, tenant)
    return None if batch is None else store.cancel(Principal(batch.spec.tenant, ""), id_, batch.spec.api, now)
