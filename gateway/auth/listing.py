"""The keys as `headrace keys list` shows them. No hash, no secret."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from config.schema import Config
from gateway.auth.store import Status, StoredKey
from gateway.auth.table import written_keys


@dataclass(frozen=True, slots=True)
class ListedKey:
    """One line: a key in the database or in the YAML file (`kept_in`); times are ISO 8601 in UTC."""

    id: str
    tenant: str
    label: str
    status: Status
    kept_in: str
    created: str | None
    expires: str | None
    revoked: str | None
    replaced_by: str | None


def listed(config: Config, issued: Iterable[StoredKey], now: float) -> list[ListedKey]:
    """Issued keys, oldest first, then those of the file. Raises `KeyConfigError`."""
    lines = [
        ListedKey(
            key.id, key.tenant, key.label, key.status(now), "database",
            utc(key.created_at), _moment(key.expires_at), _moment(key.revoked_at), key.replaced_by,
        )
        for key in issued
    ]  # fmt: skip
    for key_id, record in written_keys(config).items():
        ends = None if record.expires_at == math.inf else record.expires_at
        status: Status = "expired" if record.expires_at <= now else "active"
        tenant = record.principal.tenant
        lines.append(ListedKey(key_id, tenant, "", status, "file", None, _moment(ends), None, None))
    return lines


def as_json(keys: Iterable[ListedKey]) -> str:
    """A JSON array of objects with the fields of `ListedKey`."""
    return json.dumps([asdict(key) for key in keys], indent=2)


def show_table(keys: Iterable[ListedKey]) -> None:
    """Print for people."""
    table = Table(
        Column("id", no_wrap=True), "tenant", "label", "status", "kept in", "created", "expires", "replaced by"
    )
    for key in keys:
        cells = (key.id, key.tenant, key.label, key.status, key.kept_in, key.created, key.expires, key.replaced_by)
        table.add_row(*(escape(cell or "") for cell in cells))
    Console().print(table)


def utc(moment: float) -> str:
    """`2027-06-30T23:59:59Z` of Unix seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(moment: float | None) -> str | None:
    return None if moment is None else utc(moment)
