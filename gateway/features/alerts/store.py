"""Alerts in the state database. Every method blocks: call it in a thread from async code.

Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Double, Index, Integer, String, Text, delete, func, insert, select, update

from config.schema.money import format_amount
from gateway.auth.audit import Act, append
from gateway.auth.state import StateDatabase, this_process
from gateway.features.alerts.thresholds import BudgetAlert
from gateway.state.schema import TableGroup
from gateway.state.statements import in_parts

ALERTS = TableGroup("alerts")
# `next_at` is the time of the next attempt; null after the last. `outcome` is empty, `delivered` or `dropped`.
alerts = ALERTS.table(
    "budget_alerts",
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("team", String(128), nullable=False),
    Column("budget", Text, nullable=False),
    Column("begin", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("threshold", Double, nullable=False),
    Column("spent", Text, nullable=False),
    Column("currency", String(8), nullable=False),
    Column("webhook", String(128), nullable=False),
    Column("at", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Double),
    Column("outcome", String(16), nullable=False),
)
Index("budget_alerts_next", alerts.c.next_at)
Index("budget_alerts_tenant", alerts.c.tenant, alerts.c.at)
MOST_WAITING = 10_000
"""Alerts that wait for their delivery; more are dropped."""
RETENTION = 400 * 86400.0
"""Seconds for which an alert is stored: longer than its period is compared."""
_FIELDS = BudgetAlert._fields


class WaitingAlert(NamedTuple):
    """An alert that this process may deliver now."""

    alert: BudgetAlert
    at: float
    """Unix seconds of its creation."""
    attempts: int


class AlertStore:
    """The alerts of one state database. Creates the missing table when it opens."""

    def __init__(self, url: str, pepper: bytes) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for one that cannot be used."""
        self._database = StateDatabase(url, pepper, ALERTS)

    def add(self, reached: Iterable[BudgetAlert], now: float) -> tuple[int, int]:
        """Store the alerts that are new, each with its entry of the audit log. Returns the numbers of new and of
        dropped ones."""
        by_id = {alert.id: alert for alert in reached}
        if not by_id or not (by_id := self._without_stored(by_id)):
            return 0, 0
        new = dropped = 0
        with self._database.change(moves_epoch=False) as connection:  # excludes other writers
            waiting = connection.execute(select(func.count()).where(alerts.c.next_at.is_not(None))).scalar_one()
            for alert in by_id.values():
                if connection.execute(select(alerts.c.id).where(alerts.c.id == alert.id)).first() is not None:
                    continue
                is_full = waiting >= MOST_WAITING
                row = {**alert._asdict(), "spent": str(alert.spent), "at": now, "attempts": 0}
                end = {"next_at": None, "outcome": "dropped"} if is_full else {"next_at": now, "outcome": ""}
                connection.execute(insert(alerts).values(row | end))
                target = f"{alert.tenant}/{alert.team}" if alert.team else alert.tenant
                detail = {"budget": alert.budget, "threshold": alert.threshold, "begin": alert.begin,
                          "spent": format_amount(alert.spent), "webhook": alert.webhook}  # fmt: skip
                append(
                    connection, self._database.pepper, Act(this_process(), "budget.alert", target, detail=detail), now
                )
                new, dropped, waiting = new + 1, dropped + is_full, waiting + (not is_full)
            connection.execute(delete(alerts).where(alerts.c.end < now - RETENTION))
        return new, dropped

    def take(self, webhook: str, now: float, lease: float) -> WaitingAlert | None:
        """The next alert for a webhook; no other process takes it for `lease` seconds. None if none is due."""
        due = select(alerts).where(alerts.c.webhook == webhook, alerts.c.next_at <= now)
        with self._database.change(moves_epoch=False) as connection:  # excludes other takers
            row = (
                connection.execute(due.order_by(alerts.c.next_at, alerts.c.threshold, alerts.c.id).limit(1))
                .mappings()
                .first()
            )
            if row is None:
                return None
            taken = {"next_at": now + lease, "attempts": row["attempts"] + 1}
            connection.execute(update(alerts).where(alerts.c.id == row["id"]).values(taken))
        alert = BudgetAlert(**{name: row[name] for name in _FIELDS} | {"spent": int(row["spent"])})
        return WaitingAlert(alert, row["at"], row["attempts"] + 1)

    def due(self, now: float) -> list[str]:
        """The webhooks for which an alert is due."""
        with self._database.transaction() as connection:
            names = select(alerts.c.webhook).where(alerts.c.next_at <= now).distinct()
            return list(connection.execute(names).scalars())

    def ended(self, id_: str, outcome: str) -> None:
        """Record that an alert was delivered or dropped."""
        self._update(id_, {"next_at": None, "outcome": outcome})

    def retry(self, id_: str, at: float) -> None:
        """Let an alert be delivered again at a time."""
        self._update(id_, {"next_at": at})

    def waiting(self) -> int:
        """The number of alerts that are not delivered."""
        with self._database.transaction() as connection:
            return int(connection.execute(select(func.count()).where(alerts.c.next_at.is_not(None))).scalar_one())

    def newest(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        """The newest alerts of a tenant."""
        rows = select(alerts).where(alerts.c.tenant == tenant).order_by(alerts.c.at.desc(), alerts.c.id).limit(limit)
        with self._database.transaction() as connection:
            return [dict(row) for row in connection.execute(rows).mappings()]

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()

    def _without_stored(self, by_id: dict[str, BudgetAlert]) -> dict[str, BudgetAlert]:
        """Read before a write: most comparisons reach nothing new."""
        ids = list(by_id)
        with self._database.transaction() as connection:
            stored = {
                id_
                for part in in_parts(ids)
                for id_ in connection.execute(select(alerts.c.id).where(alerts.c.id.in_(part))).scalars()
            }
        return {id_: alert for id_, alert in by_id.items() if id_ not in stored}

    def _update(self, id_: str, values: dict[str, Any]) -> None:
        with self._database.change(moves_epoch=False) as connection:
            connection.execute(update(alerts).where(alerts.c.id == id_).values(values))
