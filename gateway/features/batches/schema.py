"""The tables of files and batches in the state database, created on first use."""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, String, Text

from gateway.features.quota.meter import Metered, meter
from gateway.state.schema import TableGroup

BATCHES = TableGroup("batches", then=lambda connection: meter(connection, *METERED))
_NUMBER = BigInteger().with_variant(Integer, "sqlite")
# Times are Unix seconds. The numbers give lists a stable order.
files = BATCHES.table(
    "batch_files",
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("tenant", String(128), nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("filename", String(512), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    # The models of results, as a JSON array.
    Column("models", Text, nullable=False, server_default=""),
)
batches = BATCHES.table(
    "batches",
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("tenant", String(128), nullable=False),
    Column("api", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    # Estimated tokens of the prompts while the batch is unfinished.
    Column("tokens", BigInteger, nullable=False),
    # The end of the window, and the end of the batch's retention.
    Column("expires_at", Double, nullable=False),
    Column("delete_at", Double, nullable=False),
    # JSON objects: the request of the client, and the state.
    Column("spec", Text, nullable=False),
    Column("progress", Text, nullable=False),
)
# The units of work. The holder of one raises its beat; every change names the holder's token, so that a holder that
# another gateway has replaced can change nothing.
tasks = BATCHES.table(
    "batch_tasks",
    Column("batch", String(64), primary_key=True),
    # -1: examines the input; 0 and above: a shard; FINISH: writes the output.
    Column("number", Integer, primary_key=True),
    Column("done", Integer, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("holder", String(64), nullable=False),
    Column("token", Integer, nullable=False),
    Column("beat", BigInteger, nullable=False),
    # The counts and the logs of a shard, as a JSON object.
    Column("counts", Text, nullable=False),
)
Index("batch_files_tenant", files.c.tenant, files.c.number)
Index("batch_files_age", files.c.expires_at)
Index("batches_tenant", batches.c.tenant, batches.c.number)
Index("batches_status", batches.c.status)
Index("batches_state", batches.c.status, batches.c.number)
Index("batches_tenant_state", batches.c.tenant, batches.c.status, batches.c.number)
Index("batch_tasks_order", tasks.c.done, tasks.c.expires_at)
METERED: tuple[Metered, ...] = (Metered(files, ("filename",), ("bytes",)), Metered(batches, ("spec", "progress")))
