"""The tables of rollouts and experiments in the state database, created on first use."""

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    String,
    Text,
    insert,
    select,
)

from gateway.state.lease import Leases
from gateway.state.schema import TableGroup

TAKEOVER = 10.0
"""Seconds after which a decider that has not renewed its lease, by the clock of another gateway, is replaced."""
DECIDER = 1
"""The key of the lease's one row."""


def decider_lease(clock: Callable[[], float]) -> Leases:
    """One gateway's view of the lease: no two gateways decide in one transaction of the database."""
    return Leases(lease, clock, TAKEOVER)


def _add_lease(connection: Connection) -> None:
    if connection.execute(select(lease.c.id)).first() is None:
        connection.execute(insert(lease).values(id=DECIDER, holder="", beat=0))


ROLLOUTS = TableGroup("rollouts", then=_add_lease)
# The state of a rollout is a JSON object: it is read and written as a whole, in a transaction that excludes all others.
rollouts = ROLLOUTS.table(
    "rollouts",
    Column("name", String(128), primary_key=True),
    Column("progress", Text, nullable=False),
)
experiments = ROLLOUTS.table(
    "experiments",
    Column("name", String(128), primary_key=True),
    Column("progress", Text, nullable=False),
)
# The time series of an experiment. A point is a JSON object.
points = ROLLOUTS.table(
    "experiment_points",
    Column("name", String(128), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("at", Double, primary_key=True),
    Column("point", Text, nullable=False),
)
subjects = ROLLOUTS.table(
    "comparison_subjects",
    Column("comparison", String(128), primary_key=True),
    Column("generation", Integer, primary_key=True),
    # The key of an event, or nothing for the assignment.
    Column("event", String(128), primary_key=True),
    Column("subject", BigInteger, primary_key=True),
    Column("arm", Integer, nullable=False),
    Column("stratum", Integer, nullable=False),
    Column("at", Double, nullable=False),
)
# The values that clients report, each once. A gateway that writes holds the lock of all writers, so that the numbers
# are in the order of the commits.
feedback = ROLLOUTS.table(
    "feedback",
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("comparison", String(128), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("metric", String(128), nullable=False),
    # A subject, or a request that is its own subject, as a signed integer.
    Column("unit", BigInteger, nullable=False),
    # 0 and 1: the halves of a baseline; 2: the comparison.
    Column("period", Integer, nullable=False),
    Column("arm", Integer, nullable=False),
    Column("stratum", Integer, nullable=False),
    Column("value", Double, nullable=False),
    Column("assigned_at", Double, nullable=False),
    sqlite_autoincrement=True,
)
# The last counts of each gateway that are stored, so that counts whose commit seemed to fail do not count twice.
batches = ROLLOUTS.table(
    "comparison_batches",
    Column("holder", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
)
Index(
    "feedback_once",
    feedback.c.comparison,
    feedback.c.generation,
    feedback.c.metric,
    feedback.c.unit,
    feedback.c.period,
    unique=True,
)
Index("feedback_order", feedback.c.comparison, feedback.c.generation, feedback.c.number)
# One row: the gateway that decides, and a number that it raises each time.
lease = ROLLOUTS.table(
    "rollout_lease",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("holder", String(64), nullable=False),
    Column("beat", BigInteger, nullable=False),
)
