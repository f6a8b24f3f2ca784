"""The base of the units of work, and what they share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from sqlalchemy import Connection

from config.schema.batches import BatchesConfig
from gateway.features.batches.calls import LineCalls
from gateway.features.batches.gate import Gate
from gateway.features.batches.providers import Providers
from gateway.features.batches.sealing import LineSeals
from gateway.features.batches.storage import NoObject, Storage, StorageError
from gateway.features.batches.store import BatchStore
from gateway.features.batches.tasks import Claim, TaskLeases
from gateway.state.errors import StateError
from gateway.state.insist import Insistence
from policies.batches.states import STOPPED, Status

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DurableWork:
    """The storage and the database of a process, and the threads that wait for both."""

    storage: Storage
    store: BatchStore
    leases: TaskLeases
    threads: ThreadPoolExecutor
    insistence: Insistence = field(
        default_factory=lambda: Insistence("batches", StorageError, StateError, ends=is_final)
    )
    """The failures of the storage and the database, by task."""

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, lambda: function(*args, **kwargs))

    async def insist(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function until the storage and the database answer. Raises other errors, and `NoObject`."""
        return await self.insistence(name, lambda: self.in_thread(function, *args, **kwargs))


def is_final(error: Exception) -> bool:
    """Whether it is useless to repeat a call of the storage or the database."""
    return isinstance(error, NoObject) or not isinstance(error, StorageError | StateError)


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What all units of work of a process share."""

    durable: DurableWork
    config: BatchesConfig
    gate: Gate
    calls: LineCalls
    providers: Providers
    seals: LineSeals
    wall: Callable[[], float]
    max_line: int
    """Bytes of the longest line that may run."""
    token_limit: Callable[[str], int | None]
    """The limit of enqueued tokens of a tenant."""
    counts_usage: Callable[[], bool]
    """Whether usage is recorded."""


class Unit:
    """One task that this process holds. `status` is the state of its batch by the last beat."""

    def __init__(self, claim: Claim, context: BatchContext) -> None:
        self.claim = claim
        self.context = context
        self.status: Status = "in_progress"
        self.closing = False
        """Whether the process ends: the task is released."""
        self.hurries = False
        """Whether it ends at once: lines in flight are cancelled, and another process repeats them."""
        self.parked = False
        """Whether it only waits for a provider, so that it takes no place of other tasks."""
        self.saving_last = False
        """Whether the end of the task is being stored: it then has no beat any more."""

    @property
    def name(self) -> str:
        """The name in log lines."""
        return f"{self.claim.spec.id}/{self.claim.number}"

    @property
    def stops(self) -> bool:
        """Whether no further line may begin."""
        return self.closing or self.status in STOPPED or self.context.wall() >= self.claim.spec.expires_at

    async def run(self) -> None:
        """Do the work. Raises `Fenced` if another process has taken it over."""
        raise NotImplementedError

    async def save(self, change: Callable[[Connection], None], *, done: bool = False) -> None:
        """Store the counts and other changes in one transaction. Raises `Fenced`."""
        self.saving_last = done
        await self.context.durable.insist(self.name, self.context.durable.leases.save, self.claim, change, done=done)
