"""`headrace erase`: deletes what one end user of a tenant has stored, and notes it in the audit log."""

import json
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Annotated, Any, NamedTuple

import typer
from sqlalchemy import Connection, Table, delete, func, select, update

from gateway.auth.audit import Act, Actor, append
from gateway.auth.grants import check_tenant
from gateway.auth.pepper import derived, load_pepper
from gateway.auth.state import StateDatabase
from gateway.auth.terminal import ConfigFile, plain_errors, print_status, settings_of, terminal_user
from gateway.features.journal.folders import requests_folder
from gateway.features.requests.days import open_days
from gateway.features.requests.store import RequestStore
from gateway.features.stored.store import STORED, conversations, items, responses
from gateway.features.usage.schema import USAGE, days, hours
from policies.facts import bounded_user

_PAGE = 500
"""Rows of a read, and of a deletion."""
_NAMES = ("user", "safety_identifier")
_IN_METADATA = ("user", "user_id")


class Erased(NamedTuple):
    """How many rows of each kind belonged to the user."""

    responses: int
    conversations: int
    items: int
    usage: int
    """Rows of usage, which stay without the user: the sums of the tenant are right."""
    requests: int
    """Records of requests, which stay without the user."""


def erase(
    tenant: Annotated[str, typer.Option(help="Tenant of the user, as in the YAML file.")],
    user: Annotated[str, typer.Option(help="The `user` or `safety_identifier` of the client's requests.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; count what belongs to the user.")] = False,
    config: ConfigFile = None,
) -> None:
    """Delete what is stored of an end user, and take the name out of usage and of the records of requests. The audit
    log has no name."""
    with plain_errors():
        settings = settings_of(config)
        check_tenant(settings, tenant)
        database = StateDatabase(settings.state.database, load_pepper(settings), STORED, USAGE)
        days = open_days(settings.state.database, requests_folder(settings))
        with closing(RequestStore(days)) as records:
            by, now = terminal_user(), time.time()
            erased = erase_user(database, records, tenant, user, by=by, now=now, only_count=dry_run)
    print_status("Nothing is deleted:" if dry_run else "Deleted:")
    typer.echo(json.dumps(erased._asdict()))


def erase_user(
    database: StateDatabase,
    records: RequestStore,
    tenant: str,
    user: str,
    *,
    by: Actor,
    now: float,
    only_count: bool = False,
) -> Erased:
    """Delete all rows of a user, take the name out of usage, and write the entry of the audit log, in one transaction.

    The days of records have transactions of their own. They come before it: after a failure, the command is repeated.
    A response belongs to the user whom its request names. A conversation does so if its metadata names the user, or if
    one of its responses belongs to the user.
    """
    named = records.forget_user(tenant, bounded_user(user), only_count=only_count)
    # A count reads for long, and must not lock other writers out.
    with database.transaction() if only_count else database.change(moves_epoch=False) as connection:
        own_responses, talks = set[str](), set[str]()
        for id_, answer in _objects(connection, tenant, responses, "answer", user):
            if _names(answer, user):
                own_responses.add(id_)
                if isinstance(talk := answer.get("conversation"), dict):
                    talks.add(str(talk.get("id")))
        for id_, metadata in _objects(connection, tenant, conversations, "metadata", user):
            if user in (metadata.get(name) for name in _IN_METADATA):
                talks.add(id_)
        erased = Erased(
            _delete(connection, tenant, responses, "id", own_responses, only_count=only_count),
            _delete(connection, tenant, conversations, "id", talks, only_count=only_count),
            _delete(connection, tenant, items, "conversation", talks, only_count=only_count),
            _forget(connection, tenant, user, only_count=only_count),
            named,
        )
        if not only_count:
            # The log cannot be changed, so it has a keyed digest: only who has the name can recognize it.
            digest = derived(database.pepper, f"erased user {tenant} {user}").hex()[:16]
            act = Act(by, "user.erase", f"{tenant}/{digest}", detail=erased._asdict())
            append(connection, database.pepper, act, now)
    return erased


def _forget(connection: Connection, tenant: str, user: str, *, only_count: bool) -> int:
    """Take the name of a user out of usage. Returns the number of rows."""
    count = 0
    for table in (hours, days):
        own = table.c.tenant == tenant, table.c.user == bounded_user(user)
        if only_count:
            count += connection.execute(select(func.count()).select_from(table).where(*own)).scalar_one()
        else:
            count += connection.execute(update(table).where(*own).values(user="")).rowcount
    return count


def _objects(
    connection: Connection, tenant: str, table: Table, column: str, user: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The id and the JSON object of each row that may name the user."""
    query = select(table.c.id, table.c[column]).where(table.c.tenant == tenant)
    for id_, text in connection.execute(query, execution_options={"yield_per": _PAGE}):
        # A text that has escapes is decoded in any case.
        if (user in text or "\\" in text) and isinstance(value := json.loads(text), dict):
            yield id_, value


def _names(answer: dict[str, Any], user: str) -> bool:
    metadata = answer.get("metadata")
    in_metadata = [metadata.get(name) for name in _IN_METADATA] if isinstance(metadata, dict) else []
    return user in [*(answer.get(name) for name in _NAMES), *in_metadata]


def _delete(
    connection: Connection, tenant: str, table: Table, column: str, ids: Collection[str], *, only_count: bool
) -> int:
    count, waiting = 0, sorted(ids)
    for at in range(0, len(waiting), _PAGE):
        own = (table.c.tenant == tenant, table.c[column].in_(waiting[at : at + _PAGE]))
        if only_count:
            count += len(connection.execute(select(table.c.id).where(*own)).all())
        else:
            count += connection.execute(delete(table).where(*own)).rowcount
    return count
