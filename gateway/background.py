"""Background tasks: one that fails begins again, is counted and is logged. None ends for good."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from adapters.lasting import lasting, report_failure


class Background:
    """Holds a reference to each task until it ends."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        """Start a task that lasts: after an error, `work` is called again."""
        return self._hold(asyncio.create_task(lasting(name, work), name=name))

    def once(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Start a task that ends. An error is logged."""
        task = self._hold(asyncio.create_task(work, name=name))
        task.add_done_callback(_report)
        return task

    def _hold(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks and wait for them."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        report_failure(task.get_name(), error, "is not repeated")
