"""A task that fails again and again has growing pauses, and takes no place of others."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gateway.features.batches.local_storage import LocalStorage
from gateway.features.batches.runner import LONGEST_PAUSE, MOST_TASKS, BatchRunner
from gateway.features.batches.storage import StorageError
from gateway.features.batches.tasks import Claim
from policies.batches.states import ShardCounts
from tests.support.batch_specs import direct_context, spec


class Tasks:
    """The leases of shards without an order, which the storage has lost."""

    def __init__(self, tasks: int) -> None:
        self.free = list(range(tasks))
        self.claimed: list[int] = []

    def claim(self, most: int) -> list[Claim]:
        taken, self.free = self.free[:most], self.free[most:]
        self.claimed += taken
        return [Claim(spec(number, "acme", "openai"), 0, 1, ShardCounts()) for number in taken]

    def beat(self, claims: list[Claim]) -> dict[tuple[str, int], str]:
        return {(claim.spec.id, claim.number): "in_progress" for claim in claims}

    def release(self, claims: list[Claim]) -> None:
        self.free += [int(claim.spec.id.removeprefix("batch_")) for claim in claims]


def runner_of(tasks: Tasks, storage: Any) -> BatchRunner:
    store = SimpleNamespace(
        active=list, expired_files=lambda *_: [], forget_batches=lambda _: [], read=lambda _: frozenset()
    )
    gate = SimpleNamespace(close=lambda: None)
    return BatchRunner(direct_context(storage=storage, store=store, leases=tasks, gate=gate, wall=lambda: 0.0))


async def test_tasks_with_a_damaged_object_take_no_place_of_others() -> None:
    def damaged(*_: object) -> bytes:
        raise StorageError("the object is damaged")

    tasks = Tasks(3 * MOST_TASKS)
    runner = runner_of(tasks, SimpleNamespace(read=damaged))
    running = asyncio.create_task(runner.run())
    await asyncio.sleep(30)
    assert sorted(tasks.claimed) == list(range(3 * MOST_TASKS))
    running.cancel()
    await runner.aclose()


async def test_a_task_that_fails_is_tried_again_after_growing_pauses(tmp_path: Path) -> None:
    tasks, count = Tasks(2 * MOST_TASKS), 2 * MOST_TASKS
    runner = runner_of(tasks, LocalStorage(str(tmp_path)))
    running = asyncio.create_task(runner.run())
    await asyncio.sleep(10)
    assert set(tasks.claimed) == set(range(count))  # all others begin meanwhile
    await asyncio.sleep(3600)
    assert 3600 / LONGEST_PAUSE <= len(tasks.claimed) / count <= 3600 / LONGEST_PAUSE + 10
    running.cancel()
    began = asyncio.get_running_loop().time()
    await runner.aclose()
    assert asyncio.get_running_loop().time() - began <= 2
    assert sorted(tasks.free) == list(range(count))
