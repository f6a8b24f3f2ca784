"""Thresholds of soft budgets that are reached, from sums of usage."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from config.schema.config import Config, TenantConfig
from config.schema.money import MoneyBudget, Period
from config.schema.tenant import SoftBudgetConfig
from gateway.features.usage.labels import HOUR
from gateway.features.usage.report import Label, UsageQuery, groups_of
from policies.limits.budget import window

_BACK: dict[Period, float] = {"hour": 48 * 3600.0, "day": 4 * 86400.0, "month": 40 * 86400.0}
"""How long before now periods are compared: usage of a host may wait for the database."""
Report = Callable[[UsageQuery], list[dict[str, Any]]]


class BudgetAlert(NamedTuple):
    """A threshold of one period of a budget that is reached. `begin` and `end` are Unix seconds, amounts in picos."""

    id: str
    tenant: str
    team: str
    budget: str
    begin: int
    end: int
    threshold: float
    spent: int
    currency: str
    webhook: str


def reached(config: Config, report: Report, now: float) -> Iterator[BudgetAlert]:
    """The thresholds that are reached in recent periods. `report` answers queries of usage."""
    budgets: defaultdict[tuple[Period, str], list[tuple[TenantConfig, SoftBudgetConfig]]] = defaultdict(list)
    for tenant in config.tenants:
        for soft in tenant.soft_budgets:
            budgets[soft.spend.period, soft.per].append((tenant, soft))
    for (period, per), owners in budgets.items():
        by: tuple[Label, ...] = ("tenant",) if per == "tenant" else ("tenant", "team")
        begin = window(period, now - _BACK[period])[0]
        query = UsageQuery(int(begin) // HOUR, int(now) // HOUR + 1, by, period)
        by_tenant: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in _rows(report, query):
            by_tenant[row["tenant"]].append(row)
        for tenant, soft in owners:
            for row in by_tenant[tenant.name]:
                yield from _of_row(tenant.name, soft, row)


def _rows(report: Report, query: UsageQuery) -> Iterator[dict[str, Any]]:
    while rows := report(query):
        yield from rows
        if len(rows) < query.limit:
            return
        query = query._replace(after=[rows[-1][name] for name in groups_of(query)])


def _of_row(tenant: str, soft: SoftBudgetConfig, row: dict[str, Any]) -> Iterator[BudgetAlert]:
    spend, team = soft.spend, row.get("team", "")
    if row["currency"] != spend.currency or (soft.per == "team" and not team):
        return
    begin, end = _bounds(spend, row)
    for threshold in soft.at:
        if row["picos"] >= threshold * spend.picos:
            parts = (tenant, team, soft.per, str(spend), str(begin), f"{threshold:.6f}", soft.webhook)
            id_ = "budget_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
            picos, currency = row["picos"], spend.currency
            yield BudgetAlert(id_, tenant, team, str(spend), begin, end, threshold, picos, currency, soft.webhook)


def _bounds(spend: MoneyBudget, row: dict[str, Any]) -> tuple[int, int]:
    """The first second of the row's period, and that of the next."""
    if spend.period == "hour":
        return row["hour"] * HOUR, (row["hour"] + 1) * HOUR
    text = row["day"] if spend.period == "day" else f"{row['month']}-01"
    begin = datetime.fromisoformat(text).replace(tzinfo=UTC)
    end = begin + timedelta(days=1) if spend.period == "day" else (begin + timedelta(days=32)).replace(day=1)
    return int(begin.timestamp()), int(end.timestamp())
