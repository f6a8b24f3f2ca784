"""The audit log: administrative acts in the state database, each entry chained to the one before it.

An entry's digest is an HMAC under the pepper over its contents and the digest before it. A process that can write to
the database without the pepper can neither change an entry nor remove one from the middle undetected. The chain alone
does not detect that the newest entries were removed: `verify` reports the head, which is compared with a head that was
stored elsewhere.
"""

import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, insert, select

from adapters.wire.decoding import whole_number
from gateway.auth.keys import digest
from gateway.auth.schema import audit

Outcome = Literal["done", "refused", "failed"]
PEPPER_REPLACED = "pepper.replaced"
"""Written when the pepper is replaced or rotated: the contents of earlier entries can no longer be verified."""
FILTERS = ("actor", "action", "target", "outcome")
_START = "0" * 64
_PAGE = 1000
_TEXT_LENGTH = 300
_DETAIL_LENGTH = 8000


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor: a credential's `key_id`, `cli:USER@HOST`, `gateway@HOST` or `local` (no credential was required)."""

    id: str
    role: str = ""
    """The authority under which the actor acted."""
    peer: str = ""
    """The client's address."""


@dataclass(frozen=True, slots=True)
class Act:
    """An act that was done or refused. Contains no secret."""

    actor: Actor
    action: str
    """Such as `key.create`; method and route for an operation without a name."""
    target: str = ""
    outcome: Outcome = "done"
    detail: Mapping[str, Any] = field(default_factory=dict)


class AuditEntry(NamedTuple):
    """A row: `at` in Unix seconds, `detail` as JSON."""

    seq: int
    at: float
    actor: str
    role: str
    peer: str
    action: str
    target: str
    outcome: str
    detail: str
    previous: str
    digest: str


class Verdict(NamedTuple):
    """The result of `verify`: the number of entries, the number and digest of the newest one, and the defect."""

    entries: int
    head: str
    problem: str = ""
    unchecked: int = 0
    """Entries from before the pepper was replaced: their order was checked, their contents could not be."""


def append(connection: Connection, pepper: bytes, act: Act, now: float) -> None:
    """Write one entry, in a transaction that holds the writers' lock."""
    newest = connection.execute(select(audit.c.seq, audit.c.digest).order_by(audit.c.seq.desc()).limit(1)).first()
    seq, previous = (newest.seq + 1, newest.digest) if newest is not None else (1, _START)
    actor, detail = act.actor, json.dumps(act.detail, ensure_ascii=True, default=str)
    if len(detail) > _DETAIL_LENGTH:
        detail = json.dumps({"cut": detail[:_DETAIL_LENGTH]})
    name, role, peer = _bounded(actor.id), _bounded(actor.role), _bounded(actor.peer)
    entry = AuditEntry(
        seq, now, name, role, peer, _bounded(act.action), _bounded(act.target), act.outcome, detail, previous, ""
    )
    connection.execute(insert(audit).values(entry._replace(digest=_digest(pepper, entry))._asdict()))


def read(
    connection: Connection, limit: int, before: int | None = None, filters: Mapping[str, str] | None = None
) -> list[AuditEntry]:
    """The newest entries, newest first; only those numbered below `before`, to page on. `filters` are texts by the
    names in `FILTERS`: the beginning of an action, a part of an actor or of a target, an outcome."""
    query = select(audit).order_by(audit.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(audit.c.seq < before)
    for name, text in (filters or {}).items():
        column = audit.c[name]
        if name == "action":
            query = query.where(column.startswith(text, autoescape=True))
        else:
            query = query.where(column == text if name == "outcome" else column.contains(text, autoescape=True))
    return [AuditEntry(*row) for row in connection.execute(query)]


def verify(connection: Connection, pepper: bytes) -> Verdict:
    """Verify the chain from its beginning. Stops at the first broken link."""
    count, last, changed, unchecked = 0, _START, "", 0
    for entry in _all(connection):
        if entry.seq != count + 1:
            return Verdict(count, f"{count}:{last}", f"entry {count + 1} is missing", unchecked)
        if entry.previous != last:
            return Verdict(count, f"{count}:{last}", f"entry {entry.seq} does not follow entry {count}", unchecked)
        if not hmac.compare_digest(entry.digest, _digest(pepper, entry)):
            changed = changed or f"entry {entry.seq} was changed"
        elif entry.action == PEPPER_REPLACED:
            changed, unchecked = "", count
        count, last = entry.seq, entry.digest
    return Verdict(count, f"{count}:{last}", changed, unchecked)


def holds(connection: Connection, head: str) -> bool:
    """Whether the log still contains the entry that was its head: `SEQ:DIGEST`, as `verify` reported it."""
    seq, _, recorded = head.partition(":")
    if (number := whole_number(seq)) is None:
        return False
    if number == 0:
        return recorded == _START
    stored = connection.execute(select(audit.c.digest).where(audit.c.seq == number)).scalar_one_or_none()
    return stored is not None and hmac.compare_digest(stored, recorded)


def _all(connection: Connection) -> Iterator[AuditEntry]:
    """Every entry in order, read a page at a time: a log grows for years."""
    last = -1
    while True:
        page = connection.execute(select(audit).where(audit.c.seq > last).order_by(audit.c.seq).limit(_PAGE)).all()
        for row in page:
            yield AuditEntry(*row)
        if len(page) < _PAGE:
            return
        last = page[-1].seq


def _digest(pepper: bytes, entry: AuditEntry) -> str:
    encoded = json.dumps(list(entry[:-1]), ensure_ascii=True, separators=(",", ":"))
    return digest(pepper, f"headrace audit {encoded}").hex()


def _bounded(text: str) -> str:
    clean = "".join(c if c.isprintable() else "?" for c in text[: _TEXT_LENGTH + 1])
    return clean if len(clean) <= _TEXT_LENGTH else clean[:_TEXT_LENGTH] + "…"
