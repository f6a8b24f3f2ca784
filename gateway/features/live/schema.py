"""The tables of live figures in the state database, created on first use."""

from sqlalchemy import BigInteger, Column, Double, Integer, String, Text

from gateway.state.schema import TableGroup

LIVE = TableGroup("live")
_ID = 32

minutes = LIVE.table(
    "live_minutes",
    Column("minute", BigInteger, primary_key=True, autoincrement=False),  # Unix time // 60
    Column("replica", String(_ID), primary_key=True),
    Column("figures", Text, nullable=False),
)
# What each replica does now. `beat` grows with each write: clocks of replicas differ.
replicas = LIVE.table(
    "live_replicas",
    Column("replica", String(_ID), primary_key=True),
    Column("name", String(256), nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("frame", Text, nullable=False),
)
# One row, whose beat grows while somebody watches.
watched = LIVE.table(
    "live_watched",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("beat", BigInteger, nullable=False),
)
