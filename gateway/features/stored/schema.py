"""The tables of stored responses and conversations, created on first use."""

from sqlalchemy import BigInteger, Column, Connection, Double, Index, MetaData, String, Table, Text
from sqlalchemy.schema import CreateIndex, CreateTable

from gateway.features.quota.meter import Metered, meter
from gateway.state.database import add_missing_columns, exclude_schema_changes

_metadata = MetaData()
_LOCK = 0x6865616473746F72
"""The Postgres advisory lock under which the tables are created: an arbitrary number."""
# Times are Unix seconds. Every statement names the tenant, which is a part of each primary key.
responses = Table(
    "stored_responses",
    _metadata,
    Column("tenant", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("previous", String(128)),
    # A JSON array of items, and the JSON object that the client got.
    Column("input", Text, nullable=False),
    Column("answer", Text, nullable=False),
    # The model by the name that the client requested.
    Column("model", Text, nullable=False, server_default=""),
)
conversations = Table(
    "stored_conversations",
    _metadata,
    Column("tenant", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("metadata", Text, nullable=False),
)
items = Table(
    "stored_items",
    _metadata,
    Column("tenant", String(128), primary_key=True),
    Column("conversation", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("item", Text, nullable=False),
    # The model whose request added the item; empty for the client's own.
    Column("model", Text, nullable=False, server_default=""),
)
_INDEXES = (
    Index("stored_responses_age", responses.c.tenant, responses.c.created_at),
    Index("stored_conversations_age", conversations.c.tenant, conversations.c.created_at),
    Index("stored_items_order", items.c.tenant, items.c.conversation, items.c.position),
)


METERED = (
    Metered(responses, ("input", "answer")),
    Metered(conversations, ("metadata",)),
    Metered(items, ("item",)),
)


def make_tables(connection: Connection) -> None:
    """Create the missing tables. Several processes may try at once."""
    exclude_schema_changes(connection, _LOCK)
    for table in (responses, conversations, items):
        connection.execute(CreateTable(table, if_not_exists=True))
        add_missing_columns(connection, table)
    for index in _INDEXES:
        connection.execute(CreateIndex(index, if_not_exists=True))
    meter(connection, *METERED)
