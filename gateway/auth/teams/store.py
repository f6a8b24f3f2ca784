"""Teams in the state database. Every method blocks: call it in a thread from async code.

Every change moves the epoch of the keys and writes its entry of the audit log, in one transaction.
"""

import json
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from gateway.auth.audit import Act, Actor, append
from gateway.auth.errors import NoSuchKey, NoSuchTeam, TeamConflict
from gateway.auth.schema import keys, team_keys, teams
from gateway.auth.state import StateDatabase

MOST_TEAMS = 1000
"""Teams of one tenant."""


class StoredTeam(NamedTuple):
    """A team of the database. `limits` is JSON, as in the file; times are Unix seconds."""

    tenant: str
    name: str
    limits: str
    created_at: float
    changed_at: float


class TeamStore:
    """Methods raise `StoreUnavailable` and `StoreMismatch`."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def read_all(self, tenant: str | None = None) -> tuple[StoredTeam, ...]:
        """Every team by name, or those of one tenant."""
        with self._database.transaction() as connection:
            return read_teams(connection, *(() if tenant is None else (teams.c.tenant == tenant,)))

    def put(self, tenant: str, name: str, limits: Any, *, by: Actor, now: float) -> bool:
        """Create a team, or replace its limits. True for a new team. Raises `TeamConflict` beyond `MOST_TEAMS`."""
        written = json.dumps(limits)
        with self._database.change(moves_epoch=True) as connection:
            changed = update(teams).where(*_is(tenant, name)).values(limits=written, changed_at=now)
            is_new = connection.execute(changed).rowcount == 0
            if is_new:
                count = select(func.count()).select_from(teams).where(teams.c.tenant == tenant)
                if connection.execute(count).scalar_one() >= MOST_TEAMS:
                    raise TeamConflict(f"a tenant has at most {MOST_TEAMS} teams")
                row = StoredTeam(tenant, name, written, now, now)
                connection.execute(insert(teams).values(row._asdict()))
            act = Act(by, "team.create" if is_new else "team.change", f"{tenant}/{name}", detail={"limits": limits})
            append(connection, self._database.pepper, act, now)
        return is_new

    def remove(self, tenant: str, name: str, *, by: Actor, now: float) -> None:
        """Remove a team without keys. Raises `NoSuchTeam`, and `TeamConflict` while a valid key is in the team."""
        with self._database.change(moves_epoch=True) as connection:
            ends = or_(keys.c.expires_at.is_(None), keys.c.expires_at > now)
            of_team = team_keys.join(keys, keys.c.id == team_keys.c.key_id)
            valid = select(func.count()).select_from(of_team)
            valid = valid.where(team_keys.c.team == name, keys.c.tenant == tenant, keys.c.revoked_at.is_(None), ends)
            if count := connection.execute(valid).scalar_one():
                raise TeamConflict(
                    f"{count} valid keys are in the team {name}: revoke them, or move them to another team"
                )
            if connection.execute(delete(teams).where(*_is(tenant, name))).rowcount == 0:
                raise NoSuchTeam(f"no team of {tenant} in the database is named {name!r}")
            append(connection, self._database.pepper, Act(by, "team.remove", f"{tenant}/{name}"), now)

    def move_key(self, tenant: str, key_id: str, team: str, *, by: Actor, now: float) -> None:
        """Move an issued key of a tenant to a team; empty for none. Raises `NoSuchKey`."""
        with self._database.change(moves_epoch=True, keys=(key_id,)) as connection:
            own = select(keys.c.id).where(keys.c.id == key_id, keys.c.tenant == tenant)
            if connection.execute(own).first() is None:
                raise NoSuchKey(f"no issued key has the id {key_id!r}")
            connection.execute(delete(team_keys).where(team_keys.c.key_id == key_id))
            join_team(connection, key_id, team)
            act = Act(by, "key.move", f"{tenant}/{key_id}", detail={"team": team})
            append(connection, self._database.pepper, act, now)


def read_teams(connection: Connection, *where: ColumnElement[bool]) -> tuple[StoredTeam, ...]:
    """Teams by tenant and name."""
    rows = connection.execute(select(teams).where(*where).order_by(teams.c.tenant, teams.c.name)).mappings()
    return tuple(StoredTeam(**row) for row in rows)


def join_team(connection: Connection, key_id: str, team: str | None) -> None:
    """Put a key without a team into one; into none if it is empty."""
    if team:
        connection.execute(insert(team_keys).values(key_id=key_id, team=team))


def team_of(connection: Connection, key_id: str) -> str | None:
    """The team of a key."""
    return connection.execute(select(team_keys.c.team).where(team_keys.c.key_id == key_id)).scalar_one_or_none()


def _is(tenant: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return teams.c.tenant == tenant, teams.c.name == name
