"""The table of `headrace keys list`. Contains no hash and no secret."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from textwrap import indent

from config.schema.config import Config, KeyConfig
from gateway.auth.keys import end_of_day
from gateway.auth.store import Status, StoredKey
from gateway.auth.table import written_keys

MOST_FITTED = 1000
"""Keys of a table whose columns fit the terminal."""


@dataclass(frozen=True, slots=True)
class ListedKey:
    """One line: a key in the database or in the YAML file (`stored_in`); times are ISO 8601 in UTC."""

    id: str
    tenant: str
    label: str
    status: Status
    stored_in: str
    created: str | None
    expires: str | None
    revoked: str | None
    replaced_by: str | None
    role: str = "user"
    scopes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    team: str = ""
    lineage: str | None = None
    old_pepper: bool = False
    """Whether it was not used since the pepper was rotated."""
    blocked: str | None = None


_FIELDS = tuple(each.name for each in fields(ListedKey))


def listed(config: Config, issued: Iterable[StoredKey], now: float) -> Iterator[ListedKey]:
    """Issued keys in their order, then those of the file. Raises `StateConfigError`."""
    written_keys(config)  # raises for keys that can never be used
    return chain(
        (_issued(key, now) for key in issued),
        (_written(tenant.name, key, now) for tenant in config.tenants for key in tenant.keys),
    )


def _issued(key: StoredKey, now: float) -> ListedKey:
    return ListedKey(
        key.id, key.tenant, key.label, key.status(now), "database",
        utc(key.created_at), _moment(key.expires_at), _moment(key.revoked_at), key.replaced_by,
        key.role, key.scopes, key.labels, key.team, key.lineage, bool(key.pepper), _moment(key.blocked_at),
    )  # fmt: skip


def _written(tenant: str, key: KeyConfig, now: float) -> ListedKey:
    ends = None if key.expires is None else end_of_day(key.expires)
    status: Status = "active" if ends is None or ends > now else "expired"
    scopes = {} if key.scopes is None else key.scopes.model_dump(mode="json", exclude_none=True)
    moment = _moment(ends)
    grant = key.role, scopes, key.labels, key.team or "", key.lineage
    return ListedKey(key.id, tenant, "", status, "file", None, moment, None, None, *grant)


def show_json(keys: Iterable[ListedKey]) -> None:
    """Print a JSON array of objects with the fields of `ListedKey`, as they come."""
    before = "["
    for key in keys:
        text = json.dumps({name: getattr(key, name) for name in _FIELDS}, indent=2)
        print(before + "\n" + indent(text, "  "), end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def show_table(keys: Iterable[ListedKey]) -> None:
    """Print for people, on a terminal of 80 columns too: days without times, and rare attributes of keys in `notes`.

    Many keys are lines that are printed as they come: to fit them to a terminal takes minutes.
    """
    from rich.table import Column, Table  # 40 ms, which a start of the gateway does not need

    from gateway.terminal import plain, show

    keys = iter(keys)
    first = list(islice(keys, MOST_FITTED + 1))
    if len(first) > MOST_FITTED:
        widths = [12, min(24, max(len(key.tenant) for key in first)), 8, 10, 10, 0]
        lines = map(_cells, chain(first, keys))
        for cells in chain([("id", "tenant", "status", "created", "expires", "notes")], lines):
            print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
        return
    table = Table(Column("id", no_wrap=True), Column("tenant", overflow="fold"), box=None, pad_edge=False)
    for name in ("status", "created", "expires"):
        table.add_column(name, no_wrap=True)
    table.add_column("notes", overflow="fold")
    for key in first:
        table.add_row(*map(plain, _cells(key)))
    show(table)


def _cells(key: ListedKey) -> tuple[str, ...]:
    from gateway.terminal import printable  # with rich

    created = (key.created or "").partition("T")[0]
    tenant, notes = printable(key.tenant), printable(_notes(key))
    return key.id, tenant, key.status, created, _last_day(key.expires), notes


def _last_day(expires: str | None) -> str:
    """The last day on which a key is valid; a key that expires at midnight is valid on the day before."""
    if expires is None:
        return ""
    return (datetime.fromisoformat(expires) - timedelta(seconds=1)).date().isoformat()


def _notes(key: ListedKey) -> str:
    notes = [key.label, _grant(key)]
    if key.stored_in == "file":
        notes.append("in the file")
    if key.old_pepper:
        notes.append("old pepper")
    if key.replaced_by is not None:
        notes.append(f"replaced by {key.replaced_by}")
    return ", ".join(filter(None, notes))


def _grant(key: ListedKey) -> str:
    scopes = [f"{kind}:{name}" for kind, names in key.scopes.items() for name in names]
    role = [] if key.role == "user" else [key.role]
    team = [f"team:{key.team}"] if key.team else []
    return " ".join([*role, *team, *scopes, *(f"{name}={value}" for name, value in key.labels.items())])


def utc(moment: float) -> str:
    """`2027-06-30T23:59:59Z` of Unix seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(moment: float | None) -> str | None:
    return None if moment is None else utc(moment)
