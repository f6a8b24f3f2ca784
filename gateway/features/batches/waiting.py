"""The reasons why a batch has not ended, for operators and tenants' admins. Blocks."""

from sqlalchemy import func, select

from gateway.features.batches.rows import StoredBatch
from gateway.features.batches.schema import tasks
from gateway.features.batches.store import BatchStore
from gateway.features.batches.tasks import EXAMINE, FINISH, shards_in
from policies.batches.states import ENDED

BAND = "batch: below all live requests, in the places that they leave"


def reasons_of(store: BatchStore, batch: StoredBatch) -> list[str]:
    """What the state database knows: held and free tasks, submissions to providers, batches that are due earlier."""
    if batch.progress.status in ENDED:
        return []
    with store.database.transaction() as connection:
        own = tasks.c.batch == batch.spec.id
        rows = connection.execute(select(tasks.c.number, tasks.c.holder).where(own, tasks.c.done == 0)).all()
        earlier = select(func.count(tasks.c.batch.distinct())).where(
            tasks.c.done == 0, tasks.c.expires_at < batch.spec.expires_at
        )
        before = connection.execute(earlier).scalar_one()
        submissions = [each for _, counts in shards_in(connection, batch.spec.id) for each in counts.submissions]
    reasons: list[str] = []
    held = sum(bool(row.holder) for row in rows)
    if any(row.number == EXAMINE for row in rows):
        reasons.append("its lines are being examined" if held else "it waits for a process that examines its lines")
    elif any(row.number == FINISH for row in rows):
        reasons.append("its files are being written" if held else "it waits for a process that writes its files")
    elif rows:
        reasons.append(f"of {len(rows)} open parts, processes hold {held}")
    if before:
        reasons.append(f"{before} batches are due earlier")
    for each in submissions:
        state = f"as {each.batch}" if each.batch else "and has not confirmed them"
        reasons.append(f"the provider of the pool {each.pool} has {len(each.numbers)} lines, {state}")
    return reasons
