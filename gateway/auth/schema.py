"""The key database's two tables."""

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, String, Table

SCHEMA_VERSION = 1

_metadata = MetaData()
# Times are Unix seconds: SQLite has no type for a moment, and each is only compared with a clock's number.
keys = Table(
    "keys",
    _metadata,
    Column("id", String(12), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("label", String(100), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("replaced_by", String(12)),
)
# One row: `epoch` moves with every change, `pepper_check` tells a wrong pepper before any key is refused.
state = Table(
    "keys_state",
    _metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("pepper_check", String(64), nullable=False),
)
