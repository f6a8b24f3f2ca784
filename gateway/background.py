"""Background tasks whose failures are logged."""

import asyncio
import logging
from collections.abc import Coroutine

log = logging.getLogger(__name__)


class Background:
    """Holds a reference to each task until it ends, and logs the error of a task that fails."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the background task %s failed and no longer runs", task.get_name(), exc_info=error)

    async def cancel(self) -> None:
        """Cancel all tasks and wait for them."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
