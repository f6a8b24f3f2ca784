"""The bound of issued keys of one tenant."""

from sqlalchemy import Connection, delete, func, or_, select

from gateway.auth.errors import TooManyKeys
from gateway.auth.schema import keys, team_keys


def make_room(connection: Connection, tenant: str, now: float, most: int | None, *, rotates: bool) -> None:
    """Bound the rows of a tenant before one more is added; None for no bound. Raises `TooManyKeys`.

    A tenant has `most` valid keys, and as many that were replaced and are valid until their overlap ends. Of its ended
    keys the newest `most` stay: the audit log has them all.
    """
    if most is None:
        return
    valid = keys.c.revoked_at.is_(None) & or_(keys.c.expires_at.is_(None), keys.c.expires_at > now)
    own = keys.c.tenant == tenant
    count = select(func.count()).select_from(keys).where(own, valid)
    if not rotates:
        count = count.where(keys.c.replaced_by.is_(None))
    if connection.execute(count).scalar_one() >= (2 * most if rotates else most):
        raise TooManyKeys(f"the tenant {tenant} has {most} valid keys, as many as it may have: revoke one first")
    ended = select(keys.c.id).where(own, ~valid).order_by(keys.c.created_at.desc(), keys.c.id).offset(most)
    old = connection.execute(ended).scalars().all()
    for table, column in ((team_keys, team_keys.c.key_id), (keys, keys.c.id)):
        if old:
            connection.execute(delete(table).where(column.in_(old)))
