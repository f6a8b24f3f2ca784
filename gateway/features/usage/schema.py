"""The tables of usage in the state database, created on first use."""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, String

from gateway.features.usage.labels import COUNTERS
from gateway.state.schema import TableGroup

USAGE = TableGroup("usage")


def _labels() -> list["Column[str]"]:
    lengths = {"tenant": 128, "key": 512, "model": 512, "arm": 512, "currency": 8, "team": 128, "user": 256}
    return [Column(name, String(length), nullable=False, server_default="") for name, length in lengths.items()]


def _counters() -> list["Column[int]"]:
    return [Column(name, BigInteger, nullable=False) for name in COUNTERS]


# Amounts that only grow. Two gateways never write the same row: `source` is a writer, or a log of a batch.
hours = USAGE.table(
    "usage_hours",
    Column("source", String(64), primary_key=True),
    Column("slot", Integer, primary_key=True),
    Column("hour", BigInteger, nullable=False),  # Unix time // 3600
    Column("day", String(10), nullable=False),  # YYYY-MM-DD in UTC
    *_labels(),
    *_counters(),
)
# How much of each journal is in `hours`: moved in the transaction that adds to it.
sources = USAGE.table(
    "usage_sources",
    Column("source", String(64), primary_key=True),
    Column("offset", BigInteger, nullable=False),
    Column("at", Double, nullable=False, server_default="0"),
)
days = USAGE.table(
    "usage_days",
    Column("day", String(10), nullable=False),
    *_labels(),
    *_counters(),
    # Billions of picos beyond `picos`: a day may exceed 63 bits.
    Column("picos_high", BigInteger, nullable=False, server_default="0"),
)
# The days whose sums are in `usage_days`. A row of another hour of the day deletes its entry here.
summed = USAGE.table(
    "usage_summed_days",
    Column("day", String(10), primary_key=True),
    Column("at", Double, nullable=False),
    # 1 if the day is in `usage_totals` too.
    Column("rolled", Integer, nullable=False, server_default="0"),
)
ROLLED = ("team", "model", "key")
# Roll-ups of ended days by one label of each tenant. With the label `tenant` the value is empty, and with `models` the
# tenant: those are the models of all tenants.
totals = USAGE.table(
    "usage_totals",
    Column("day", String(10), nullable=False),
    Column("label", String(8), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("value", String(512), nullable=False),
    Column("currency", String(8), nullable=False),
    *_counters(),
    Column("picos_high", BigInteger, nullable=False),
)
Index("usage_totals_label", totals.c.label, totals.c.day, totals.c.tenant)
Index("usage_totals_day", totals.c.day)
Index("usage_hours_day", hours.c.day, hours.c.tenant)
Index("usage_days_day", days.c.day, days.c.tenant)
Index("usage_days_tenant", days.c.tenant, days.c.day)
# Added in the transaction that adds the usage of the same lines. `version` grows with each of them, which wait for each
# other: a reader of all larger versions misses none.
draws = USAGE.table(
    "usage_draws",
    Column("name", String(32), primary_key=True),
    Column("begin", BigInteger, primary_key=True),
    Column("ledger", String(32), primary_key=True),
    Column("until", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("billions", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)
# When a limit was first in a file: from then on its draws are recorded. 0 for those of earlier releases.
begun = USAGE.table(
    "usage_limits",
    Column("name", String(32), primary_key=True),
    Column("holder", String(512), nullable=False),
    Column("since", BigInteger, nullable=False),
)
Index("usage_draws_version", draws.c.version)
Index("usage_draws_until", draws.c.until)
