"""What requests have drawn from limits of long periods, in the state database: sums by name, slot and ledger."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, select

from gateway.features.usage.schema import draws
from gateway.limits.drawn import Draw, drawn
from gateway.state.statements import in_parts, insert_into

MILLIS = 1000


class ReadDraws(NamedTuple):
    """The sums that have changed, or all of them, and the version up to which they are."""

    version: int
    draws: list[Draw]
    is_whole: bool


def add_draws(connection: Connection, new: Iterable[Draw], now: float) -> None:
    """Add draws that a limit still reads."""
    _write(connection, drawn(draw for draw in new if draw.until > now), now, adds=True)


def put_draws(connection: Connection, new: Iterable[Draw], now: float) -> None:
    """Replace the sums of these names, slots and ledgers."""
    _write(connection, drawn(new), now, adds=False)


def _write(connection: Connection, sums: Sequence[Draw], now: float, *, adds: bool) -> None:
    if not sums:
        return
    # A database that has lost its last changes is not given the versions of those again: readers have them.
    version = max(_last(connection) + 1, int(now * MILLIS))
    statement = insert_into(connection, draws)
    new = {name: statement.excluded[name] for name in ("amount", "billions", "version")}
    if adds:
        new |= {name: draws.c[name] + statement.excluded[name] for name in ("amount", "billions")}
    statement = statement.on_conflict_do_update(index_elements=["name", "begin", "ledger"], set_=new)
    for part in in_parts([draw._asdict() | {"version": version} for draw in sums]):
        connection.execute(statement, part)


def read_draws(connection: Connection, after: int, now: float) -> ReadDraws:
    """The sums with a version above `after`. All of them for 0, and if the database is older than that."""
    last = _last(connection)
    is_whole = after == 0 or last < after
    columns = [draws.c[name] for name in Draw._fields]
    query = select(*columns).where(draws.c.until > now)
    if not is_whole:
        query = query.where(draws.c.version > after)
    return ReadDraws(last, [Draw(*row) for row in connection.execute(query)], is_whole)


def forget_draws(connection: Connection, now: float) -> None:
    """Delete what no limit reads any more. The last version stays: the next one is larger."""
    connection.execute(delete(draws).where(draws.c.until < now, draws.c.version < _last(connection)))


def _last(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(draws.c.version), 0))).scalar_one())
