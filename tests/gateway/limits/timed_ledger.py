"""A ledger of each kind, at a time that the test sets."""

from datetime import UTC, datetime
from typing import Any

from config.schema.config import TenantConfig
from config.schema.money import PICOS, Money
from gateway.limits.allowance import Allowance
from gateway.limits.ledger import Ledger, Reservation
from gateway.limits.shared import SharedTable
from policies.facts import Facts
from policies.limits.limits import Amounts

NOON = datetime(2028, 2, 29, 12, tzinfo=UTC).timestamp()


class TimedLedger:
    """A ledger at a time that the test sets, and requests of tenant acme."""

    kind = "memory"

    def __init__(self, limits: Any) -> None:
        self.utc = NOON
        self.tables = tables() if self.kind == "shared" else ()
        self.ledger = Ledger(lambda: self.utc, self.tables[1] if self.tables else None)
        self.configure(limits)

    def __del__(self) -> None:
        for table in self.tables:
            table.close()

    def configure(self, limits: Any, now: float = 0.0) -> None:
        self.ledger.configure([tenant(limits)], now)

    def reserve(
        self,
        tokens: int = 1,
        now: float = 0.0,
        *,
        usd: float | None = None,
        key: str = "k1",
        model: str = "chat",
        user: str | None = None,
    ) -> Reservation:
        facts = Facts("acme", key, model, {}, False, tokens, user, "r")
        allowances = self.ledger.allowances(facts, model, now)
        return self.ledger.reserve(facts, allowances, used(tokens), None if usd is None else dollars(usd), now)

    @property
    def first(self) -> Allowance:
        """The allowance of the tenant as a whole."""
        return self.ledger.accounts["acme"].always[0]

    def left(self, unit: str) -> float:
        return self.first.remaining(0.0, self.utc)[unit]


def tables() -> tuple[SharedTable, SharedTable]:
    """A small one, as the parent sees it and as a worker does."""
    parent = SharedTable.create(2, few=64, many=64)
    return parent, SharedTable.attach(parent.fd, worker=0)


def used(tokens: int) -> Amounts:
    return (1, tokens, 0, 0, 0)


def dollars(amount: float) -> Money:
    return Money(round(amount * 1000) * PICOS // 1000, "usd")


def ledger(**limits: Any) -> TimedLedger:
    return TimedLedger(limits)


def tenant(limits: Any) -> TenantConfig:
    return TenantConfig.model_validate({"name": "acme", "models": ["*"], "limits": limits})
