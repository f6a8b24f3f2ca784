"""Gateways that share a state database, with the limits of one tenant, at a time of the test."""

from pathlib import Path
from typing import Any

from config.schema.config import Config
from config.schema.money import PICOS, Money
from gateway.auth.keys import Principal
from gateway.features.journal.files import WaitingFiles
from gateway.features.usage.budgets import BudgetReader
from gateway.features.usage.labels import HOUR
from gateway.features.usage.report import UsageQuery
from gateway.features.usage.writer import UsageWriter
from gateway.limits.ledger import Ledger, Reservation
from gateway.limits.long_limits import long_limits
from gateway.limits.shared import SharedTable
from policies.facts import Facts
from tests.support.gateways import PEPPER, config
from tests.support.usage_hosts import NOVEMBER, counting, record

DAY = 86400.0


class Clock:
    def __init__(self) -> None:
        self.utc = NOVEMBER + 13 * DAY + 9 * 3600.0

    def wall(self) -> float:
        return self.utc


class Pod:
    """A gateway on a host of its own. `start` begins a process, which may be killed: then nothing is closed."""

    def __init__(self, folder: Path, database: str, clock: Clock, limits: Any, *, shares: bool = False) -> None:
        self.clock = clock
        self.folder = folder
        self._database = database
        self._shares = shares
        self.config = self._with(limits)

    def _with(self, limits: Any) -> Config:
        return config(
            state={"database": self._database},
            usage={"folder": str(self.folder), "users": 100},
            tenants=[{"name": "acme", "models": ["*"], "limits": limits}],
            models=[
                {"name": "chat", "routes": [{"to": "main"}], "price": {"request": "1 usd"}},
                {"name": "big", "routes": [{"to": "main"}], "price": {"request": "1 usd"}},
            ],
        )

    async def start(self) -> None:
        files = WaitingFiles(lambda: self.config)
        self.writer = UsageWriter(lambda: self.config, lambda: PEPPER, files, self.clock.wall)
        await self.writer.write()
        table = None
        if self._shares:
            table = SharedTable.attach(SharedTable.create(2, few=64, many=256).fd, worker=0)
        self.ledger = Ledger(self.clock.wall, table)
        self.ledger.drawn.is_recorded = True
        self.ledger.configure(self.config.tenants, 0.0, self.config.models)
        self.budgets = BudgetReader(
            lambda: self.config, lambda: PEPPER, self.ledger, lambda: self.clock.utc, self.clock.wall
        )
        await self.budgets.read()
        self.sink = counting(self.folder, users=100)

    async def reload(self, limits: Any) -> None:
        """Put other limits in force, as a reload of the file does."""
        made = self._with(limits)
        await self.budgets.begin(long_limits(made.tenants, made.models))
        self.config = made
        self.ledger.configure(made.tenants, 0.0, made.models)

    async def aclose(self) -> None:
        self.sink.close()
        await self.budgets.aclose()
        await self.writer.aclose()

    def facts(self, principal: Principal, user: str | None, model: str) -> Facts:
        return Facts(
            "acme", principal.key_id, model, {}, False, 1, user, "r", team=principal.team, lineage=principal.lineage
        )

    def reserve(self, principal: Principal, user: str | None, model: str, usd: int) -> Reservation:
        facts = self.facts(principal, user, model)
        allowances = self.ledger.allowances(facts, model, 0.0)
        return self.ledger.reserve(facts, allowances, (1, 1, 0, 0, 0), Money(usd * PICOS, "usd"), 0.0)

    def settle(self, held: Reservation, principal: Principal, user: str | None, model: str, cost: int) -> None:
        held.settle((1, 5, 0, 0, 0), Money(cost, "usd"), 0.0)
        self.sink.put(
            record(
                "acme",
                model,
                self.clock.utc,
                cost,
                key=principal.key_id,
                lineage=principal.lineage,
                user=user or "",
                draws=held.draws,
            )
        )

    def used(self) -> dict[tuple[str, ...], int]:
        """Of each limit in force and each of its subjects: the picos that the ledger counts."""
        limits = self.ledger.accounts["acme"].limits
        return {
            (limit.config.per, str(limit.config.spend), ",".join(limit.config.models or ()), subject): _used(
                allowance, self.clock.utc
            )
            for limit in limits
            for subject, allowance in limit._allowances.items()
        }

    async def total(self, **query: Any) -> dict[Any, int]:
        """The recorded picos of this month, by a label."""
        store = await self.writer.store()
        rows = store.report(UsageQuery(NOVEMBER // HOUR, NOVEMBER // HOUR + 24 * 30)._replace(**query))
        return {tuple(row[name] for name in query.get("by", ())): row["picos"] for row in rows if row["picos"]}


def _used(allowance: Any, utc: float) -> int:
    allowance.look(0.0, utc)
    allowance.spend.reset(utc)
    return int(allowance.spend.used)
